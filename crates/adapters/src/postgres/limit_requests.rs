//! Which limits owners ask for, and what operators grant beyond a ceiling.

use async_trait::async_trait;
use domain::ceiling::{Ceiling, decision_details, request_details};
use domain::ids::{DestinationId, TenantId};
use domain::operations::OperationalType;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, DestinationChange, LIMITS_HAVE_CHANGED, LimitRequest, LimitRequestState,
    LimitRequests, Managed, NOT_OPEN, NewLimitRequest, StoreError,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::{Failure, retried};
use super::rows::{integer, word};
use super::{PostgresStore, catalog, holder};

#[async_trait]
impl LimitRequests for PostgresStore {
    async fn request_limits(
        &self,
        tenant: TenantId,
        new: &NewLimitRequest,
    ) -> Result<Uuid, CatalogError> {
        Ok(retried(|| ask(&self.pool, tenant, new)).await?)
    }

    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError> {
        Ok(retried(|| list(&self.pool, tenant, limit)).await?)
    }

    async fn limit_request(&self, id: Uuid) -> Result<LimitRequest, CatalogError> {
        Ok(retried(|| one(&self.pool, id)).await?)
    }

    async fn grant_limits(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &LimitSettings,
    ) -> Result<(), CatalogError> {
        let granting = || async {
            let mut transaction = self.pool.begin().await?;
            grant(&mut transaction, (tenant, destination), settings, None).await?;
            transaction.commit().await?;
            Ok(())
        };
        Ok(retried(granting).await?)
    }

    async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
        reason: &str,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| decide(&self.pool, id, decision, reason)).await?)
    }
}

async fn ask(pool: &PgPool, tenant: TenantId, new: &NewLimitRequest) -> Result<Uuid, Failure> {
    let json = |settings: &LimitSettings| {
        serde_json::to_string(settings)
            .map_err(|error| Failure::Corrupt(StoreError::Unavailable(error.to_string())))
    };
    let (settings, before) = (json(&new.settings)?, json(&new.before)?);
    let asked = sqlx::query(
        "-- request_limits
        with asked as (
            insert into limit_requests as r (
                id, tenant_id, destination_id, settings, note, created_at, limits_before
            )
            select $1, d.tenant_id, d.id, $4, $5, clock_timestamp(), $8 from destinations d
            where d.id = $3 and d.tenant_id = $2 and d.deleted_at is null
            on conflict (destination_id) where state = 'open' do update
            set id = excluded.id, settings = excluded.settings, note = excluded.note,
                limits_before = excluded.limits_before,
                created_at = excluded.created_at
            where (r.settings, r.note, r.limits_before)
                is distinct from (excluded.settings, excluded.note, excluded.limits_before)
            returning r.destination_id, r.tenant_id
        )
        insert into operational_events (event_type, destination_id, tenant_id, details)
        select $6, a.destination_id, a.tenant_id, $7 from asked a",
    )
    .bind(new.id)
    .bind(tenant.0)
    .bind(new.destination.0)
    .bind(settings)
    .bind(&new.note)
    .bind(OperationalType::LimitsRequested.as_str())
    .bind(request_details(new.id, &new.settings, &new.note))
    .bind(before)
    .execute(pool)
    .await?;
    match asked.rows_affected() {
        0 => same(pool, tenant, new).await,
        _ => Ok(new.id),
    }
}

