//! Putting right what nobody came back for.

use std::time::Duration;

use domain::admission::{MAX_CLAIM_TO_SEND, MAX_REQUEST_TIMEOUT};
use domain::attempt::follow_up::{self, after_unknown};
use domain::ids::{AttemptId, DestinationId};
use domain::retry::DEFAULT_MAX_TRIES;
use domain::time::{Timestamp, micros};
use engine::ports::{
    DRAINED_AFTER, NO_OUTCOME_IN_TIME, PutOff, ReapRules, Reaped, StoreError, WORKER_IS_GONE, Wakes,
};
use rusqlite::{Row, Transaction};

use super::Clock;
use super::buckets::{self, Buckets};
use super::claim::give_back;
use super::fault::Fault;
use super::lines;
use super::over;
use super::record::EventAt;
use super::rows::{all, execute, first, parse, time};
use super::tenants;

const EXPIRED: &str = "
    -- reap: permits past their deadline, the longest past first
    select id, permit, destination_id from deliveries indexed by deliveries_held
    where permit is not null and carried_by is null and state = 'admitted' and deadline < ?1
    order by deadline limit ?2";

/// By the key first: a request is sent within `?6` of its claim, so none that was sent
/// later was claimed early enough.
const GIVEN_UP: &str = "
    -- reap: starts that are too old, or whose worker is gone
    with early as (
        select id from deliveries indexed by deliveries_held
        where permit is not null and carried_by is null and state = 'started'
            and started_at - ?6 < ?5
        union all
        select id from deliveries indexed by deliveries_carried
        where carried_by is not null and started_at - ?6 < ?5
    )
    select a.id, a.started_at, a.coarse, a.try_number, a.event_id, a.destination_id,
        a.tenant_id, w.seen_at is null or w.seen_at < ?2, d.deleted_at is not null,
        a.tries_before, a.expires_at, coalesce(json_extract(d.retry_policy, '$.max_tries'), ?4),
        a.payload_bytes, a.batch_limit,
        (a.carried_by is not null or a.batch_size is not null) and a.batch_limit is not 1
    from early e cross join deliveries a on a.id = e.id
    join destinations d on d.id = a.destination_id
    left join workers w on w.id = a.worker_id
    where a.claimed_at < ?5 and (a.claimed_at < ?1 or w.seen_at is null or w.seen_at < ?2)
    order by a.claimed_at, a.id limit ?3";

/// What went longer ago has no start that is not too old as well.
const LAPSED: &str = "
    -- reap: whether a worker has gone, so that starts of any age have to be looked through
    select 1 from workers where seen_at < ?1 and seen_at > ?2 limit 1";

const TO_DRAIN: &str = "
    -- reap: deleted destinations with a backlog to cancel, the first deleted first
    select id, deleted_at from destinations indexed by destinations_to_drain
    where deleted_at is not null and drained_at is null
    order by deleted_at, id limit ?1";

const CANCEL: &str = "
    -- reap: the backlog of one that is deleted
    select a.id from json_each(line(?1, 0, ?2)) l cross join deliveries a on a.id = l.value
    where a.permit is null and a.due_at is null";

const CANCEL_DUE: &str = "
    -- reap: its retries
    select id from deliveries indexed by deliveries_due
    where destination_id = ?1 and permit is null and due_at is not null limit ?2";

const IS_BUSY: &str = "
    -- reap: whether anything of it waits, has a permit or is under way
    select line_length(?1) > 0 or exists (
            select 1 from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null
        ) or exists (
            select 1 from deliveries indexed by deliveries_held
            where destination_id = ?1 and permit is not null and carried_by is null
        )";

const DRAINED: &str = "
    -- reap: it need not be looked at again
    update destinations set drained_at = ?2 where id = ?1";

const EXPIRING: &str = "
    -- reap: what grew too old while it waited, what expired first first
    select id from deliveries indexed by deliveries_expiring
    where permit is null and expires_at is not null and expires_at <= ?1
    order by expires_at limit ?2";

const DELETE_WORKERS: &str = "
    -- reap: workers that nobody will ask about again
    delete from workers where id in (select id from workers where seen_at < ?1 limit ?2)";

const DELETE_KEYS: &str = "
    -- reap: idempotency keys that stand for nothing any more
    delete from idempotency_keys where (tenant_id, key) in (
        select tenant_id, key from idempotency_keys indexed by idempotency_keys_expired
        where expires_at <= ?1 limit ?2
    )";

/// More than a claim takes.
const SPARE: Duration = Duration::from_secs(60);

/// How long a worker's row is kept after its last heartbeat.
const WORKER_KEPT: Duration = Duration::from_secs(3_600);

#[cfg(test)]
pub(super) const OF_THE_DELETED: [&str; 5] = [TO_DRAIN, CANCEL, CANCEL_DUE, IS_BUSY, DRAINED];

/// Deleted destinations that one pass looks at.
const DRAINED_AT_ONCE: u32 = 200;

