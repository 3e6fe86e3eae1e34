//! Putting right what nobody came back for.

use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, PermitNumber};
use domain::retry::DEFAULT_MAX_TRIES;
use domain::time::Timestamp;
use engine::ports::{NO_OUTCOME_IN_TIME, ReapRules, Reaped, WORKER_IS_GONE, Wakes};
use rusqlite::Transaction;

use super::buckets::{self, Buckets};
use super::fault::Fault;
use super::record::EventAt;
use super::rows::{all, execute, parse, time, word};

const EXPIRED: &str = "
    -- reap: permits past their deadline, the longest past first
    select id, permit, destination_id from attempts indexed by attempts_deadline
    where state = 'admitted' and deadline < ?1
    order by deadline limit ?2";

const RETURN: &str = "
    -- reap: such a permit ends unused
    update attempts
    set state = 'waiting', due_at = coalesce(due_at, created_at),
        permit = null, epoch = null, not_before = null, deadline = null
    where id = ?1 and state = 'admitted' and permit = ?2";

const GIVEN_UP: &str = "
    -- reap: starts that are too old, or whose worker is gone
    select a.id, a.started_at, a.coarse and not a.folded, a.try_number, a.event_id,
        a.destination_id, a.tenant_id, w.seen_at is null or w.seen_at < ?2, d.deleted_at is not null,
        a.tries_before, a.expires_at, coalesce(json_extract(d.retry_policy, '$.max_tries'), ?4),
        a.payload_bytes, a.batch_limit,
        (a.carried_by is not null or a.batch_size is not null) and a.batch_limit is not 1
    from attempts a indexed by attempts_started
    join destinations d on d.id = a.destination_id
    left join workers w on w.id = a.worker_id
    where a.state = 'started' and (a.started_at < ?1 or w.seen_at is null or w.seen_at < ?2)
    order by a.started_at, a.id limit ?3";

const MARK_UNKNOWN: &str = "
    -- reap: nobody knows what became of it
    update attempts set state = 'unknown', error = ?2, dead_letter = ?3, folded = folded or ?4
    where id = ?1";

const CANCEL: &str = "
    -- reap: the backlog of the deleted
    update attempts set state = 'cancelled' where id in (
        select a.id from destinations d
        cross join attempts a indexed by attempts_first on a.destination_id = d.id
        where d.deleted_at is not null and a.state = 'waiting' and a.due_at is null
        limit ?1
    )";

const CANCEL_DUE: &str = "
    -- reap: the retries of the deleted
    update attempts set state = 'cancelled' where id in (
        select a.id from destinations d
        cross join attempts a indexed by attempts_due on a.destination_id = d.id
        where d.deleted_at is not null and a.state = 'waiting' and a.due_at is not null
        limit ?1
    )";

const EXPIRE: &str = "
    -- reap: what grew too old while it waited, what expired first first
    update attempts
    set state = 'expired', dead_letter = 1, finished_at = ?1,
        error = 'it was older than the destination''s max_age'
    where id in (
        select id from attempts indexed by attempts_expiring
        where state = 'waiting' and expires_at is not null and expires_at <= ?1
        order by expires_at limit ?2
    )";

const DELETE_WORKERS: &str = "
    -- reap: workers that nobody will ask about again
    delete from workers where id in (select id from workers where seen_at < ?1 limit ?2)";

const DELETE_KEYS: &str = "
    -- reap: idempotency keys that stand for nothing any more
    delete from idempotency_keys where (tenant_id, key) in (
        select tenant_id, key from idempotency_keys indexed by idempotency_keys_expired
        where expires_at <= ?1 limit ?2
    )";

/// How long a worker's row is kept after its last heartbeat.
const WORKER_KEPT: Duration = Duration::from_secs(3_600);

