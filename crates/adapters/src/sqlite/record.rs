//! Recording outcomes, and the retries that follow.
//!
//! Those from which nothing follows, successes of destinations that are well, are recorded
//! without being read first. For all else the domain decides by the row.

use std::collections::HashSet;

use domain::attempt::follow_up::{self, Retry, follow_up};
use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{Outcome, Recorded, Wakes};
use rusqlite::{Row, Transaction};

use super::buckets::Buckets;
use super::fault::Fault;
use super::health::{self, Seen};
use super::over::{self, Moves, PlainEnds};
use super::rows::{Held, all, execute, first, time, word};
use super::smart::{self, Samples};

const STARTED: &str = "
    -- record_outcomes: the row, if this worker claimed it under this number
    select state, started_at, coarse, crowded, try_number, event_id, destination_id, tenant_id,
        0, tries_before, expires_at,
        exists (select 1 from health h where h.destination_id = deliveries.destination_id),
        exists (select 1 from smart_limits s where s.destination_id = deliveries.destination_id),
        payload_bytes, batch_limit, claimed_at, replay_id, urgent
    from deliveries
    where id = ?1 and permit = ?2 and worker_id = ?3 and state = 'started'
        and destination_id = ?4";

/// Where a coarse limit counts it, it has been folded.
const UNKNOWN: &str = "
    -- record_outcomes: the same of one that was given up
    select state, started_at, 0, crowded, try_number, event_id, destination_id, tenant_id,
        dead_letter, tries_before, expires_at,
        exists (select 1 from health h where h.destination_id = ledger.destination_id),
        exists (select 1 from smart_limits s where s.destination_id = ledger.destination_id),
        payload_bytes, batch_limit, claimed_at, replay_id, urgent
    from ledger
    where id = ?1 and permit = ?2 and worker_id = ?3 and state = 'unknown'
        and destination_id = ?4";

const LATER_TRIES: &str = "
    -- record_outcomes: it was delivered after all
    select id from deliveries indexed by deliveries_of_event
    where event_id = ?1 and destination_id = ?2 and id > ?3";

const INSERT_RETRY: &str = "
    -- the next try
    insert into deliveries
        (event_id, destination_id, tenant_id, try_number, due_at, created_at, tries_before,
        expires_at, payload_bytes, batch_limit, replay_id, urgent)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

/// The statements of a plain outcome and of a retry, for the test of what they cost.
#[cfg(test)]
pub(super) const MEASURED: [&str; 2] = [STARTED, INSERT_RETRY];

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
    let outcomes = (outcomes.iter()).filter(|outcome| once.insert(outcome.attempt));
    let left = record_plain(tx, &worker, outcomes.collect())?;
    if left.is_empty() {
        return Ok(Recorded::default());
    }
    let mut started = Held::of(tx, STARTED)?;
    for outcome in left {
        if let Some(row) = Started::read((tx, &mut started), &worker, outcome)? {
            ended.push((outcome, row));
        }
    }
    let judged = health::judge(tx, now, &seen(&ended))?;
    smart::judge(tx, now, &samples(&ended), &judged.health)?;
    let (mut called_off, mut moves) = (Vec::new(), Moves::by_outcomes(tx)?);
    for (outcome, row) in &ended {
        let health = judged.health.get(&outcome.destination);
        let next = follow_up(outcome, &row.start, now, health);
        let arrived_by = row.start.claimed_at + outcome.arrives_within();
        over::end(&mut moves, outcome, &next, arrived_by)?;
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

/// Records those from which nothing follows, and answers which are left. Where one is not
/// plain itself all of its destination are: something may be remembered of it from then on,
/// and its answers are judged in their order.
fn record_plain<'a>(
    tx: &Transaction<'_>,
    worker: &str,
    outcomes: Vec<&'a Outcome>,
) -> Result<Vec<&'a Outcome>, Fault> {
    let mut ends = PlainEnds::of(tx)?;
    let mut judged: HashSet<DestinationId> = (outcomes.iter())
        .filter(|outcome| !outcome.is_plain())
        .map(|outcome| outcome.destination)
        .collect();
    let mut left = Vec::new();
    for outcome in outcomes {
        let destination = outcome.destination;
        if judged.contains(&destination) || !ends.end(worker, outcome)? {
            // What one has in its way the next has, too, nearly always.
            judged.insert(destination);
            left.push(outcome);
        }
    }
    ends.finish()?;
    Ok(left)
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
    pub(super) urgent: bool,
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
            self.urgent && retry.in_its_lane,
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
    fn read(
        (tx, started): (&Transaction<'_>, &mut Held<'_>),
        worker: &str,
        outcome: &Outcome,
    ) -> Result<Option<Self>, Fault> {
        let destination = outcome.destination.to_string();
        let (id, number) = (outcome.attempt.0, outcome.number.0);
        let key = (id, number, worker, &destination);
        let read = |row: &Row<'_>| {
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
                    urgent: row.get(17)?,
                },
                remembered: row.get(11)?,
                smart: row.get(12)?,
            })
        };
        match started.first(key, read)? {
            Some(started) => Ok(Some(started)),
            None => first(tx, UNKNOWN, key, read),
        }
    }

    fn cancel_retry(&self, tx: &Transaction<'_>, attempt: AttemptId) -> Result<(), Fault> {
        let key = (&self.event.event, &self.event.destination, attempt.0);
        for later in all(tx, LATER_TRIES, key, |row| Ok(AttemptId(row.get(0)?)))? {
            over::cancel(tx, later)?;
        }
        Ok(())
    }
}