/// So long one part may go on in its transaction: meanwhile nobody else writes, and what
/// is left is for the next pass, which follows soon.
const PART_BOUND: Duration = Duration::from_millis(100);

/// What one part may do in its transaction.
pub(super) struct Bound {
    limit: u32,
    until: Timestamp,
    clock: Clock,
}

impl Bound {
    /// At most so many rows, from now on.
    pub(super) fn new(limit: u32, now: Timestamp, clock: Clock) -> Self {
        Self {
            limit,
            until: now + PART_BOUND,
            clock,
        }
    }

    /// Asked after each row, so that a pass always does something.
    fn is_over(&self) -> bool {
        (self.clock)() >= self.until
    }
}

/// A pass: what its parts have done; see [`engine::ports::Store::reap`]. Each has a
/// transaction of its own: what one of them meets in a row does not undo what the others
/// do, and others write between two of them.
#[derive(Default)]
pub(super) struct Pass {
    reaped: Reaped,
    wakes: Wakes,
}

impl Pass {
    /// Notes what became of a part, unless it is the store that fails.
    pub(super) fn note(&mut self, part: Part, done: Result<Done, Fault>) -> Result<(), Fault> {
        let reaped = &mut self.reaped;
        match done {
            Ok(done) => {
                done.freed.iter().for_each(|freed| self.wakes.now(*freed));
                match part {
                    Part::Permits => reaped.expired_permits = done.rows,
                    Part::Starts => reaped.unknown_starts = done.rows,
                    Part::Deleted => reaped.cancelled = done.rows,
                    Part::Expired => reaped.expired = done.rows,
                    Part::Tenants | Part::Forgotten => {}
                }
                reaped.more |= done.more;
                Ok(())
            }
            Err(fault) if fault.is_of_a_row() => {
                reaped.put_off.push(PutOff {
                    part: part.as_str(),
                    problem: StoreError::from(fault).to_string(),
                });
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    pub(super) fn end(self) -> Reaped {
        Reaped {
            wakes: self.wakes.into_vec(),
            ..self.reaped
        }
    }
}

/// What a pass consists of, in this order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Permits,
    Starts,
    Tenants,
    Deleted,
    Expired,
    Forgotten,
}

impl Part {
    pub(super) const ALL: [Self; 6] = [
        Self::Permits,
        Self::Starts,
        Self::Tenants,
        Self::Deleted,
        Self::Expired,
        Self::Forgotten,
    ];

    /// For these limits wait.
    const URGENT: [Self; 2] = [Self::Permits, Self::Starts];

    pub(super) const fn of(rules: &ReapRules) -> &'static [Self] {
        match rules.everything {
            true => &Self::ALL,
            false => &Self::URGENT,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Permits => "expired permits",
            Self::Starts => "starts without an outcome",
            Self::Tenants => "deleted tenants",
            Self::Deleted => "deleted destinations",
            Self::Expired => "expired attempts",
            Self::Forgotten => "keys, workers and buckets of starts",
        }
    }
}

/// What one part did.
#[derive(Default)]
pub(super) struct Done {
    rows: u32,
    /// Whose admission may go on.
    freed: Vec<DestinationId>,
    /// Though `rows` does not say so.
    pub(super) more: bool,
}

/// One part, in a transaction of its own.
pub(super) fn step(
    tx: &Transaction<'_>,
    now: Timestamp,
    part: Part,
    rules: &ReapRules,
    bound: &Bound,
) -> Result<Done, Fault> {
    match part {
        Part::Permits => end_permits(tx, now - rules.permit_grace, bound),
        Part::Starts => give_up(tx, now, rules, bound),
        Part::Tenants => Ok(Done {
            more: tenants::empty(tx, now)?,
            ..Done::default()
        }),
        Part::Deleted => drain_deleted(tx, now, bound),
        Part::Expired => expire_old(tx, now, bound),
        Part::Forgotten => {
            let limit = bound.limit;
            buckets::delete_old(tx, now, limit)?;
            let keys = execute(tx, DELETE_KEYS, (now.as_micros(), limit))?;
            execute(tx, DELETE_WORKERS, ((now - WORKER_KEPT).as_micros(), limit))?;
            Ok(Done {
                more: moved(keys) >= limit,
                ..Done::default()
            })
        }
    }
}

fn moved(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// The backlog of deleted destinations, a step of it; one of which nothing is
/// left, and that was deleted long enough ago, is not looked at again.
fn drain_deleted(tx: &Transaction<'_>, now: Timestamp, bound: &Bound) -> Result<Done, Fault> {
    let limit = bound.limit;
    let deleted = all(tx, TO_DRAIN, [DRAINED_AT_ONCE], |row| {
        let id: String = row.get(0)?;
        Ok((id, time(row, 1)?))
    })?;
    let (mut left, mut drained) = (limit, 0);
    for (id, deleted_at) in &deleted {
        lines::tidy(tx, id, (0, limit))?;
        for sql in [CANCEL, CANCEL_DUE] {
            for waiting in all(tx, sql, (id, left), attempt)? {
                over::cancel(tx, waiting)?;
                left = left.saturating_sub(1);
                if bound.is_over() {
                    return Ok(unfinished(limit - left));
                }
            }
        }
        if left == 0 {
            break;
        }
        let is_old = *deleted_at < now - DRAINED_AFTER;
        if is_old && first(tx, IS_BUSY, [id], |row| Ok(row.get(0)?))? == Some(false) {
            execute(tx, DRAINED, (id, now.as_micros()))?;
            drained += 1;
        }
        // The next pass begins with the same ones, unless something was done.
        if bound.is_over() && (left < limit || drained > 0) {
            return Ok(unfinished(limit - left));
        }
    }
    Ok(Done {
        rows: limit - left,
        more: drained >= DRAINED_AT_ONCE,
        ..Done::default()
    })
}

/// Its time is over, and the rest is for the next pass.
fn unfinished(rows: u32) -> Done {
    Done {
        rows,
        more: true,
        ..Done::default()
    }
}

/// What waits and has grown too old.
fn expire_old(tx: &Transaction<'_>, now: Timestamp, bound: &Bound) -> Result<Done, Fault> {
    let mut done = Done::default();
    for id in all(tx, EXPIRING, (now.as_micros(), bound.limit), attempt)? {
        over::expire(tx, now, id)?;
        done.rows += 1;
        if bound.is_over() {
            return Ok(unfinished(done.rows));
        }
    }
    Ok(done)
}

fn attempt(row: &Row<'_>) -> Result<AttemptId, Fault> {
    Ok(AttemptId(row.get(0)?))
}

fn end_permits(tx: &Transaction<'_>, before: Timestamp, bound: &Bound) -> Result<Done, Fault> {
    let row = (before.as_micros(), bound.limit);
    let expired: Vec<(i64, i64, String)> = all(tx, EXPIRED, row, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    let mut done = Done::default();
    for (id, number, destination) in &expired {
        give_back(tx, (*id, *number, destination))?;
        done.free(destination)?;
        if bound.is_over() {
            done.more = true;
            break;
        }
    }
    Ok(done)
}

impl Done {
    /// One row more, of this destination.
    fn free(&mut self, destination: &str) -> Result<(), Fault> {
        self.rows += 1;
        let freed = parse(destination, ("attempts", "destination_id"))?;
        self.freed.push(freed);
        Ok(())
    }
}

/// A start that is given up.
struct GivenUp {
    id: i64,
    started_at: Timestamp,
    to_fold: bool,
    event: EventAt,
    worker_gone: bool,
    start: follow_up::GivenUp,
}

fn give_up(
    tx: &Transaction<'_>,
    now: Timestamp,
    rules: &ReapRules,
    bound: &Bound,
) -> Result<Done, Fault> {
    let claimed_before = (now - rules.start_timeout).as_micros();
    let seen_before = (now - rules.heartbeat_timeout).as_micros();
    let went = (now - rules.start_timeout - rules.heartbeat_timeout - SPARE).as_micros();
    let lapsed = first(tx, LAPSED, (seen_before, went), |_| Ok(()))?.is_some();
    let looked_at = if lapsed { i64::MAX } else { claimed_before };
    let rules = (
        claimed_before,
        seen_before,
        bound.limit,
        DEFAULT_MAX_TRIES,
        looked_at,
        micros(MAX_CLAIM_TO_SEND),
    );
    let given_up = all(tx, GIVEN_UP, rules, |row| {
        Ok(GivenUp {
            id: row.get(0)?,
            started_at: time(row, 1)?,
            to_fold: row.get(2)?,
            event: EventAt {
                event: row.get(4)?,
                destination: row.get(5)?,
                tenant: row.get(6)?,
                tries_before: row.get(9)?,
                expires_at: row.get(10)?,
                payload_bytes: row.get(12)?,
                // What is given up may have been sent: it is the replay's.
                replay: None,
                urgent: false,
            },
            worker_gone: row.get(7)?,
            start: follow_up::GivenUp {
                try_number: row.get(3)?,
                tries_before: row.get(9)?,
                max_tries: row.get(11)?,
                is_batch: row.get(14)?,
                batch_limit: row.get(13)?,
                destination_is_gone: row.get(8)?,
            },
        })
    })?;
    let mut buckets = Buckets::default();
    let mut done = Done::default();
    for start in &given_up {
        let next = after_unknown(&start.start, now);
        let error = match start.worker_gone {
            true => WORKER_IS_GONE,
            false => NO_OUTCOME_IN_TIME,
        };
        over::give_up(tx, start.id, (next.dead_letter, error), MAX_REQUEST_TIMEOUT)?;
        if start.to_fold {
            buckets.add(&start.event.destination, start.started_at);
        }
        if let Some(retry) = &next.retry {
            start.event.add_try(tx, retry, now)?;
        }
        done.free(&start.event.destination)?;
        if bound.is_over() {
            done.more = true;
            break;
        }
    }
    buckets.write(tx)?;
    Ok(done)
}
