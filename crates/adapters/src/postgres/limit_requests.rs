//! What owners ask for, and what operators grant beyond a ceiling.

use async_trait::async_trait;
use domain::ceiling::{
    Ceiling, LargerBatches, decision_details, destinations_details, request_details,
};
use domain::ids::{DestinationId, TenantId};
use domain::operations::OperationalType;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, DestinationChange, LIMITS_HAVE_CHANGED, LimitRequest, LimitRequestPosition,
    LimitRequestState, LimitRequests, Managed, NOT_OPEN, NewDestinationsRequest, NewLimitRequest,
    OtherLimits, StoreError, Wanted,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::{Failure, retried};
use super::rows::{count, integer, time, word};
use super::{PostgresStore, catalog, holder};
use crate::row::row;

#[async_trait]
impl LimitRequests for PostgresStore {
    async fn request_limits(
        &self,
        tenant: TenantId,
        new: &NewLimitRequest,
    ) -> Result<Uuid, CatalogError> {
        Ok(retried(|| ask(&self.pool, tenant, new)).await?)
    }

    async fn request_destinations(
        &self,
        tenant: TenantId,
        new: &NewDestinationsRequest,
    ) -> Result<Uuid, CatalogError> {
        Ok(retried(|| ask_for_destinations(&self.pool, tenant, new)).await?)
    }

    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        before: Option<LimitRequestPosition>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError> {
        Ok(retried(|| list(&self.pool, tenant, before, limit)).await?)
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

row! {
    /// What is asked for of a destination once a new request is beside what was open.
    struct AskedRow {
        settings: Option<String>,
        limits_before: Option<String>,
        batch_events: Option<i32>,
        batch_bytes: Option<i32>,
    }
}

impl AskedRow {
    fn limits(&self, id: Uuid) -> Result<Option<OtherLimits>, Failure> {
        let Some(settings) = &self.settings else {
            return Ok(None);
        };
        let before = self.limits_before.as_deref().unwrap_or_default();
        Ok(Some(OtherLimits {
            before: limits(id, "limits_before", before)?,
            settings: limits(id, "settings", settings)?,
        }))
    }

    fn batches(&self) -> LargerBatches {
        LargerBatches {
            events: self.batch_events.map(number),
            bytes: self.batch_bytes.map(number),
        }
    }
}

fn number(stored: i32) -> u32 {
    count(stored.into())
}

fn limits(id: Uuid, column: &'static str, text: &str) -> Result<LimitSettings, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::Corrupt(StoreError::Corrupt {
            table: "limit_requests",
            column,
            row: id.to_string(),
            problem: error.to_string(),
        })
    })
}

fn json(settings: &LimitSettings) -> Result<String, Failure> {
    serde_json::to_string(settings)
        .map_err(|error| Failure::Corrupt(StoreError::Unavailable(error.to_string())))
}

async fn ask(pool: &PgPool, tenant: TenantId, new: &NewLimitRequest) -> Result<Uuid, Failure> {
    let limits = new.limits.as_ref();
    let settings = limits.map(|limits| json(&limits.settings)).transpose()?;
    let before = limits.map(|limits| json(&limits.before)).transpose()?;
    let mut transaction = pool.begin().await?;
    let asked: Option<AskedRow> = sqlx::query_as(
        "-- request_limits
        insert into limit_requests as r (
            id, tenant_id, destination_id, settings, note, created_at, limits_before,
            batch_events, batch_bytes
        )
        select $1, d.tenant_id, d.id, $4, $5, clock_timestamp(), $6, $7, $8
        from destinations d
        where d.id = $3 and d.tenant_id = $2 and d.deleted_at is null
        on conflict (destination_id) where state = 'open' do update
        set id = excluded.id, note = excluded.note, created_at = excluded.created_at,
            settings = coalesce(excluded.settings, r.settings),
            limits_before = coalesce(excluded.limits_before, r.limits_before),
            batch_events = case when coalesce(excluded.batch_events, excluded.batch_bytes) is null
                then r.batch_events else excluded.batch_events end,
            batch_bytes = case when coalesce(excluded.batch_events, excluded.batch_bytes) is null
                then r.batch_bytes else excluded.batch_bytes end
        where r.note <> excluded.note
            or (r.settings, r.limits_before) is distinct from (
                coalesce(excluded.settings, r.settings),
                coalesce(excluded.limits_before, r.limits_before)
            )
            or coalesce(excluded.batch_events, excluded.batch_bytes) is not null
            and (r.batch_events, r.batch_bytes)
                is distinct from (excluded.batch_events, excluded.batch_bytes)
        returning r.settings, r.limits_before, r.batch_events, r.batch_bytes",
    )
    .bind(new.id)
    .bind(tenant.0)
    .bind(new.destination.0)
    .bind(settings)
    .bind(&new.note)
    .bind(before)
    .bind(new.batches.events.map(integer))
    .bind(new.batches.bytes.map(integer))
    .fetch_optional(&mut *transaction)
    .await?;
    let Some(asked) = asked else {
        return same(&mut transaction, tenant, Some(new.destination)).await;
    };
    let limits = asked.limits(new.id)?;
    let settings = limits.as_ref().map(|limits| &limits.settings);
    let details = request_details(new.id, settings, asked.batches(), &new.note);
    sqlx::query(
        "-- request_limits: who has to know
        insert into operational_events (event_type, destination_id, tenant_id, details)
        values ($1, $2, $3, $4)",
    )
    .bind(OperationalType::LimitsRequested.as_str())
    .bind(new.destination.0)
    .bind(tenant.0)
    .bind(details)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    Ok(new.id)
}

