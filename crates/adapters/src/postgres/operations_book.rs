//! Operations, for people; see [`engine::ports::OperationsBook`].

use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{DestinationId, NoticeAddressId, TenantId};
use domain::notices::NoticeAddress;
use domain::operations::{OperationalDestination, OperationalEvent};
use domain::time::Timestamp;
use domain::watch::AlertSettings;
use engine::ports::{
    AlertsChange, AlertsView, CatalogError, MAX_OPERATIONAL, NewNoticeAddress, Operations,
    OperationsBook, Registration, RelayedOperations, StoreError, TenantAlertsChange,
    TenantAlertsView, WatchRules, Watched,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::notices;
use super::operations::{self, Row, ToldRow};
use super::rows::{count, integer};
use super::watch::{self, WatchRow};
use crate::row::row;

#[async_trait]
impl Operations for PostgresStore {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        Ok(retried(|| operations::relay(&self.pool, limit)).await?)
    }

    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        Ok(retried(|| watch::step(&self.pool, rules)).await?)
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        Ok(retried(|| operations::trim(&self.pool, kept, limit)).await?)
    }

    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        Ok(retried(|| notices::drop_old(&self.pool, kept, limit)).await?)
    }
}

#[async_trait]
impl OperationsBook for PostgresStore {
    async fn register_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        registration: &Registration,
    ) -> Result<OperationalDestination, CatalogError> {
        let register = || register(&self.pool, tenant, destination, registration);
        Ok(retried(register).await?)
    }

    async fn unregister_operational(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        match retried(|| unregister(&self.pool, tenant, destination)).await? {
            0 => Err(CatalogError::NotFound("operational destination")),
            _ => Ok(()),
        }
    }

    async fn operational_destinations(
        &self,
        tenant: TenantId,
    ) -> Result<Vec<OperationalDestination>, CatalogError> {
        Ok(retried(|| of_tenant(&self.pool, tenant)).await?)
    }

    async fn register_address(
        &self,
        tenant: TenantId,
        new: &NewNoticeAddress,
    ) -> Result<NoticeAddress, CatalogError> {
        Ok(retried(|| notices::register(&self.pool, tenant, new)).await?)
    }

    async fn remove_address(
        &self,
        tenant: TenantId,
        address: NoticeAddressId,
    ) -> Result<(), CatalogError> {
        match retried(|| notices::remove(&self.pool, tenant, address)).await? {
            0 => Err(CatalogError::NotFound("address")),
            _ => Ok(()),
        }
    }

    async fn addresses(&self, tenant: TenantId) -> Result<Vec<NoticeAddress>, CatalogError> {
        Ok(retried(|| notices::of_tenant(&self.pool, tenant)).await?)
    }

    async fn recent_operational_events(
        &self,
        tenant: Option<TenantId>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        Ok(retried(|| recent(&self.pool, tenant, before, limit)).await?)
    }

    async fn alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<AlertsView, CatalogError> {
        Ok(retried(|| alerts(&self.pool, tenant, destination)).await?)
    }

    async fn change_alerts(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &AlertsChange,
    ) -> Result<(), CatalogError> {
        let change = || change_alerts(&self.pool, tenant, destination, change);
        match retried(change).await? {
            0 => Err(CatalogError::NotFound("destination")),
            _ => Ok(()),
        }
    }

    async fn tenant_alerts(&self, tenant: TenantId) -> Result<TenantAlertsView, CatalogError> {
        Ok(retried(|| watch::tenants::alerts(&self.pool, tenant)).await?)
    }

    async fn change_tenant_alerts(
        &self,
        tenant: TenantId,
        change: &TenantAlertsChange,
    ) -> Result<(), CatalogError> {
        match retried(|| watch::tenants::change(&self.pool, tenant, change)).await? {
            0 => Err(CatalogError::NotFound("tenant")),
            _ => Ok(()),
        }
    }
}

