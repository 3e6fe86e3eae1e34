//! Putting right what nobody came back for.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::AttemptId;
use domain::limit::Period;
use domain::policy::MAX_SAFETY_MARGIN;
use domain::retry::DEFAULT_MAX_TRIES;
use domain::time::Timestamp;
use engine::ports::{NO_OUTCOME_IN_TIME, ReapRules, Reaped, WORKER_IS_GONE, Wakes};

use super::record::add_try;
use super::rows::{Attempt, Rows};

/// How long a worker's row is kept after its last heartbeat.
const WORKER_KEPT: Duration = Duration::from_secs(3_600);

/// Buckets are kept for longer than any window reaches back.
const SPARE: Duration = Duration::from_secs(60);

/// What a reap does, in this order: each is a statement of its own where the
/// store is a database, and others may come between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReapStep {
    /// Permits past their deadline wait again.
    Expire,
    /// Starts that nobody came back for become unknown.
    GiveUp,
    /// The backlog of deleted destinations is cancelled.
    Cancel,
    /// What grew too old while it waited expires, and what nobody will ask for
    /// is forgotten.
    TooOld,
}

impl ReapStep {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::Expire, Self::GiveUp, Self::Cancel, Self::TooOld];
}

/// Reaps; see [`engine::ports::Store::reap`].
pub(super) fn reap(rows: &mut Rows, now: Timestamp, rules: &ReapRules, limit: u32) -> Reaped {
    let mut wakes = Wakes::default();
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut reaped = Reaped {
        more: rows.keys.are_expired(now, most),
        ..Reaped::default()
    };
    for step in ReapStep::ALL {
        let done = reap_step(rows, now, step, rules, limit, &mut wakes);
        match step {
            ReapStep::Expire => reaped.expired_permits = done,
            ReapStep::GiveUp => reaped.unknown_starts = done,
            ReapStep::Cancel => reaped.cancelled = done,
            ReapStep::TooOld => reaped.expired = done,
        }
    }
    reaped.wakes = wakes.into_vec();
    reaped
}

/// One step; how many rows it moved.
pub(super) fn reap_step(
    rows: &mut Rows,
    now: Timestamp,
    step: ReapStep,
    rules: &ReapRules,
    limit: u32,
    wakes: &mut Wakes,
) -> u32 {
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    match step {
        ReapStep::Expire => expire(rows, now, now - rules.permit_grace, most, wakes),
        ReapStep::GiveUp => give_up(rows, now, rules, most, wakes),
        ReapStep::Cancel => cancel_deleted(rows, now, most),
        ReapStep::TooOld => {
            let expired = expire_old(rows, now, most);
            delete_old_buckets(rows, now);
            rows.keys.delete_expired(now, most);
            rows.workers
                .retain(|_, worker| worker.seen_at >= now - WORKER_KEPT);
            expired
        }
    }
}