/// Reaps; see [`engine::ports::Store::reap`].
pub(super) fn reap(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &ReapRules,
    limit: u32,
) -> Result<Reaped, Fault> {
    let mut wakes = Wakes::default();
    let expired_permits = expire(tx, now - rules.permit_grace, limit, &mut wakes)?;
    let unknown_starts = give_up(tx, now, rules, limit, &mut wakes)?;
    let first_attempts = execute(tx, CANCEL, [limit])?;
    let first_attempts = u32::try_from(first_attempts).unwrap_or(u32::MAX);
    let retries = execute(tx, CANCEL_DUE, [limit.saturating_sub(first_attempts)])?;
    let retries = u32::try_from(retries).unwrap_or(u32::MAX);
    let expired = execute(tx, EXPIRE, (now.as_micros(), limit))?;
    buckets::delete_old(tx, now, limit)?;
    execute(tx, DELETE_KEYS, (now.as_micros(), limit))?;
    execute(tx, DELETE_WORKERS, ((now - WORKER_KEPT).as_micros(), limit))?;
    Ok(Reaped {
        expired_permits,
        unknown_starts,
        cancelled: first_attempts.saturating_add(retries),
        expired: u32::try_from(expired).unwrap_or(u32::MAX),
        wakes: wakes.into_vec(),
    })
}

fn expire(
    tx: &Transaction<'_>,
    before: Timestamp,
    limit: u32,
    wakes: &mut Wakes,
) -> Result<u32, Fault> {
    let expired = all(tx, EXPIRED, (before.as_micros(), limit), |row| {
        let (id, number) = (AttemptId(row.get(0)?), PermitNumber(row.get(1)?));
        let destination: DestinationId = word(row, 2, ("attempts", "destination_id"))?;
        Ok((id, number, destination))
    })?;
    for (attempt, number, destination) in &expired {
        execute(tx, RETURN, (attempt.0, number.0))?;
        wakes.now(*destination);
    }
    Ok(u32::try_from(expired.len()).unwrap_or(u32::MAX))
}

/// A start that is given up.
struct GivenUp {
    id: i64,
    started_at: Timestamp,
    to_fold: bool,
    try_number: u32,
    event: EventAt,
    worker_gone: bool,
    destination_gone: bool,
    max_tries: u32,
    /// It was not alone.
    is_batch: bool,
}

fn give_up(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &ReapRules,
    limit: u32,
    wakes: &mut Wakes,
) -> Result<u32, Fault> {
    let started_before = (now - rules.start_timeout).as_micros();
    let seen_before = (now - rules.heartbeat_timeout).as_micros();
    let rules = (started_before, seen_before, limit, DEFAULT_MAX_TRIES);
    let given_up = all(tx, GIVEN_UP, rules, |row| {
        Ok(GivenUp {
            id: row.get(0)?,
            started_at: time(row, 1)?,
            to_fold: row.get(2)?,
            try_number: row.get(3)?,
            event: EventAt {
                event: row.get(4)?,
                destination: row.get(5)?,
                tenant: row.get(6)?,
                tries_before: row.get(9)?,
                expires_at: row.get(10)?,
                payload_bytes: row.get(12)?,
                batch_limit: row.get(13)?,
            },
            worker_gone: row.get(7)?,
            destination_gone: row.get(8)?,
            max_tries: row.get(11)?,
            is_batch: row.get(14)?,
        })
    })?;
    let mut buckets = Buckets::default();
    for start in &given_up {
        let tries = start.try_number.saturating_sub(start.event.tries_before);
        let used_up = tries >= start.max_tries;
        // What is used up gets another one, alone, before it is given up.
        let (last, split) = (used_up && !start.is_batch, used_up && start.is_batch);
        let error = match start.worker_gone {
            true => WORKER_IS_GONE,
            false => NO_OUTCOME_IN_TIME,
        };
        execute(tx, MARK_UNKNOWN, (start.id, error, last, start.to_fold))?;
        if start.to_fold {
            buckets.add(&start.event.destination, start.started_at);
        }
        if !last && !start.destination_gone {
            let (next, limit) = match split {
                true => (start.try_number, Some(1)),
                false => (start.try_number.saturating_add(1), start.event.batch_limit),
            };
            start.event.add_try(tx, next, (now, now), limit)?;
        }
        wakes.now(parse(
            &start.event.destination,
            ("attempts", "destination_id"),
        )?);
    }
    buckets.write(tx)?;
    Ok(u32::try_from(given_up.len()).unwrap_or(u32::MAX))
}
