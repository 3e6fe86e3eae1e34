//! Recording outcomes, and the retries that follow.

use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::{AttemptId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{NextTry, Outcome, Recorded, Wake};

use super::rows::{Attempt, Rows};
use super::wakes::Wakes;

/// Records; see [`engine::ports::Store::record_outcomes`]. Nothing is ever
/// skipped: nobody holds a row that has started.
pub(super) fn record_outcomes(
    rows: &mut Rows,
    now: Timestamp,
    worker: WorkerId,
    outcomes: &[Outcome],
) -> Recorded {
    let mut wakes = Wakes::default();
    for outcome in outcomes {
        let Some(started) = started_by(rows, worker, outcome).cloned() else {
            continue;
        };
        let Some(started_at) = started.started_at else {
            continue;
        };
        let finished_at = started_at + outcome.elapsed;
        finish(rows, now, &started, finished_at, outcome);
        if started.is_to_fold() {
            rows.ledger.add_to_buckets(started.destination, started_at);
        }
        if started.state == AttemptState::Unknown {
            // The reaper has added the retry.
            if outcome.kind == OutcomeKind::Succeeded {
                cancel_retry(rows, now, &started);
            }
        } else if let Some(due_at) = add_next_try(rows, now, &started, finished_at, outcome.next) {
            wakes.after(Wake::after(outcome.destination, due_at.since(now)));
        }
        if started.crowded {
            wakes.now(outcome.destination);
        }
    }
    Recorded {
        skipped: Vec::new(),
        wakes: wakes.into_vec(),
    }
}

/// The row, if this worker claimed it under this number, and no outcome is
/// there.
fn started_by<'a>(rows: &'a Rows, worker: WorkerId, outcome: &Outcome) -> Option<&'a Attempt> {
    rows.ledger.get(outcome.attempt).filter(|row| {
        matches!(row.state, AttemptState::Started | AttemptState::Unknown)
            && row.worker == Some(worker)
            && row.destination == outcome.destination
            && row.permit.is_some_and(|own| own.number == outcome.number)
    })
}

fn finish(
    rows: &mut Rows,
    now: Timestamp,
    started: &Attempt,
    finished_at: Timestamp,
    outcome: &Outcome,
) {
    let dead_letter = match started.state {
        // Whether there is another try was decided when it became unknown.
        AttemptState::Unknown => started.dead_letter && outcome.kind != OutcomeKind::Succeeded,
        _ => outcome.next == NextTry::DeadLetter,
    };
    rows.ledger.change(now, started.id, |row| {
        row.state = outcome.kind.state();
        row.finished_at = Some(finished_at);
        row.status = outcome.status;
        row.error.clone_from(&outcome.error);
        row.response_body = outcome.response_body.clone();
        row.dead_letter = dead_letter;
        row.folded |= started.is_to_fold();
    });
}

/// It was delivered after all.
fn cancel_retry(rows: &mut Rows, now: Timestamp, started: &Attempt) {
    let Some(event) = rows.events.get(&started.event) else {
        return;
    };
    let is_retry = |id: &&AttemptId| {
        rows.ledger.get(**id).is_some_and(|row| {
            row.destination == started.destination
                && row.try_number > started.try_number
                && matches!(row.state, AttemptState::Waiting | AttemptState::Admitted)
        })
    };
    let retries: Vec<_> = event.attempts.iter().filter(is_retry).copied().collect();
    for retry in retries {
        rows.ledger.change(now, retry, Attempt::cancel);
    }
}

/// Adds what follows; when it is due.
fn add_next_try(
    rows: &mut Rows,
    now: Timestamp,
    started: &Attempt,
    finished_at: Timestamp,
    next: NextTry,
) -> Option<Timestamp> {
    let (try_number, due_at) = match next {
        NextTry::None | NextTry::DeadLetter => return None,
        NextTry::RetryAfter(delay) => (started.try_number.saturating_add(1), finished_at + delay),
        NextTry::Again => (started.try_number, now),
    };
    let next = Attempt {
        try_number,
        due_at: Some(due_at),
        tries_before: started.tries_before,
        expires_at: started.expires_at,
        ..Attempt::waiting(started.event, started.destination, finished_at)
    };
    add_try(rows, now, next);
    Some(due_at)
}

/// Adds a waiting try to its event.
pub(super) fn add_try(rows: &mut Rows, now: Timestamp, row: Attempt) {
    let event = row.event;
    let id = rows.ledger.insert(now, row);
    if let Some(event) = rows.events.get_mut(&event) {
        event.attempts.push(id);
    }
}