async fn ask_for_destinations(
    pool: &PgPool,
    tenant: TenantId,
    new: &NewDestinationsRequest,
) -> Result<Uuid, Failure> {
    let mut transaction = pool.begin().await?;
    let asked = sqlx::query(
        "-- request_destinations
        with asked as (
            insert into limit_requests as r (id, tenant_id, destinations, note, created_at)
            select $1, n.id, $3, $4, clock_timestamp() from tenants n
            where n.id = $2 and n.deleted_at is null
            on conflict (tenant_id) where state = 'open' and destination_id is null do update
            set id = excluded.id, destinations = excluded.destinations, note = excluded.note,
                created_at = excluded.created_at
            where (r.destinations, r.note)
                is distinct from (excluded.destinations, excluded.note)
            returning r.tenant_id
        )
        insert into operational_events (event_type, tenant_id, details)
        select $5, a.tenant_id, $6 from asked a",
    )
    .bind(new.id)
    .bind(tenant.0)
    .bind(integer(new.destinations))
    .bind(&new.note)
    .bind(OperationalType::LimitsRequested.as_str())
    .bind(destinations_details(new.id, new.destinations, &new.note))
    .execute(&mut *transaction)
    .await?;
    if asked.rows_affected() == 0 {
        return same(&mut transaction, tenant, None).await;
    }
    transaction.commit().await?;
    Ok(new.id)
}

/// The open one that says the same already: a later statement, to which whoever came
/// first has committed it. The one before has locked and compared it, so that in its
/// transaction nobody puts another in its place.
async fn same(
    connection: &mut PgConnection,
    tenant: TenantId,
    destination: Option<DestinationId>,
) -> Result<Uuid, Failure> {
    let found = sqlx::query_scalar(
        "-- request_limits: one that is open and says the same
        select r.id from limit_requests r
        where r.destination_id is not distinct from $1 and r.tenant_id = $2
            and r.state = 'open'",
    )
    .bind(destination.map(|destination| destination.0))
    .bind(tenant.0)
    .fetch_optional(connection)
    .await?;
    found.ok_or(Failure::NotFound(match destination {
        Some(_) => "destination",
        None => "tenant",
    }))
}

const COLUMNS: &str = "r.id, r.tenant_id, r.destination_id, r.settings, r.limits_before,
            r.batch_events, r.batch_bytes, r.destinations, r.note, r.state,
            micros(r.created_at) as created_at, r.reason, micros(r.decided_at) as decided_at";

row! {
    struct RequestRow {
        id: Uuid,
        tenant_id: Uuid,
        destination_id: Option<Uuid>,
        destinations: Option<i32>,
        note: String,
        state: String,
        created_at: i64,
        reason: String,
        decided_at: Option<i64>,
        ..asked: AskedRow,
    }
}

impl RequestRow {
    fn request(self) -> Result<LimitRequest, Failure> {
        Ok(LimitRequest {
            id: self.id,
            tenant: TenantId(self.tenant_id),
            wanted: self.wanted()?,
            state: word("limit_requests", "state", self.id, &self.state)?,
            created_at: Timestamp::from_micros(self.created_at),
            decided_at: time(self.decided_at),
            note: self.note,
            reason: self.reason,
        })
    }

    /// For a destination or for a number of them, as the table's check says.
    fn wanted(&self) -> Result<Wanted, Failure> {
        let Some(destination) = self.destination_id else {
            let destinations = self.destinations.map(number).unwrap_or_default();
            return Ok(Wanted::Destinations(destinations));
        };
        Ok(Wanted::Limits {
            destination: DestinationId(destination),
            limits: self.asked.limits(self.id)?,
            batches: self.asked.batches(),
        })
    }
}