/// Locked in the order of what deletes and changes them: a destination before
/// its tenant. Of two registrations at once, one counts the other.
async fn register(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    registration: &Registration,
) -> Result<OperationalDestination, Failure> {
    let mut transaction = pool.begin().await?;
    let found: Option<Uuid> = sqlx::query_scalar(
        "-- register_operational: lock
        select d.id from destinations d
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null
        for share",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(&mut *transaction)
    .await?;
    found.ok_or(Failure::NotFound("destination"))?;
    sqlx::query(
        "-- register_operational: lock_tenant
        select from tenants t where t.id = $1 for no key update",
    )
    .bind(tenant.0)
    .execute(&mut *transaction)
    .await?;
    let others: i64 = sqlx::query_scalar(
        "-- register_operational: others
        select count(*) from operational_destinations o
        where o.tenant_id = $2 and o.destination_id <> $1",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_one(&mut *transaction)
    .await?;
    if count(others) >= MAX_OPERATIONAL {
        return Err(Failure::Invalid(too_many()));
    }
    let types: Vec<&str> = (registration.event_types.iter())
        .map(|one| one.as_str())
        .collect();
    let row: ToldRow = sqlx::query_as(
        "-- register_operational
        insert into operational_destinations as o (destination_id, tenant_id, scope, event_types)
        values ($1, $2, $3, $4)
        on conflict (destination_id) do update
        set scope = excluded.scope, event_types = excluded.event_types
        returning o.position, o.destination_id, o.tenant_id, o.scope, o.event_types",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(registration.scope.as_str())
    .bind(types)
    .fetch_one(&mut *transaction)
    .await?;
    transaction.commit().await?;
    row.into_domain()
}

fn too_many() -> domain::policy::InvalidSettings {
    domain::policy::InvalidSettings {
        field: "id",
        problem: format!("the tenant has {MAX_OPERATIONAL} operational destinations already"),
    }
}

async fn unregister(pool: &PgPool, tenant: TenantId, id: DestinationId) -> Result<u64, Failure> {
    let done = sqlx::query(
        "-- unregister_operational
        delete from operational_destinations o where o.destination_id = $1 and o.tenant_id = $2",
    )
    .bind(id.0)
    .bind(tenant.0)
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}

async fn of_tenant(
    pool: &PgPool,
    tenant: TenantId,
) -> Result<Vec<OperationalDestination>, Failure> {
    let rows: Vec<ToldRow> = sqlx::query_as(
        "-- operational_destinations
        select o.position, o.destination_id, o.tenant_id, o.scope, o.event_types
        from operational_destinations o
        where o.tenant_id = $1
        order by o.position
        limit $2",
    )
    .bind(tenant.0)
    .bind(i64::from(MAX_OPERATIONAL))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(ToldRow::into_domain).collect()
}

async fn recent(
    pool: &PgPool,
    tenant: Option<TenantId>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<OperationalEvent>, Failure> {
    let of_tenant = "-- recent_operational_events
        select o.id, micros(o.created_at) as created_at, o.event_type, o.destination_id,
            o.tenant_id, o.details
        from operational_events o
        where o.tenant_id = $3 and o.id < $1
        order by o.id desc
        limit $2";
    let of_all = "-- recent_operational_events: of_all
        select o.id, micros(o.created_at) as created_at, o.event_type, o.destination_id,
            o.tenant_id, o.details
        from operational_events o
        where o.id < $1
        order by o.id desc
        limit $2";
    let asked = sqlx::query_as(if tenant.is_some() { of_tenant } else { of_all })
        .bind(before.unwrap_or(i64::MAX))
        .bind(i64::from(limit));
    let asked = match tenant {
        Some(tenant) => asked.bind(tenant.0),
        None => asked,
    };
    let rows: Vec<Row> = asked.fetch_all(pool).await?;
    Ok(rows.into_iter().map(OperationalEvent::from).collect())
}

row! {
    struct AlertsRow {
        alert_backlog: Option<i32>,
        alert_under_delivery_seconds: Option<i32>,
        alert_failing_percent: Option<i32>,
        failing_since: Option<i64>,
        ..watch: WatchRow,
    }
}

async fn alerts(pool: &PgPool, tenant: TenantId, id: DestinationId) -> Result<AlertsView, Failure> {
    let found: Option<AlertsRow> = sqlx::query_as(
        "-- alerts
        select d.alert_backlog, d.alert_under_delivery_seconds, d.alert_failing_percent,
            micros(t.failing_since) as failing_since,
            micros(r.backlog_high_since) as backlog_high_since,
            micros(r.short_since) as short_since, micros(r.short_seen_at) as short_seen_at,
            r.short_for, coalesce(r.short_told, false) as short_told,
            coalesce(r.dead_letters, 0) as dead_letters,
            micros(r.dead_letters_told_at) as dead_letters_told_at
        from destinations d
        left join watches r on r.destination_id = d.id
        left join tally_marks t on t.destination_id = d.id
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let found = found.ok_or(Failure::NotFound("destination"))?;
    let number = |set: Option<i32>| set.map(|set| count(i64::from(set)));
    let (backlog, seconds) = (found.alert_backlog, found.alert_under_delivery_seconds);
    Ok(AlertsView {
        settings: AlertSettings::of(
            number(backlog),
            number(seconds),
            number(found.alert_failing_percent),
        ),
        failing_since: found.failing_since.map(Timestamp::from_micros),
        watch: found.watch.watch(id.0)?,
    })
}

async fn change_alerts(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    change: &AlertsChange,
) -> Result<u64, Failure> {
    let set = |number: Option<Option<u32>>| number.flatten().map(integer);
    let done = sqlx::query(
        "-- change_alerts
        update destinations d
        set alert_backlog = case when $3 then $4 else d.alert_backlog end,
            alert_under_delivery_seconds =
                case when $5 then $6 else d.alert_under_delivery_seconds end,
            alert_failing_percent = case when $7 then $8 else d.alert_failing_percent end
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(change.backlog.is_some())
    .bind(set(change.backlog))
    .bind(change.under_delivery_seconds.is_some())
    .bind(set(change.under_delivery_seconds))
    .bind(change.failing_percent.is_some())
    .bind(set(change.failing_percent))
    .execute(pool)
    .await?;
    Ok(done.rows_affected())
}
