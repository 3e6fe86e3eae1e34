//! Recording outcomes, and the retries that follow.

use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::WorkerId;
use domain::time::Timestamp;
use engine::ports::{NextTry, Outcome, Recorded, Wake};
use rusqlite::Transaction;

use super::buckets::Buckets;
use super::fault::Fault;
use super::rows::{Wakes, execute, first, time, word};

const STARTED: &str = "
    -- record_outcomes: the row, if this worker claimed it under this number
    select state, started_at, coarse and not folded, crowded, try_number, event_id,
        destination_id, tenant_id, dead_letter, tries_before, expires_at
    from attempts
    where id = ?1 and permit = ?2 and worker_id = ?3 and state in ('started', 'unknown')
        and destination_id = ?4";

const FINISH: &str = "
    -- record_outcomes: the outcome
    update attempts
    set state = ?2, finished_at = ?3, status = ?4, error = ?5, response_body = ?6,
        dead_letter = ?7, folded = folded or ?8
    where id = ?1";

const CANCEL_RETRY: &str = "
    -- record_outcomes: it was delivered after all
    update attempts indexed by attempts_of_event
    set state = 'cancelled', permit = null, epoch = null, not_before = null, deadline = null
    where event_id = ?1 and destination_id = ?2 and try_number > ?3
        and state in ('waiting', 'admitted')";

const INSERT_RETRY: &str = "
    -- the next try
    insert into attempts
        (event_id, destination_id, tenant_id, try_number, state, due_at, created_at,
        tries_before, expires_at)
    values (?1, ?2, ?3, ?4, 'waiting', ?5, ?6, ?7, ?8)";

/// Records; see [`engine::ports::Store::record_outcomes`]. Nobody else holds a
/// row here, so nothing is ever skipped.
pub(super) fn record_outcomes(
    tx: &Transaction<'_>,
    now: Timestamp,
    worker: WorkerId,
    outcomes: &[Outcome],
) -> Result<Recorded, Fault> {
    let worker = worker.to_string();
    let mut wakes = Wakes::default();
    let mut buckets = Buckets::default();
    for outcome in outcomes {
        let Some(row) = Started::read(tx, &worker, outcome)? else {
            continue;
        };
        let finished_at = row.started_at + outcome.elapsed;
        row.finish(tx, finished_at, outcome)?;
        if row.to_fold {
            buckets.add(&row.event.destination, row.started_at);
        }
        if row.state == AttemptState::Unknown {
            // The reaper has added the retry.
            if outcome.kind == OutcomeKind::Succeeded {
                row.cancel_retry(tx)?;
            }
        } else if let Some(due_at) = row.add_next_try(tx, now, finished_at, outcome.next)? {
            wakes.after(Wake::after(outcome.destination, due_at.since(now)));
        }
        if row.crowded {
            wakes.now(outcome.destination);
        }
    }
    buckets.write(tx)?;
    Ok(Recorded {
        skipped: Vec::new(),
        wakes: wakes.into_vec(),
    })
}

/// Which event for whom: what all tries share. Ids as the rows hold them.
pub(super) struct EventAt {
    pub(super) event: String,
    pub(super) destination: String,
    pub(super) tenant: String,
    pub(super) tries_before: u32,
    pub(super) expires_at: Option<i64>,
}

impl EventAt {
    /// Adds a waiting try.
    pub(super) fn add_try(
        &self,
        tx: &Transaction<'_>,
        try_number: u32,
        due_at: Timestamp,
        created_at: Timestamp,
    ) -> Result<(), Fault> {
        let row = (
            &self.event,
            &self.destination,
            &self.tenant,
            try_number,
            due_at.as_micros(),
            created_at.as_micros(),
            self.tries_before,
            self.expires_at,
        );
        execute(tx, INSERT_RETRY, row)?;
        Ok(())
    }
}

/// A row that has started and waits for its outcome.
struct Started {
    state: AttemptState,
    started_at: Timestamp,
    to_fold: bool,
    crowded: bool,
    try_number: u32,
    event: EventAt,
    dead_letter: bool,
}

impl Started {
    fn read(tx: &Transaction<'_>, worker: &str, outcome: &Outcome) -> Result<Option<Self>, Fault> {
        let destination = outcome.destination.to_string();
        let key = (outcome.attempt.0, outcome.number.0, worker, destination);
        first(tx, STARTED, key, |row| {
            Ok(Self {
                state: word(row, 0, ("attempts", "state"))?,
                started_at: time(row, 1)?,
                to_fold: row.get(2)?,
                crowded: row.get(3)?,
                try_number: row.get(4)?,
                event: EventAt {
                    event: row.get(5)?,
                    destination: row.get(6)?,
                    tenant: row.get(7)?,
                    tries_before: row.get(9)?,
                    expires_at: row.get(10)?,
                },
                dead_letter: row.get(8)?,
            })
        })
    }

    fn finish(
        &self,
        tx: &Transaction<'_>,
        finished_at: Timestamp,
        outcome: &Outcome,
    ) -> Result<(), Fault> {
        let dead_letter = match self.state {
            // Whether there is another try was decided when it became unknown.
            AttemptState::Unknown => self.dead_letter && outcome.kind != OutcomeKind::Succeeded,
            _ => outcome.next == NextTry::DeadLetter,
        };
        let body = (!outcome.response_body.is_empty()).then_some(&outcome.response_body[..]);
        let row = (
            outcome.attempt.0,
            outcome.kind.state().as_str(),
            finished_at.as_micros(),
            outcome.status,
            &outcome.error,
            body,
            dead_letter,
            self.to_fold,
        );
        execute(tx, FINISH, row)?;
        Ok(())
    }

    fn cancel_retry(&self, tx: &Transaction<'_>) -> Result<(), Fault> {
        let key = (&self.event.event, &self.event.destination, self.try_number);
        execute(tx, CANCEL_RETRY, key)?;
        Ok(())
    }

    /// Adds what follows; when it is due.
    fn add_next_try(
        &self,
        tx: &Transaction<'_>,
        now: Timestamp,
        finished_at: Timestamp,
        next: NextTry,
    ) -> Result<Option<Timestamp>, Fault> {
        let (try_number, due_at) = match next {
            NextTry::None | NextTry::DeadLetter => return Ok(None),
            NextTry::RetryAfter(delay) => (self.try_number.saturating_add(1), finished_at + delay),
            NextTry::Again => (self.try_number, now),
        };
        self.event.add_try(tx, try_number, due_at, finished_at)?;
        Ok(Some(due_at))
    }
}
