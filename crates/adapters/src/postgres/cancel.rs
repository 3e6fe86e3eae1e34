//! Cancelling what has not started, one or a step of a backlog. That a row with a permit
//! goes is what frees its place in the limit.

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{CancelFrom, CancelStep, CancelledOne, CancelledStep, Wake};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::over::moving;
use super::rows::{count, word};
use crate::row::row;

/// One attempt. Waits for a claim in flight, and then finds it started.
pub(super) async fn attempt(
    pool: &PgPool,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<CancelledOne, Failure> {
    let mut transaction = pool.begin().await?;
    let found: Option<(Uuid, String)> = sqlx::query_as(
        "-- cancel_attempt: lock
        select a.destination_id, a.state from deliveries a
        where a.id = $1 and a.tenant_id = $2 and a.state in ('waiting', 'admitted')
        for update",
    )
    .bind(attempt.0)
    .bind(tenant.0)
    .fetch_optional(&mut *transaction)
    .await?;
    let Some((destination, state)) = found else {
        return too_late(&mut transaction, tenant, attempt).await;
    };
    sqlx::query(moving(
        "-- cancel_attempt
        with gone as (delete from deliveries a where a.id = $1 returning a.*)
        insert into ledger ({kept}, state) select {kept}, 'cancelled' from gone",
    ))
    .bind(attempt.0)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    let freed = state == "admitted";
    let wake = freed.then(|| Wake::unblocked(DestinationId(destination)));
    Ok(CancelledOne::Cancelled(wake))
}

/// What became of one that neither waits nor has a permit.
async fn too_late(
    connection: &mut PgConnection,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<CancelledOne, Failure> {
    let state: Option<String> = sqlx::query_scalar(
        "-- cancel_attempt: too_late
        select a.state from attempts a where a.id = $1 and a.tenant_id = $2",
    )
    .bind(attempt.0)
    .bind(tenant.0)
    .fetch_optional(connection)
    .await?;
    let state = state.ok_or(Failure::NotFound("attempt"))?;
    match word("attempts", "state", attempt, &state)? {
        AttemptState::Cancelled => Ok(CancelledOne::Cancelled(None)),
        other => Ok(CancelledOne::TooLate(other)),
    }
}

/// The candidates of each part, in its order; `$2` and `$3` are where the last
/// step stopped.
const FIRST: &str = "
    select a.id, a.event_id, 0::bigint as at from deliveries a
    where a.destination_id = $1 and a.permit is null and a.due_at is null
        and a.id + 0 > $3 and $2::bigint is not null
    order by a.id + 0 limit $4";
const ADMITTED: &str = "
    select a.id, a.event_id, 0::bigint as at from deliveries a
    where a.destination_id = $1 and a.permit is not null and a.carried_by is null
        and a.state = 'admitted' and a.id + 0 > $3 and $2::bigint is not null
    order by a.id + 0 limit $4";
const DUE: &str = "
    select x.id, x.event_id, micros(x.due_at) as at from (
        (
            select a.id, a.event_id, a.due_at from deliveries a
            where a.destination_id = $1 and a.permit is null and a.due_at is not null
                and a.urgent and (a.due_at, a.id) > (from_micros($2), $3)
            order by a.due_at, a.id limit $4
        )
        union all
        (
            select a.id, a.event_id, a.due_at from deliveries a
            where a.destination_id = $1 and a.permit is null and a.due_at is not null
                and not a.urgent and (a.due_at, a.id) > (from_micros($2), $3)
            order by a.due_at, a.id limit $4
        )
    ) x
    order by x.due_at, x.id limit $4";

row! {
    /// What a step met.
    struct Met {
        now: i64,
        examined: i64,
        cancelled: i64,
        last_at: Option<i64>,
        last_id: Option<i64>,
    }
}

/// One step of a backlog.
pub(super) async fn step(
    pool: &PgPool,
    tenant: TenantId,
    step: &CancelStep,
) -> Result<CancelledStep, Failure> {
    require_known(pool, tenant, step.destination).await?;
    let (candidates, at, id) = match step.from {
        CancelFrom::First(id) => (FIRST, 0, id),
        CancelFrom::Admitted(id) => (ADMITTED, 0, id),
        // The earliest time that Postgres and we agree on.
        CancelFrom::Due(at, id) => (DUE, at.as_micros().max(0), id),
    };
    let met: Met = sqlx::query_as(moving(&statement(candidates)))
        .bind(step.destination.0)
        .bind(at)
        .bind(id.0)
        .bind(i64::from(step.limit))
        .bind(step.accepted_before.map(Timestamp::as_micros))
        .bind(step.event_type.as_deref())
        .fetch_one(pool)
        .await?;
    let more = met.examined >= i64::from(step.limit);
    let last = met.last_at.zip(met.last_id).filter(|_| more);
    let freed = matches!(step.from, CancelFrom::Admitted(_)) && met.cancelled > 0;
    Ok(CancelledStep {
        cancelled: count(met.cancelled),
        accepted_before: step
            .accepted_before
            .unwrap_or(Timestamp::from_micros(met.now)),
        next: match last {
            None => step.from.next_part(),
            Some((at, id)) => Some(step.from.at(Timestamp::from_micros(at), AttemptId(id))),
        },
        wakes: (freed.then(|| Wake::unblocked(step.destination)).into_iter()).collect(),
    })
}

/// An error unless the destination is the tenant's, deleted or not.
async fn require_known(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<(), Failure> {
    let known: bool = sqlx::query_scalar(
        "-- cancel_step: known
        select exists (select from destinations d where d.id = $1 and d.tenant_id = $2)",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_one(pool)
    .await?;
    known.then_some(()).ok_or(Failure::NotFound("destination"))
}

/// Cancels what matches among these candidates.
fn statement(candidates: &str) -> String {
    format!(
        "-- cancel_step
        with clock as materialized (select micros(clock_timestamp()) as now),
        candidates as materialized ({candidates}),
        locked as materialized (
            select a.id
            from candidates c
            cross join lateral (
                select e.created_at, e.event_type from events e
                where e.id = c.event_id and e.day = event_day(c.event_id)
                limit 1
            ) e
            join deliveries a on a.id = any (array[c.id])
            where a.state in ('waiting', 'admitted')
                and e.created_at < from_micros(coalesce($5, (select now from clock)))
                and ($6::text is null or e.event_type = $6)
            order by c.id
            for update of a skip locked
        ),
        gone as (
            delete from deliveries a using locked l where a.id = any (array[l.id]) returning a.*
        ),
        cancelled as (
            insert into ledger ({{kept}}, state) select {{kept}}, 'cancelled' from gone
            returning id
        )
        select clock.now, (select count(*) from candidates) as examined,
            (select count(*) from cancelled) as cancelled, last.at as last_at, last.id as last_id
        from clock
        left join (select c.at, c.id from candidates c order by c.at desc, c.id desc limit 1) last
            on true"
    )
}
