//! Health, for people; see [`engine::ports::HealthBook`].

use async_trait::async_trait;
use domain::health::FAILING_PERCENT;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    BreakerChange, CatalogError, HealthBook, HealthView, Managed, OperationalEvent,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::PostgresStore;
use super::catalog::lock_tier;
use super::failure::{Failure, retried};
use super::health::Row;
use super::holder;
use super::rows::{count, integer};
use crate::row::row;

#[async_trait]
impl HealthBook for PostgresStore {
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError> {
        let ids: Vec<_> = destinations.iter().map(|id| id.0).collect();
        Ok(retried(|| read(&self.pool, Some(tenant), &ids)).await?)
    }

    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        there(retried(|| resume(&self.pool, tenant, destination)).await?)
    }

    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError> {
        let change = || change_breaker(&self.pool, tenant, destination, change);
        there(retried(change).await?)
    }

    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        Ok(retried(|| operational_events(&self.pool, after, limit)).await?)
    }
}

fn there(found: bool) -> Result<(), CatalogError> {
    found
        .then_some(())
        .ok_or(CatalogError::NotFound("destination"))
}

/// Of these, whichever tenant's they are.
pub(super) async fn of_all(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<HealthView>, Failure> {
    read(pool, None, ids).await
}

async fn read(
    pool: &PgPool,
    tenant: Option<TenantId>,
    ids: &[Uuid],
) -> Result<Vec<HealthView>, Failure> {
    row! {
        struct Found {
            now: i64,
            alert_failing_percent: Option<i32>,
            ..row: Row,
        }
    }
    let rows: Vec<Found> = sqlx::query_as(
        "-- health
        with clock as materialized (select micros(clock_timestamp()) as now)
        select clock.now, d.alert_failing_percent, d.id, d.tenant_id, d.breaker_failures,
            d.breaker_failing_for_seconds, d.breaker_disable_after_seconds, h.failures,
            micros(h.failing_since) as failing_since,
            micros(h.last_failed_at) as last_failed_at, h.refusals,
            micros(h.held_since) as held_since, micros(h.held_until) as held_until, h.held_for,
            micros(h.opened_at) as opened_at, h.probes, h.disabled_for
        from clock
        cross join unnest($2::uuid[]) with ordinality as n (id, place)
        join destinations d on d.id = any (array[n.id])
        left join health h on h.destination_id = any (array[d.id])
        where ($1::uuid is null or d.tenant_id = $1) and d.deleted_at is null
        order by n.place",
    )
    .bind(tenant.map(|tenant| tenant.0))
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let view = |found: Found| {
        Ok(HealthView {
            destination: found.row.id(),
            now: Timestamp::from_micros(found.now),
            health: found.row.health()?,
            settings: found.row.settings(),
            failing_percent: found
                .alert_failing_percent
                .map_or(FAILING_PERCENT, |set| count(i64::from(set))),
        })
    };
    rows.into_iter().map(view).collect()
}

/// Active, with its health forgotten (by the trigger too, where it was not
/// active), and to be looked at, whatever the last run waited for: the sweep
/// finds it if its wake is lost. Whether it is there.
async fn resume(pool: &PgPool, tenant: TenantId, id: DestinationId) -> Result<bool, Failure> {
    let mut transaction = pool.begin().await?;
    lock_tier(&mut transaction, tenant).await?;
    let paused: Option<bool> = sqlx::query_scalar(
        "-- resume: lock
        select d.state = 'paused' from destinations d
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null
        for no key update",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(&mut *transaction)
    .await?;
    match paused {
        None => return Ok(false),
        // A pause is the manager's, what failures made of it is not.
        Some(true) => holder::check(&mut transaction, Managed::by_nobody(tenant, id)).await?,
        Some(false) => {}
    }
    sqlx::query(
        "-- resume: activate
        update destinations d set state = 'active' where d.id = $1 and d.state <> 'active'",
    )
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "-- resume: forget_health
        delete from health h where h.destination_id = $1",
    )
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "-- resume: look
        update pacing p set next_look_at = null where p.destination_id = $1",
    )
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(true)
}

/// Whether it is there.
async fn change_breaker(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    change: &BreakerChange,
) -> Result<bool, Failure> {
    let changed = sqlx::query(
        "-- change_breaker
        update destinations d
        set breaker_failures = case when $3 then $4 else d.breaker_failures end,
            breaker_failing_for_seconds =
                case when $5 then $6 else d.breaker_failing_for_seconds end,
            breaker_disable_after_seconds =
                case when $7 then $8 else d.breaker_disable_after_seconds end
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(change.failures.is_some())
    .bind(change.failures.flatten().map(integer))
    .bind(change.failing_for_seconds.is_some())
    .bind(change.failing_for_seconds.flatten().map(integer))
    .bind(change.disable_after_seconds.is_some())
    .bind(change.disable_after_seconds.flatten().map(integer))
    .execute(pool)
    .await?;
    Ok(changed.rows_affected() > 0)
}

async fn operational_events(
    pool: &PgPool,
    after: i64,
    limit: u32,
) -> Result<Vec<OperationalEvent>, Failure> {
    let rows: Vec<(i64, i64, String, Option<Uuid>, Uuid, String)> = sqlx::query_as(
        "-- operational_events
        select o.id, micros(o.created_at), o.event_type, o.destination_id, o.tenant_id, o.details
        from operational_events o
        where o.id > $1
        order by o.id
        limit $2",
    )
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let event = |(id, at, event_type, destination, tenant, details)| OperationalEvent {
        id,
        created_at: Timestamp::from_micros(at),
        event_type,
        destination: Option::map(destination, DestinationId),
        tenant: TenantId(tenant),
        details,
    };
    Ok(rows.into_iter().map(event).collect())
}
