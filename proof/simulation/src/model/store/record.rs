//! Recording outcomes, and the retries that follow.

use std::collections::BTreeSet;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::{AttemptId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{NextTry, Outcome, Recorded, Wakes};

use super::rows::{Attempt, Rows};
use super::{health, smart};

/// Records; see [`engine::ports::Store::record_outcomes`].
pub(super) fn record_outcomes(
    rows: &mut Rows,
    now: Timestamp,
    worker: WorkerId,
    outcomes: &[Outcome],
) -> Recorded {
    let mut wakes = Wakes::default();
    let mut skipped = Vec::new();
    let mut once = BTreeSet::new();
    let mut ended: Vec<(&Outcome, Attempt)> = Vec::new();
    for outcome in outcomes
        .iter()
        .filter(|outcome| once.insert(outcome.attempt))
    {
        match started_by(rows, worker, outcome).cloned() {
            Some(started) if rows.held.contains(&started.id) => skipped.push(started.id),
            Some(started) => ended.push((outcome, started)),
            None => {}
        }
    }
    let judged = health::judge(rows, now, &ended);
    smart::judge(rows, now, &ended);
    for (outcome, started) in &ended {
        let Some(started_at) = started.started_at else {
            continue;
        };
        let finished_at = started_at + outcome.elapsed;
        finish(rows, now, started, finished_at, outcome);
        if started.is_to_fold() {
            rows.ledger.add_to_buckets(started.destination, started_at);
        }
        // Who made it unknown has added the retry.
        if started.state != AttemptState::Unknown
            && let Some(due_at) = add_next_try(rows, now, started, outcome)
        {
            wakes.after(outcome.destination, due_at.since(now));
        }
        if started.crowded {
            wakes.now(outcome.destination);
        }
    }
    // At the end: also what the failure of such a retry has just added.
    for (outcome, started) in &ended {
        if started.state == AttemptState::Unknown && outcome.kind == OutcomeKind::Succeeded {
            cancel_retry(rows, now, started);
        }
    }
    let mut wakes = wakes.into_vec();
    wakes.extend(judged.wakes);
    Recorded {
        skipped,
        wakes,
        health: judged.changes,
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
        row.error = outcome.error.as_deref().map(str::to_owned);
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
                && row.id > started.id
                && !rows.held.contains(*id)
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
    outcome: &Outcome,
) -> Option<Timestamp> {
    let health = rows.health.get(&started.destination);
    let started_at = started.started_at?;
    let next = outcome.next_try(started.try_number, (started_at, now), health);
    let (try_number, due_at) = next?;
    let finished_at = started_at + outcome.elapsed;
    let next = Attempt {
        try_number,
        due_at: Some(due_at),
        tries_before: started.tries_before,
        expires_at: started.expires_at,
        payload_bytes: started.payload_bytes,
        batch_limit: outcome.next_limit(started.batch_limit),
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