async fn list(
    pool: &PgPool,
    tenant: Option<TenantId>,
    before: Option<LimitRequestPosition>,
    limit: u32,
) -> Result<Vec<LimitRequest>, Failure> {
    let before = before.unwrap_or(LimitRequestPosition::FIRST);
    // A plan serves whatever is bound: each of the two goes along an index of its own, from
    // where the page before it ended.
    let (of, rank, from) = match tenant {
        Some(_) => ("r.tenant_id = $5 and", "(r.state = 'open')::integer", "$2"),
        None => ("", "(r.state = 'open')", "$2::integer = 1"),
    };
    let sql = format!(
        "-- limit_requests
        select {COLUMNS}
        from limit_requests r
        where {of} ({rank}, r.created_at, r.id) < ({from}, from_micros($3), $4)
        order by {rank} desc, r.created_at desc, r.id desc limit $1"
    );
    let mut query = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(i64::from(limit))
        .bind(i32::from(before.is_open))
        .bind(before.created_at.as_micros())
        .bind(before.id);
    if let Some(tenant) = tenant {
        query = query.bind(tenant.0);
    }
    let rows: Vec<RequestRow> = query.fetch_all(pool).await?;
    rows.into_iter().map(RequestRow::request).collect()
}

async fn one(pool: &PgPool, id: Uuid) -> Result<LimitRequest, Failure> {
    let sql = format!(
        "-- limit_request
        select {COLUMNS}
        from limit_requests r where r.id = $1"
    );
    let row: Option<RequestRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(id)
        .fetch_optional(pool)
        .await?;
    row.ok_or(Failure::NotFound("limit request"))?.request()
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
    raise(connection, (tenant, destination), Ceiling::of_own(settings)).await?;
    let change = DestinationChange {
        limits: Some(*settings),
        ..DestinationChange::default()
    };
    catalog::update(connection, tenant, destination, &change).await
}

/// The destination may have as much from then on, whatever its tier says.
async fn raise(
    connection: &mut PgConnection,
    (tenant, destination): (TenantId, DestinationId),
    granted: Ceiling,
) -> Result<(), Failure> {
    let raised = sqlx::query(
        "-- grant_limits
        update destinations
        set granted_per_second = greatest(granted_per_second, $3),
            granted_at_once = greatest(granted_at_once, $4),
            granted_in_flight = greatest(granted_in_flight, $5),
            granted_batch_events = greatest(granted_batch_events, $6),
            granted_batch_bytes = greatest(granted_batch_bytes, $7)
        where id = $1 and tenant_id = $2 and deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .bind(granted.per_second)
    .bind(granted.at_once.map(integer))
    .bind(granted.max_in_flight.map(integer))
    .bind(granted.batch_events.map(integer))
    .bind(granted.batch_bytes.map(integer))
    .execute(connection)
    .await?;
    match raised.rows_affected() {
        0 => Err(Failure::NotFound("destination")),
        _ => Ok(()),
    }
}

/// The tenant may have so many destinations from then on.
async fn grant_destinations(
    connection: &mut PgConnection,
    tenant: TenantId,
    most: u32,
) -> Result<(), Failure> {
    let granted = sqlx::query(
        "-- decide_limit_request: grant destinations
        update tenants set granted_destinations = greatest(granted_destinations, $2)
        where id = $1 and deleted_at is null",
    )
    .bind(tenant.0)
    .bind(integer(most))
    .execute(connection)
    .await?;
    match granted.rows_affected() {
        0 => Err(Failure::NotFound("tenant")),
        _ => Ok(()),
    }
}

/// Before the request, as whoever deletes the tenant does it. Where a destination is granted
/// something others share the lock: whoever changes that one by SQL has it, and wants this.
const LOCK_TENANT: [&str; 2] = [
    "-- decide_limit_request: lock the tenant, which is granted something
    select from tenants n where n.id = (
        select r.tenant_id from limit_requests r where r.id = $1 and r.destination_id is null
    )
    for no key update",
    "-- decide_limit_request: lock the tenant of a destination
    select from tenants n where n.id = (
        select r.tenant_id from limit_requests r
        where r.id = $1 and r.destination_id is not null
    )
    for share",
];

async fn lock_tenant(connection: &mut PgConnection, request: Uuid) -> Result<(), Failure> {
    for lock in LOCK_TENANT {
        sqlx::query(lock)
            .bind(request)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn decide(
    pool: &PgPool,
    id: Uuid,
    decision: LimitRequestState,
    reason: &str,
) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    lock_tenant(&mut transaction, id).await?;
    let sql = format!(
        "-- decide_limit_request: is it open
        select {COLUMNS}
        from limit_requests r where r.id = $1 and r.state = 'open' for update"
    );
    let open: Option<RequestRow> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(id)
        .fetch_optional(&mut *transaction)
        .await?;
    let open = open.ok_or(Failure::Conflict(NOT_OPEN))?;
    if decision == LimitRequestState::Approved {
        let tenant = TenantId(open.tenant_id);
        match open.wanted()? {
            Wanted::Limits {
                destination,
                limits,
                batches,
            } => {
                let of = (tenant, destination);
                if let Some(OtherLimits { before, settings }) = &limits {
                    grant(&mut transaction, of, settings, Some(before)).await?;
                }
                if !batches.is_empty() {
                    let granted = Ceiling::default().with_batches(batches);
                    raise(&mut transaction, of, granted).await?;
                }
            }
            Wanted::Destinations(most) => {
                grant_destinations(&mut transaction, tenant, most).await?;
            }
        }
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
