//! Recording outcomes, and the retries that follow.

use std::collections::HashSet;

use domain::attempt::follow_up::{self, FollowUp, Retry, follow_up};
use domain::ids::{AttemptId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{Outcome, Recorded, Wakes};
use rusqlite::Transaction;

use super::buckets::Buckets;
use super::fault::Fault;
use super::health::{self, Seen};
use super::rows::{execute, first, time, word};
use super::smart::{self, Samples};

const STARTED: &str = "
    -- record_outcomes: the row, if this worker claimed it under this number
    select state, started_at, coarse and not folded, crowded, try_number, event_id,
        destination_id, tenant_id, dead_letter, tries_before, expires_at,
        exists (select 1 from health h where h.destination_id = attempts.destination_id),
        exists (select 1 from smart_limits s where s.destination_id = attempts.destination_id),
        payload_bytes, batch_limit, claimed_at, replay_id
    from attempts
    where id = ?1 and permit = ?2 and worker_id = ?3 and state in ('started', 'unknown')
        and destination_id = ?4";

const FINISH: &str = "
    -- record_outcomes: the outcome
    update attempts
    set state = ?2, finished_at = ?3, status = ?4, error = ?5, response_body = ?6,
        dead_letter = ?7, folded = folded or ?8, started_at = ?9,
        counted_at = iif(by_response, coalesce(counted_at, ?10), null)
    where id = ?1";

const CANCEL_RETRY: &str = "
    -- record_outcomes: it was delivered after all
    update attempts indexed by attempts_of_event
    set state = 'cancelled', permit = null, epoch = null, not_before = null, deadline = null
    where event_id = ?1 and destination_id = ?2 and id > ?3
        and state in ('waiting', 'admitted')";

const INSERT_RETRY: &str = "
    -- the next try
    insert into attempts
        (event_id, destination_id, tenant_id, try_number, state, due_at, created_at,
        tries_before, expires_at, payload_bytes, batch_limit, replay_id)
    values (?1, ?2, ?3, ?4, 'waiting', ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

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
    let mut ended = Vec::new();
    let mut once = HashSet::new();
    for outcome in outcomes
        .iter()
        .filter(|outcome| once.insert(outcome.attempt))
    {
        if let Some(row) = Started::read(tx, &worker, outcome)? {
            ended.push((outcome, row));
        }
    }
    let judged = health::judge(tx, now, &seen(&ended))?;
    smart::judge(tx, now, &samples(&ended), &judged.health)?;
    let mut called_off = Vec::new();
    for (outcome, row) in &ended {
        let health = judged.health.get(&outcome.destination);
        let next = follow_up(outcome, &row.start, now, health);
        row.finish(tx, outcome, &next)?;
        if row.to_fold {
            buckets.add(&row.event.destination, next.started_at);
        }
        if let Some(retry) = &next.retry {
            (row.event).add_try(tx, retry, next.finished_at)?;
            wakes.after(outcome.destination, retry.due_at.since(now));
        }
        if row.crowded {
            wakes.now(outcome.destination);
        }
        if next.calls_off_retry {
            called_off.push((outcome.attempt, row));
        }
    }
    // At the end: also what the failure of such a retry has just added.
    for (attempt, row) in called_off {
        row.cancel_retry(tx, attempt)?;
    }
    buckets.write(tx)?;
    let mut wakes = wakes.into_vec();
    wakes.extend(judged.wakes);
    Ok(Recorded {
        skipped: Vec::new(),
        wakes,
        health: judged.changes,
    })
}

/// The answers that may matter: of destinations that did not just succeed, or
/// that have something to remember.
fn seen(ended: &[(&Outcome, Started)]) -> Seen {
    let matters =
        |(outcome, row): &&(&Outcome, Started)| row.remembered || !outcome.is_unremarkable();
    let mut seen: Seen = (ended.iter().filter(matters))
        .map(|(outcome, _)| (outcome.destination, Vec::new()))
        .collect();
    for (outcome, row) in ended {
        if let Some(of_one) = seen.get_mut(&outcome.destination) {
            of_one.extend(outcome.observation(row.start.claimed_at));
        }
    }
    seen
}

/// The answers of destinations with smart delivery.
fn samples(ended: &[(&Outcome, Started)]) -> Samples {
    let mut samples = Samples::new();
    for (outcome, row) in ended.iter().filter(|(_, row)| row.smart) {
        let of_one = samples.entry(outcome.destination).or_default();
        of_one.extend(outcome.sample(row.start.claimed_at));
    }
    samples
}

/// Which event for whom: what all tries share. Ids as the rows hold them.
pub(super) struct EventAt {
    pub(super) event: String,
    pub(super) destination: String,
    pub(super) tenant: String,
    pub(super) tries_before: u32,
    pub(super) expires_at: Option<i64>,
    pub(super) payload_bytes: i64,
    /// Whose first try it is.
    pub(super) replay: Option<String>,
}

impl EventAt {
    /// Adds a waiting try.
    pub(super) fn add_try(
        &self,
        tx: &Transaction<'_>,
        retry: &Retry,
        created_at: Timestamp,
    ) -> Result<(), Fault> {
        let row = (
            &self.event,
            &self.destination,
            &self.tenant,
            retry.try_number,
            retry.due_at.as_micros(),
            created_at.as_micros(),
            self.tries_before,
            self.expires_at,
            self.payload_bytes,
            retry.batch_limit,
            self.replay.as_ref().filter(|_| retry.in_its_place),
        );
        execute(tx, INSERT_RETRY, row)?;
        Ok(())
    }
}

/// A row that has started and waits for its outcome.
struct Started {
    start: follow_up::Started,
    to_fold: bool,
    crowded: bool,
    event: EventAt,
    /// Its destination has something to remember.
    remembered: bool,
    /// Its destination has smart delivery.
    smart: bool,
}

impl Started {
    fn read(tx: &Transaction<'_>, worker: &str, outcome: &Outcome) -> Result<Option<Self>, Fault> {
        let destination = outcome.destination.to_string();
        let key = (outcome.attempt.0, outcome.number.0, worker, destination);
        first(tx, STARTED, key, |row| {
            Ok(Self {
                start: follow_up::Started {
                    state: word(row, 0, ("attempts", "state"))?,
                    claimed_at: time(row, 15)?,
                    latest: time(row, 1)?,
                    try_number: row.get(4)?,
                    batch_limit: row.get(14)?,
                    dead_letter: row.get(8)?,
                },
                to_fold: row.get(2)?,
                crowded: row.get(3)?,
                event: EventAt {
                    event: row.get(5)?,
                    destination: row.get(6)?,
                    tenant: row.get(7)?,
                    tries_before: row.get(9)?,
                    expires_at: row.get(10)?,
                    payload_bytes: row.get(13)?,
                    replay: row.get(16)?,
                },
                remembered: row.get(11)?,
                smart: row.get(12)?,
            })
        })
    }

    fn finish(
        &self,
        tx: &Transaction<'_>,
        outcome: &Outcome,
        next: &FollowUp,
    ) -> Result<(), Fault> {
        let body = (!outcome.response_body.is_empty()).then_some(&outcome.response_body[..]);
        let row = (
            outcome.attempt.0,
            outcome.kind.state().as_str(),
            next.finished_at.as_micros(),
            outcome.status,
            outcome.error.as_deref(),
            body,
            next.dead_letter,
            self.to_fold,
            next.started_at.as_micros(),
            (self.start.claimed_at + outcome.arrives_within()).as_micros(),
        );
        execute(tx, FINISH, row)?;
        Ok(())
    }

    fn cancel_retry(&self, tx: &Transaction<'_>, attempt: AttemptId) -> Result<(), Fault> {
        let key = (&self.event.event, &self.event.destination, attempt.0);
        execute(tx, CANCEL_RETRY, key)?;
        Ok(())
    }
}