fn count(rows: &[AttemptId]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

/// Permits past their deadline, the longest past first.
fn expire(
    rows: &mut Rows,
    now: Timestamp,
    before: Timestamp,
    most: usize,
    wakes: &mut Wakes,
) -> u32 {
    let past = rows
        .ledger
        .by_deadline
        .range(..(before, AttemptId(i64::MIN)));
    let is_free = |id: &AttemptId| {
        let row = rows.ledger.get(*id);
        row.is_some_and(|row| !rows.locked.contains(&row.destination) && !rows.held.contains(id))
    };
    let expired: Vec<_> = (past.map(|(_, id)| *id))
        .filter(is_free)
        .take(most)
        .collect();
    for id in &expired {
        if let Some(row) = rows.ledger.get(*id) {
            wakes.now(row.destination);
        }
        rows.ledger.change(now, *id, Attempt::wait_again);
    }
    count(&expired)
}

/// Starts that are too old, or whose worker is gone, the oldest first.
fn give_up(
    rows: &mut Rows,
    now: Timestamp,
    rules: &ReapRules,
    most: usize,
    wakes: &mut Wakes,
) -> u32 {
    let started_before = now - rules.start_timeout;
    let seen_before = now - rules.heartbeat_timeout;
    let is_gone = |row: &Attempt| {
        let worker = row.worker.and_then(|worker| rows.workers.get(&worker));
        worker.is_none_or(|worker| worker.seen_at < seen_before)
    };
    let given_up: Vec<(AttemptId, bool)> = (rows.ledger.in_flight.iter())
        .filter(|(_, id)| !rows.held.contains(id))
        .filter_map(|(started_at, id)| {
            let gone = is_gone(rows.ledger.get(*id)?);
            (gone || *started_at < started_before).then_some((*id, gone))
        })
        .take(most)
        .collect();
    for (id, gone) in &given_up {
        let error = match gone {
            true => WORKER_IS_GONE,
            false => NO_OUTCOME_IN_TIME,
        };
        if let Some(row) = rows.ledger.get(*id).cloned() {
            mark_unknown(rows, now, &row, error);
            wakes.now(row.destination);
        }
    }
    u32::try_from(given_up.len()).unwrap_or(u32::MAX)
}

/// Nobody knows what became of it; the event is tried again.
fn mark_unknown(rows: &mut Rows, now: Timestamp, started: &Attempt, error: &str) {
    let policy = rows.destinations.get(&started.destination);
    let max_tries = policy.map_or(DEFAULT_MAX_TRIES, |row| row.retry.max_tries());
    let used_up = started.try_number.saturating_sub(started.tries_before) >= max_tries;
    // It was not alone: it gets another one, alone.
    let of_batch = started.carried_by.is_some() || started.batch_size.is_some();
    let split = used_up && of_batch && started.batch_limit != Some(1);
    let last = used_up && !split;
    rows.ledger.change(now, started.id, |row| {
        row.state = AttemptState::Unknown;
        row.error = Some(error.to_owned());
        row.dead_letter = last;
        row.folded |= started.is_to_fold();
    });
    if let Some(started_at) = started.started_at.filter(|_| started.is_to_fold()) {
        rows.ledger.add_to_buckets(started.destination, started_at);
    }
    if !last && rows.living(started.destination).is_some() {
        let retry = Attempt {
            try_number: started.try_number.saturating_add(u32::from(!split)),
            due_at: Some(now),
            tries_before: started.tries_before,
            expires_at: started.expires_at,
            payload_bytes: started.payload_bytes,
            batch_limit: match split {
                true => Some(1),
                false => started.batch_limit,
            },
            ..Attempt::waiting(started.event, started.destination, now)
        };
        add_try(rows, now, retry);
    }
}

/// The backlog of deleted destinations, first attempts first.
fn cancel_deleted(rows: &mut Rows, now: Timestamp, most: usize) -> u32 {
    let deleted = || rows.busy().filter(|id| rows.living(*id).is_none());
    let indexes = |id| rows.ledger.indexes(id);
    let first = deleted().filter_map(indexes).flat_map(|of| &of.first);
    let due = deleted().filter_map(indexes).flat_map(|of| &of.due);
    let waiting = first.copied().chain(due.map(|(_, id)| *id));
    let free = waiting.filter(|id| !rows.held.contains(id));
    let waiting: Vec<_> = free.take(most).collect();
    for id in &waiting {
        rows.ledger.change(now, *id, Attempt::cancel);
    }
    count(&waiting)
}

/// What grew too old while it waited, what expired first first.
fn expire_old(rows: &mut Rows, now: Timestamp, most: usize) -> u32 {
    let up_to_now = ..=(now, AttemptId(i64::MAX));
    let old = rows.ledger.expiring.range(up_to_now).map(|(_, id)| *id);
    let free = old.filter(|id| !rows.held.contains(id));
    let old: Vec<_> = free.take(most).collect();
    for id in &old {
        rows.ledger.change(now, *id, |row| row.expire(now));
    }
    count(&old)
}

/// What no window reaches any more. The longest window is stretched by the
/// largest safety margin.
fn delete_old_buckets(rows: &mut Rows, now: Timestamp) {
    for indexes in rows.ledger.indexes_mut() {
        for period in Period::ALL {
            let kept = period.duration().mul_f64(1.0 + MAX_SAFETY_MARGIN) + SPARE;
            let oldest = now - kept;
            while let Some((key, _)) = indexes
                .buckets
                .range((period, Timestamp::MIN)..(period, oldest))
                .next()
            {
                let key = *key;
                indexes.buckets.remove(&key);
            }
        }
    }
}