/// The open one that says the same already: a later statement, to which whoever came
/// first has committed it.
async fn same(pool: &PgPool, tenant: TenantId, new: &NewLimitRequest) -> Result<Uuid, Failure> {
    let found = sqlx::query_scalar(
        "-- request_limits: one that is open and says the same
        select r.id from limit_requests r
        where r.destination_id = $1 and r.tenant_id = $2 and r.state = 'open'",
    )
    .bind(new.destination.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    found.ok_or(Failure::NotFound("destination"))
}

type RequestRow = (
    Uuid,
    Uuid,
    Uuid,
    String,
    String,
    String,
    i64,
    String,
    Option<i64>,
);

async fn list(
    pool: &PgPool,
    tenant: Option<TenantId>,
    limit: u32,
) -> Result<Vec<LimitRequest>, Failure> {
    let rows: Vec<RequestRow> = sqlx::query_as(
        "-- limit_requests
        select r.id, r.tenant_id, r.destination_id, r.settings, r.note, r.state,
            micros(r.created_at), r.reason, micros(r.decided_at)
        from limit_requests r
        where $1::uuid is null or r.tenant_id = $1
        order by r.state <> 'open', r.created_at desc, r.id desc limit $2",
    )
    .bind(tenant.map(|tenant| tenant.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(request).collect()
}

async fn one(pool: &PgPool, id: Uuid) -> Result<LimitRequest, Failure> {
    let row: Option<RequestRow> = sqlx::query_as(
        "-- limit_request
        select r.id, r.tenant_id, r.destination_id, r.settings, r.note, r.state,
            micros(r.created_at), r.reason, micros(r.decided_at)
        from limit_requests r where r.id = $1",
    )
    .bind(id)
    .fetch_optional(pool)
    .await?;
    request(row.ok_or(Failure::NotFound("limit request"))?)
}

fn request(
    (id, tenant, destination, settings, note, state, created_at, reason, decided_at): RequestRow,
) -> Result<LimitRequest, Failure> {
    Ok(LimitRequest {
        id,
        tenant: TenantId(tenant),
        destination: DestinationId(destination),
        settings: limits(id, &settings)?,
        note,
        state: word("limit_requests", "state", id, &state)?,
        created_at: Timestamp::from_micros(created_at),
        reason,
        decided_at: decided_at.map(Timestamp::from_micros),
    })
}

/// The destination's row is locked by then, and so is its tier against change.
async fn grant(
    connection: &mut PgConnection,
    (tenant, destination): (TenantId, DestinationId),
    settings: &LimitSettings,
    before: Option<&LimitSettings>,
) -> Result<(), Failure> {
    catalog::lock_tier(connection, tenant).await?;
    holder::check(connection, Managed::by_nobody(tenant, destination)).await?;
    let found = catalog::destination(&mut *connection, tenant, destination).await?;
    let found = found.ok_or(Failure::NotFound("destination"))?;
    if before.is_some_and(|before| *before != found.limits) {
        return Err(Failure::Conflict(LIMITS_HAVE_CHANGED));
    }
    let granted = Ceiling::of_own(settings);
    sqlx::query(
        "-- grant_limits
        update destinations
        set granted_per_second = greatest(granted_per_second, $3),
            granted_at_once = greatest(granted_at_once, $4),
            granted_in_flight = greatest(granted_in_flight, $5)
        where id = $1 and tenant_id = $2 and deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .bind(granted.per_second)
    .bind(granted.at_once.map(integer))
    .bind(granted.max_in_flight.map(integer))
    .execute(&mut *connection)
    .await?;
    let change = DestinationChange {
        limits: Some(*settings),
        ..DestinationChange::default()
    };
    catalog::update(connection, tenant, destination, &change).await
}

async fn decide(
    pool: &PgPool,
    id: Uuid,
    decision: LimitRequestState,
    reason: &str,
) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    let open: Option<(Uuid, Uuid, String, String)> = sqlx::query_as(
        "-- decide_limit_request: is it open
        select r.tenant_id, r.destination_id, r.settings, r.limits_before
        from limit_requests r where r.id = $1 and r.state = 'open' for update",
    )
    .bind(id)
    .fetch_optional(&mut *transaction)
    .await?;
    let (tenant, destination, settings, before) = open.ok_or(Failure::Conflict(NOT_OPEN))?;
    if decision == LimitRequestState::Approved {
        let of = (TenantId(tenant), DestinationId(destination));
        let (settings, before) = (limits(id, &settings)?, limits(id, &before)?);
        grant(&mut transaction, of, &settings, Some(&before)).await?;
    }
    sqlx::query(
        "-- decide_limit_request
        with decided as (
            update limit_requests set state = $2, reason = $3, decided_at = clock_timestamp()
            where id = $1
            returning destination_id, tenant_id
        )
        insert into operational_events (event_type, destination_id, tenant_id, details)
        select $4, d.destination_id, d.tenant_id, $5 from decided d",
    )
    .bind(id)
    .bind(decision.as_str())
    .bind(reason)
    .bind(OperationalType::LimitsDecided.as_str())
    .bind(decision_details(id, decision.as_str(), reason))
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(())
}

fn limits(id: Uuid, settings: &str) -> Result<LimitSettings, Failure> {
    serde_json::from_str(settings).map_err(|error| {
        Failure::Corrupt(StoreError::Corrupt {
            table: "limit_requests",
            column: "settings",
            row: id.to_string(),
            problem: error.to_string(),
        })
    })
}
