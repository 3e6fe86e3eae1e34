//! Replays: dead letters, or events, that become waiting attempts again.
//!
//! A step locks its replays, skipping those that somebody holds, reads what
//! they may move now, and moves it in the same commit: the dead letter is
//! marked as replayed and its attempt is added, or neither. A dead letter whose
//! late outcome is being recorded is waited for and judged again.

mod moves;
mod resent;

use std::collections::HashMap;

use domain::ids::{DestinationId, EventId, ReplayId, TenantId};
use domain::replay::{MAX_RUNNING, Pace, ReplaySource};
use domain::time::Timestamp;
use engine::ports::{
    Advanced, MAX_COUNTED, NewReplay, Replay, ReplayProgress, Wakes, Which, too_many_replays,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::destinations::{Known, read_destinations};
use super::failure::Failure;
use super::limit_group;
use super::rows::{count, time, word};
use crate::row::row;
pub(super) use resent::resendable;

/// A single one is the only one of its destination that died just then.
const CREATE: &str = "-- create_replay
        with clock as materialized (select clock_timestamp() as now),
        wanted as materialized (
            select d.id as destination_id,
                coalesce(one.died, from_micros($6)) as died_from,
                coalesce(
                    one.died + interval '1 microsecond', least(from_micros($7), clock.now)
                ) as died_before
            from clock
            left join (
                select a.destination_id, coalesce(a.finished_at, a.started_at) as died
                from ledger a
                where a.id = $3 and a.tenant_id::text = $2::uuid::text and a.dead_letter
                    and a.replayed_at is null
            ) one on true
            join destinations d on d.id = coalesce(one.destination_id, $4)
            where d.tenant_id = $2 and d.deleted_at is null
        )
        insert into replays (
            id, tenant_id, destination_id, attempt_id, event_type, status, died_from, died_before,
            share, total, created_at
        )
        select $1, $2, w.destination_id, $3, $5, $8, w.died_from, w.died_before, $9,
            (
                select count(*) from (
                    select a.id, a.event_id, a.status from ledger a
                    where a.destination_id = w.destination_id
                        and a.dead_letter and a.replayed_at is null
                        and coalesce(a.finished_at, a.started_at)
                            >= coalesce(w.died_from, from_micros(0))
                        and coalesce(a.finished_at, a.started_at) < w.died_before
                    order by coalesce(a.finished_at, a.started_at), a.id + 0
                    limit $10
                ) a
                cross join lateral (
                    select e.event_type from events e
                    where e.id = a.event_id and e.day = event_day(a.event_id)
                    limit 1
                ) e
                where ($3::bigint is null or a.id = $3)
                    and ($8::integer is null or a.status = $8)
                    and ($5::text is null or e.event_type = $5)
            ),
            clock.now
        from wanted w cross join clock";

/// Begins one; the count and the row are of one snapshot.
pub(super) async fn create(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewReplay,
) -> Result<Replay, Failure> {
    refuse_one_too_many(pool, tenant).await?;
    let (one, destination, filter) = match &new.which {
        Which::One(attempt) => (Some(attempt.0), None, None),
        Which::Matching(destination, filter) => (None, Some(destination.0), Some(filter)),
        Which::Event(to, event) => {
            resent::create(pool, tenant, new, *to, (Some(*event), None)).await?;
            return read(pool, tenant, new.id).await;
        }
        Which::Events(to, which) => {
            resent::create(pool, tenant, new, *to, (None, Some(which))).await?;
            return read(pool, tenant, new.id).await;
        }
    };
    let micros = |at: Option<Timestamp>| at.map(Timestamp::as_micros);
    let created = sqlx::query(CREATE)
        .bind(new.id.0)
        .bind(tenant.0)
        .bind(one)
        .bind(destination)
        .bind(filter.and_then(|filter| filter.event_type.as_deref()))
        .bind(filter.and_then(|filter| micros(filter.died_from)))
        .bind(filter.and_then(|filter| micros(filter.died_before)))
        .bind(filter.and_then(|filter| filter.status.map(i32::from)))
        .bind(new.share)
        .bind(i64::from(MAX_COUNTED))
        .execute(pool)
        .await?;
    match (created.rows_affected(), &new.which) {
        (0, Which::One(_)) => Err(Failure::NotFound("dead letter")),
        (0, _) => Err(Failure::NotFound("destination")),
        _ => read(pool, tenant, new.id).await,
    }
}

async fn refuse_one_too_many(pool: &PgPool, tenant: TenantId) -> Result<(), Failure> {
    let running: i64 = sqlx::query_scalar(
        "-- create_replay: how many run
        select count(*) from (
            select r.id from replays r where r.tenant_id = $1 and r.state = 'running' limit $2
        ) r",
    )
    .bind(tenant.0)
    .bind(i64::from(MAX_RUNNING))
    .fetch_one(pool)
    .await?;
    match running < i64::from(MAX_RUNNING) {
        true => Ok(()),
        false => Err(Failure::Refused(too_many_replays())),
    }
}

row! {
    /// The row of one.
    struct Progress {
        id: Uuid,
        destination_id: Uuid,
        source: String,
        event_id: Option<Uuid>,
        share: f64,
        state: String,
        total: i64,
        done: i64,
        skipped: i64,
        created_at: i64,
        finished_at: Option<i64>,
    }
}

impl Progress {
    fn progress(self) -> Result<ReplayProgress, Failure> {
        let id = ReplayId(self.id);
        Ok(ReplayProgress {
            id,
            destination: DestinationId(self.destination_id),
            source: word("replays", "source", id, &self.source)?,
            event: self.event_id.map(EventId),
            share: self.share,
            state: word("replays", "state", id, &self.state)?,
            total: self.total.unsigned_abs(),
            done: self.done.unsigned_abs(),
            skipped: self.skipped.unsigned_abs(),
            created_at: Timestamp::from_micros(self.created_at),
            finished_at: time(self.finished_at),
        })
    }
}

row! {
    /// And what became of its attempts.
    struct Row {
        pending: i64,
        succeeded: i64,
        failed: i64,
        ..progress: Progress,
    }
}

/// Some of a tenant's, the newest first.
pub(super) async fn page(
    pool: &PgPool,
    tenant: TenantId,
    after: Option<ReplayId>,
    limit: u32,
) -> Result<Vec<ReplayProgress>, Failure> {
    let rows: Vec<Progress> = sqlx::query_as(
        "-- replays
        select r.id, r.destination_id, r.source, r.event_id, r.share, r.state, r.total, r.done,
            r.skipped,
            micros(r.created_at) as created_at, micros(r.finished_at) as finished_at
        from replays r
        where r.tenant_id = $1 and r.id < $2
        order by r.id desc
        limit $3",
    )
    .bind(tenant.0)
    .bind(after.map_or(Uuid::max(), |after| after.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Progress::progress).collect()
}

/// How far one is. What became of its attempts is counted by an index of
/// their own.
pub(super) async fn read(pool: &PgPool, tenant: TenantId, id: ReplayId) -> Result<Replay, Failure> {
    let row: Option<Row> = sqlx::query_as(
        "-- replay
        select r.id, r.destination_id, r.source, r.event_id, r.share, r.state, r.total, r.done,
            r.skipped,
            coalesce(o.pending, 0) as pending, coalesce(o.succeeded, 0) as succeeded,
            coalesce(o.failed, 0) as failed,
            micros(r.created_at) as created_at, micros(r.finished_at) as finished_at
        from replays r
        cross join lateral (
            select
                count(*) filter (where a.state in ('waiting', 'admitted', 'started')) as pending,
                count(*) filter (where a.state = 'succeeded') as succeeded,
                count(*) filter (where a.state in ('failed', 'unknown', 'expired')) as failed
            from attempts a where a.replay_id = r.id
        ) o
        where r.id = $1 and r.tenant_id = $2",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let row = row.ok_or(Failure::NotFound("replay"))?;
    Ok(Replay {
        pending: row.pending.unsigned_abs(),
        succeeded: row.succeeded.unsigned_abs(),
        failed: row.failed.unsigned_abs(),
        progress: row.progress.progress()?,
    })
}

/// Ends one. Waits for a step that is under way.
pub(super) async fn cancel(
    pool: &PgPool,
    tenant: TenantId,
    id: ReplayId,
) -> Result<Replay, Failure> {
    sqlx::query(
        "-- cancel_replay
        update replays r set state = 'cancelled', finished_at = clock_timestamp()
        where r.id = $1 and r.tenant_id = $2 and r.state = 'running'",
    )
    .bind(id.0)
    .bind(tenant.0)
    .execute(pool)
    .await?;
    read(pool, tenant, id).await
}

row! {
    /// A replay under way, locked.
    pub(super) struct Running {
        id: Uuid,
        tenant_id: Uuid,
        destination_id: Uuid,
        source: String,
        event_id: Option<Uuid>,
        attempt_id: Option<i64>,
        event_type: Option<String>,
        event_text: Option<String>,
        status: Option<i32>,
        died_from: Option<i64>,
        died_before: i64,
        share: f64,
        after_at: Option<i64>,
        after_id: Option<i64>,
        after_event: Option<Uuid>,
        paced_at: Option<i64>,
    }
}

/// How far a step came.
#[derive(Clone, Copy)]
pub(super) enum Reached {
    /// No further than the one before.
    Nothing,
    /// The dead letter that died then, and its id.
    DeadLetter(i64, i64),
    /// This event.
    Event(Uuid),
}

/// One step of those that nobody holds.
pub(super) async fn advance(pool: &PgPool, limit: u32) -> Result<Advanced, Failure> {
    let mut transaction = pool.begin().await?;
    let running = lock(&mut transaction, limit).await?;
    if running.is_empty() {
        return Ok(Advanced::default());
    }
    let mut ids: Vec<Uuid> = running.iter().map(|replay| replay.destination_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let Known { now, found, .. } = read_destinations(&mut transaction, &ids).await?;
    let groups = limit_group::limits_of(&mut transaction, found.values()).await?;
    let waiting = waiting(&mut transaction, &running).await?;
    let mut wakes = Wakes::default();
    let mut advanced = Advanced::default();
    for replay in &running {
        let destination = found.get(&DestinationId(replay.destination_id));
        let Some(destination) = destination.filter(|found| !found.deleted) else {
            moves::end(&mut transaction, replay, "cancelled").await?;
            continue;
        };
        let waiting = waiting.get(&replay.id).copied().unwrap_or(0);
        let paced_at = time(replay.paced_at);
        let group = destination.limit_group.clone();
        let pace = Pace {
            policy: &destination.policy,
            group: group.and_then(|name| groups.get(&(destination.tenant, name))),
            share: replay.share,
        };
        let step = pace.step(paced_at, waiting, now);
        let moved = match word("replays", "source", replay.id, &replay.source)? {
            ReplaySource::DeadLetters => {
                let moved = moves::take(&mut transaction, replay, step, now).await?;
                advanced.replayed = advanced.replayed.saturating_add(moved.count);
                moved
            }
            ReplaySource::Events => {
                let moved = resent::take(&mut transaction, replay, step, now).await?;
                advanced.resent = advanced.resent.saturating_add(moved.count);
                moved
            }
        };
        if moved.count > 0 {
            wakes.now(destination.id);
        }
        if !moved.all {
            advanced.running += 1;
        }
    }
    transaction.commit().await?;
    advanced.wakes = wakes.into_vec();
    Ok(advanced)
}

/// The first of each tenant's, then the second of each.
async fn lock(connection: &mut PgConnection, limit: u32) -> Result<Vec<Running>, Failure> {
    Ok(sqlx::query_as(
        "-- advance_replays: lock
        select r.id, r.tenant_id, r.destination_id, r.source, r.event_id, r.attempt_id,
            r.event_type, r.event_text, r.status, micros(r.died_from) as died_from,
            micros(r.died_before) as died_before, r.share,
            micros(r.after_at) as after_at, r.after_id, r.after_event,
            micros(r.paced_at) as paced_at
        from replays r
        join (
            select r.id, row_number() over (
                partition by r.tenant_id order by r.looked_at nulls first, r.id
            ) as turn
            from replays r where r.state = 'running'
        ) t on t.id = r.id
        where r.state = 'running'
        order by t.turn, r.looked_at nulls first, r.id
        limit $1
        for update of r skip locked",
    )
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?)
}

/// How many of each replay's attempts have yet to start: about a second's
/// worth of each at most.
async fn waiting(
    connection: &mut PgConnection,
    running: &[Running],
) -> Result<HashMap<Uuid, u32>, Failure> {
    let ids: Vec<Uuid> = running.iter().map(|replay| replay.id).collect();
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- advance_replays: waiting
        select n.id, (
            select count(*) from deliveries a
            where a.replay_id = n.id and a.state in ('waiting', 'admitted')
        )
        from unnest($1::uuid[]) as n (id)",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(id, n)| (id, count(n))).collect())
}
