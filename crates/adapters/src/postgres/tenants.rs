//! Tenants and tiers.

use async_trait::async_trait;
use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use domain::policy::LimitSettings;
use domain::time::{Timestamp, micros};
use engine::ports::{
    CatalogError, Deletion, EMPTIED_AFTER, EMPTIED_AT_ONCE, NewTenant, TENANT_IS_MANAGED,
    TIER_IN_USE, Tenant, TenantChange, Tenants, Tier, TierChange,
};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::catalog::{first_after, lock_tier, numbers};
use super::failure::{Failure, retried};
use super::rows::{LimitColumns, count, integer};
use crate::row::row;

#[async_trait]
impl Tenants for PostgresStore {
    async fn create_tenant(&self, new: &NewTenant) -> Result<Tenant, CatalogError> {
        match retried(|| create(&self.pool, new)).await? {
            0 => Err(no_such_tier()),
            _ => self.tenant(new.id).await,
        }
    }

    async fn delete_tenant(&self, id: TenantId) -> Result<Tenant, CatalogError> {
        Ok(retried(|| delete(&self.pool, id)).await?)
    }

    async fn tenant(&self, id: TenantId) -> Result<Tenant, CatalogError> {
        let found = retried(|| tenant(&self.pool, id)).await?;
        found.ok_or(CatalogError::NotFound("tenant"))
    }

    async fn tenant_called(&self, id: &ExternalId) -> Result<Tenant, CatalogError> {
        let found = retried(|| called(&self.pool, id)).await?;
        found.ok_or(CatalogError::NotFound("tenant"))
    }

    async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, CatalogError> {
        Ok(retried(|| tenants(&self.pool, after, limit)).await?)
    }

    async fn change_tenant(
        &self,
        id: TenantId,
        change: &TenantChange,
    ) -> Result<Tenant, CatalogError> {
        match retried(|| change_tenant(&self.pool, id, change)).await? {
            Changed::Tenant(tenant) => Ok(tenant),
            Changed::NoTier => Err(no_such_tier()),
        }
    }

    async fn tiers(&self) -> Result<Vec<Tier>, CatalogError> {
        Ok(retried(|| tiers(&self.pool, None)).await?)
    }

    async fn create_tier(&self, new: &Tier) -> Result<Tier, CatalogError> {
        Ok(retried(|| create_tier(&self.pool, new)).await?)
    }

    async fn delete_tier(&self, name: &str) -> Result<(), CatalogError> {
        Ok(retried(|| delete_tier(&self.pool, name)).await?)
    }

    async fn change_tier(&self, name: &str, change: &TierChange) -> Result<Tier, CatalogError> {
        let found = retried(|| change_tier(&self.pool, name, change)).await?;
        found.ok_or(CatalogError::NotFound("tier"))
    }
}

fn no_such_tier() -> CatalogError {
    CatalogError::Invalid {
        field: "tier".to_owned(),
        problem: "there is no such tier".to_owned(),
    }
}

async fn create(pool: &PgPool, new: &NewTenant) -> Result<u64, Failure> {
    let created = sqlx::query(
        "-- create_tenant
        insert into tenants (id, name, tier, max_in_flight, ingest_per_second, external_id)
        select $1, $2, t.name, $4, $5, $6 from tiers t where t.name = $3",
    )
    .bind(new.id.0)
    .bind(&new.name)
    .bind(&new.tier)
    .bind(new.max_in_flight.map(integer))
    .bind(new.ingest_per_second.map(integer))
    .bind(new.external_id.as_ref().map(ExternalId::as_str))
    .execute(pool)
    .await;
    match created {
        Ok(created) => Ok(created.rows_affected()),
        // It has just been deleted.
        Err(error) if is_referred_to(&error) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

row! {
    struct TenantRow {
        id: Uuid,
        external_id: Option<String>,
        name: String,
        tier: String,
        max_in_flight: Option<i32>,
        effective: Option<i32>,
        ingest_per_second: Option<i32>,
        effective_ingest: Option<i32>,
        most_destinations: Option<i32>,
        created_at: i64,
        deleted_at: Option<i64>,
        destinations_left: Option<i64>,
    }
}

impl TenantRow {
    fn tenant(self) -> Tenant {
        let number = |number: Option<i32>| number.map(|number| count(i64::from(number)));
        Tenant {
            id: TenantId(self.id),
            external_id: self.external_id.map(ExternalId::kept),
            name: self.name,
            tier: self.tier,
            max_in_flight: number(self.max_in_flight),
            effective_max_in_flight: number(self.effective),
            ingest_per_second: number(self.ingest_per_second),
            effective_ingest_per_second: number(self.effective_ingest),
            effective_max_destinations: number(self.most_destinations),
            created_at: Timestamp::from_micros(self.created_at),
            deletion: self.deleted_at.map(|since| Deletion {
                since: Timestamp::from_micros(since),
                destinations_left: count(self.destinations_left.unwrap_or_default()),
            }),
        }
    }
}

macro_rules! select {
    ($name:literal, $where:literal) => {
        concat!(
            "-- ",
            $name,
            "
    select n.id, n.external_id, n.name, n.tier, n.max_in_flight,
        coalesce(n.max_in_flight, t.tenant_max_in_flight) as effective,
        n.ingest_per_second,
        coalesce(n.ingest_per_second, t.tenant_ingest_per_second) as effective_ingest,
        most_destinations(t.tenant_max_destinations, n.granted_destinations)
            as most_destinations,
        micros(n.created_at) as created_at, micros(n.deleted_at) as deleted_at,
        case when n.deleted_at is not null then (
            select count(*) from destinations d
            where d.tenant_id = n.id and d.deleted_at is null
        ) + (
            select count(*) from destinations d
            where d.tenant_id = n.id and d.deleted_at is not null and d.drained_at is null
        ) end as destinations_left
    from tenants n join tiers t on t.name = n.tier
    ",
            $where
        )
    };
}

/// Up to `limit` tenants from one id to another, which may be one and the same: so
/// that the plan, which is made once for all, reads no more by the index.
const TENANTS: &str = select!(
    "tenants",
    "where n.id between $1 and $3
    order by n.id limit $2"
);

const CALLED: &str = select!(
    "tenant_called",
    "where n.external_id = $1 and n.deleted_at is null"
);

async fn tenant(executor: impl PgExecutor<'_>, id: TenantId) -> Result<Option<Tenant>, Failure> {
    let row: Option<TenantRow> = sqlx::query_as(TENANTS)
        .bind(id.0)
        .bind(1_i64)
        .bind(id.0)
        .fetch_optional(executor)
        .await?;
    Ok(row.map(TenantRow::tenant))
}

async fn called(pool: &PgPool, id: &ExternalId) -> Result<Option<Tenant>, Failure> {
    let row: Option<TenantRow> = sqlx::query_as(CALLED)
        .bind(id.as_str())
        .fetch_optional(pool)
        .await?;
    Ok(row.map(TenantRow::tenant))
}

async fn tenants(
    pool: &PgPool,
    after: Option<TenantId>,
    limit: u32,
) -> Result<Vec<Tenant>, Failure> {
    let rows: Vec<TenantRow> = sqlx::query_as(TENANTS)
        .bind(first_after(after.map(|after| after.0)))
        .bind(i64::from(limit))
        .bind(Uuid::max())
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(TenantRow::tenant).collect())
}

enum Changed {
    Tenant(Tenant),
    NoTier,
}

async fn change_tenant(
    pool: &PgPool,
    id: TenantId,
    change: &TenantChange,
) -> Result<Changed, Failure> {
    let mut transaction = pool.begin().await?;
    let tier_is_there: bool = sqlx::query_scalar(
        "-- change_tenant: is there such a tier
        select $1::text is null or exists (select from tiers where name = $1)",
    )
    .bind(&change.tier)
    .fetch_one(&mut *transaction)
    .await?;
    if !tier_is_there {
        return Ok(Changed::NoTier);
    }
    let updated = sqlx::query(
        "-- change_tenant
        update tenants
        set name = coalesce($2, name), tier = coalesce($3, tier),
            max_in_flight = case when $4 then $5 else max_in_flight end,
            ingest_per_second = case when $6 then $7 else ingest_per_second end,
            external_id = coalesce($8, external_id)
        where id = $1 and deleted_at is null",
    )
    .bind(id.0)
    .bind(&change.name)
    .bind(&change.tier)
    .bind(change.max_in_flight.is_some())
    .bind(change.max_in_flight.flatten().map(integer))
    .bind(change.ingest_per_second.is_some())
    .bind(change.ingest_per_second.flatten().map(integer))
    .bind(change.external_id.as_ref().map(ExternalId::as_str))
    .execute(&mut *transaction)
    .await;
    match updated {
        Ok(updated) if updated.rows_affected() == 0 => return Err(Failure::NotFound("tenant")),
        Ok(_) => {}
        // It has just been deleted.
        Err(error) if is_referred_to(&error) => return Ok(Changed::NoTier),
        Err(error) => return Err(error.into()),
    }
    let changed = tenant(&mut *transaction, id).await?;
    transaction.commit().await?;
    changed
        .map(Changed::Tenant)
        .ok_or(Failure::NotFound("tenant"))
}

/// Its limit groups: the history after what writes into it.
const FORGET: [&str; 3] = [
    "-- retain: its limit groups\ndelete from limit_groups where tenant_id = $1",
    "-- retain: what they allowed\ndelete from limit_group_history where tenant_id = $1",
    "-- retain: a deleted tenant\ndelete from tenants where id = $1",
];

/// What opens a tenant's doors.
const CLOSE: [&str; 6] = [
    "-- delete_tenant: those who administer it look at their own again
    update sessions set tenant_id = '00000000-0000-0000-0000-000000000001'
    where tenant_id = $1 and may_admin",
    "-- delete_tenant: its sessions and links
    delete from sessions where tenant_id = $1",
    "-- delete_tenant: its keys
    delete from api_keys where tenant_id = $1",
    "-- delete_tenant: what it asked for
    delete from limit_requests where tenant_id = $1",
    "-- delete_tenant: what its people were to be told
    delete from notices where address_id in (
        select id from notice_addresses where tenant_id = $1
    )",
    "-- delete_tenant: its people
    delete from notice_addresses where tenant_id = $1",
];

async fn delete(pool: &PgPool, id: TenantId) -> Result<Tenant, Failure> {
    let mut transaction = pool.begin().await?;
    // Before all else: what is being created for it waits for this, or this for that.
    let found: Option<bool> = sqlx::query_scalar(
        "-- delete_tenant: the tenant, and whether resources manage destinations of it
        select exists (
            select from destination_managers m where m.tenant_id = $1 and m.uid is not null
        )
        from tenants n where n.id = $1 for no key update of n",
    )
    .bind(id.0)
    .fetch_optional(&mut *transaction)
    .await?;
    if found.ok_or(Failure::NotFound("tenant"))? {
        return Err(Failure::Conflict(TENANT_IS_MANAGED));
    }
    sqlx::query(
        "-- delete_tenant
        update tenants set deleted_at = clock_timestamp() where id = $1 and deleted_at is null",
    )
    .bind(id.0)
    .execute(&mut *transaction)
    .await?;
    close(&mut transaction, id.0).await?;
    let deleted = tenant(&mut *transaction, id).await?;
    transaction.commit().await?;
    deleted.ok_or(Failure::NotFound("tenant"))
}

/// A step of what [`Tenants::delete_tenant`] has begun, of the tenant that was deleted
/// first and of which there is something to do; and whether there may be more at once.
///
/// The tenant is not locked against those who change its destinations, who lock these
/// first and then look at the tenant.
pub(super) async fn empty(connection: &mut PgConnection) -> Result<bool, Failure> {
    let first: Option<Uuid> = sqlx::query_scalar(
        "-- reap: the tenant that was deleted first and of which there is something to do
        select n.id from tenants n
        where n.deleted_at is not null and n.emptied_at is null
            and (
                n.deleted_at <= clock_timestamp() - $1::bigint * interval '1 microsecond'
                or exists (
                    select from destinations d
                    where d.tenant_id = n.id and d.deleted_at is null
                )
            )
        order by n.deleted_at, n.id limit 1",
    )
    .bind(micros(EMPTIED_AFTER))
    .fetch_optional(&mut *connection)
    .await?;
    let Some(tenant) = first else {
        return Ok(false);
    };
    let emptied = sqlx::query(
        "-- reap: it has no destination any more
        update tenants n set emptied_at = clock_timestamp()
        where n.id = $1 and n.emptied_at is null and not exists (
            select from destinations d where d.tenant_id = n.id and d.deleted_at is null
        )",
    )
    .bind(tenant)
    .execute(&mut *connection)
    .await?;
    if emptied.rows_affected() > 0 {
        forget(connection, &[tenant]).await?;
        return Ok(true);
    }
    lock_tier(&mut *connection, TenantId(tenant)).await?;
    sqlx::query(
        "-- reap: some of its destinations
        update destinations d set deleted_at = clock_timestamp()
        where d.deleted_at is null and d.id in (
            select o.id from destinations o
            where o.tenant_id = $1 and o.deleted_at is null
            order by o.id limit $2
        )",
    )
    .bind(tenant)
    .bind(i64::from(EMPTIED_AT_ONCE))
    .execute(&mut *connection)
    .await?;
    Ok(true)
}

/// Forgets deleted tenants with the last of their destinations.
pub(super) async fn forget(connection: &mut PgConnection, tenants: &[Uuid]) -> Result<(), Failure> {
    let over: Vec<Uuid> = sqlx::query_scalar(
        "-- retain: deleted tenants that have no destination any more
        select n.id from tenants n
        where n.id = any ($1) and n.emptied_at is not null
            and not exists (
                select from destinations d where d.tenant_id = n.id and d.deleted_at is null
            )
            and not exists (
                select from destinations d where d.tenant_id = n.id and d.deleted_at is not null
            )",
    )
    .bind(tenants)
    .fetch_all(&mut *connection)
    .await?;
    for tenant in over {
        // Somebody may have looked at it since.
        close(&mut *connection, tenant).await?;
        for sql in FORGET {
            let deleting = sqlx::query(sql).bind(tenant);
            deleting.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Ends what opens a tenant's doors.
async fn close(connection: &mut PgConnection, tenant: Uuid) -> Result<(), Failure> {
    for sql in CLOSE {
        sqlx::query(sql)
            .bind(tenant)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

row! {
    struct TierRow {
        name: String,
        numbers: Vec<Option<i32>>,
        unlimited: bool,
        shape: Option<String>,
        tenant_max_in_flight: Option<i32>,
        tenant_ingest_per_second: Option<i32>,
        tenant_max_destinations: Option<i32>,
        ceiling_per_second: Option<f64>,
        ceiling_at_once: Option<i32>,
        ceiling_in_flight: Option<i32>,
        ceiling_batch_events: Option<i32>,
        ceiling_batch_bytes: Option<i32>,
        ceiling_age_seconds: Option<i32>,
    }
}

impl TierRow {
    fn tier(self) -> Result<Tier, Failure> {
        let columns = LimitColumns {
            table: "tiers",
            row: &self.name,
            numbers: &self.numbers,
            unlimited: self.unlimited,
            shape: self.shape.as_deref(),
            safety_margin: None,
            margin_cap: None,
            count: None,
        };
        let number = |number: Option<i32>| number.map(|number| count(i64::from(number)));
        Ok(Tier {
            limits: columns.settings()?,
            tenant_max_in_flight: number(self.tenant_max_in_flight),
            tenant_ingest_per_second: number(self.tenant_ingest_per_second),
            tenant_max_destinations: number(self.tenant_max_destinations),
            ceiling: Ceiling {
                per_second: self.ceiling_per_second,
                at_once: number(self.ceiling_at_once),
                max_in_flight: number(self.ceiling_in_flight),
                batch_events: number(self.ceiling_batch_events),
                batch_bytes: number(self.ceiling_batch_bytes),
                age_seconds: number(self.ceiling_age_seconds),
            },
            name: self.name,
        })
    }
}

async fn tiers(executor: impl PgExecutor<'_>, name: Option<&str>) -> Result<Vec<Tier>, Failure> {
    let rows: Vec<TierRow> = sqlx::query_as(
        "-- tiers
        select name,
            array[
                limit_per_second, limit_per_minute, limit_per_hour, limit_per_day,
                burst, max_in_flight
            ] as numbers,
            unlimited, shape, tenant_max_in_flight, tenant_ingest_per_second,
            tenant_max_destinations, ceiling_per_second, ceiling_at_once, ceiling_in_flight,
            ceiling_batch_events, ceiling_batch_bytes, ceiling_age_seconds
        from tiers where $1::text is null or name = $1 order by name",
    )
    .bind(name)
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(TierRow::tier).collect()
}

async fn create_tier(pool: &PgPool, new: &Tier) -> Result<Tier, Failure> {
    let numbers = numbers(&new.limits);
    let created = sqlx::query(
        "-- create_tier
        insert into tiers (
            name, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day,
            burst, max_in_flight, unlimited, shape, tenant_max_in_flight,
            tenant_ingest_per_second, tenant_max_destinations, ceiling_per_second,
            ceiling_at_once, ceiling_in_flight, ceiling_batch_events, ceiling_batch_bytes,
            ceiling_age_seconds
        )
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
        on conflict (name) do nothing",
    )
    .bind(&new.name)
    .bind(numbers[0])
    .bind(numbers[1])
    .bind(numbers[2])
    .bind(numbers[3])
    .bind(numbers[4])
    .bind(numbers[5])
    .bind(new.limits.unlimited)
    .bind(new.limits.shape.map(|shape| shape.as_str()))
    .bind(new.tenant_max_in_flight.map(integer))
    .bind(new.tenant_ingest_per_second.map(integer))
    .bind(new.tenant_max_destinations.map(integer))
    .bind(new.ceiling.per_second)
    .bind(new.ceiling.at_once.map(integer))
    .bind(new.ceiling.max_in_flight.map(integer))
    .bind(new.ceiling.batch_events.map(integer))
    .bind(new.ceiling.batch_bytes.map(integer))
    .bind(new.ceiling.age_seconds.map(integer))
    .execute(pool)
    .await?;
    match created.rows_affected() {
        0 => Err(Failure::Refused(CatalogError::Invalid {
            field: "name".to_owned(),
            problem: "is there already".to_owned(),
        })),
        _ => Ok(new.clone()),
    }
}

/// A tenant that gets it meanwhile is kept from a tier that is gone by its foreign key,
/// or keeps it from going.
async fn delete_tier(pool: &PgPool, name: &str) -> Result<(), Failure> {
    let deleted = sqlx::query("-- delete_tier\ndelete from tiers where name = $1")
        .bind(name)
        .execute(pool)
        .await;
    match deleted {
        Ok(deleted) if deleted.rows_affected() == 0 => Err(Failure::NotFound("tier")),
        Ok(_) => Ok(()),
        Err(error) if is_referred_to(&error) => Err(Failure::Conflict(TIER_IN_USE)),
        Err(error) => Err(error.into()),
    }
}

fn is_referred_to(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error.is_some_and(|error| error.code().as_deref() == Some("23503"))
}

async fn change_tier(
    pool: &PgPool,
    name: &str,
    change: &TierChange,
) -> Result<Option<Tier>, Failure> {
    let limits: LimitSettings = change.limits.unwrap_or_default();
    let ceiling = change.ceiling.unwrap_or_default();
    let numbers = numbers(&limits);
    let mut transaction = pool.begin().await?;
    sqlx::query(
        "-- change_tier
        update tiers
        set limit_per_second = case when $2 then $3 else limit_per_second end,
            limit_per_minute = case when $2 then $4 else limit_per_minute end,
            limit_per_hour = case when $2 then $5 else limit_per_hour end,
            limit_per_day = case when $2 then $6 else limit_per_day end,
            burst = case when $2 then $7 else burst end,
            max_in_flight = case when $2 then $8 else max_in_flight end,
            unlimited = case when $2 then $9 else unlimited end,
            shape = case when $2 then $10 else shape end,
            tenant_max_in_flight = case when $11 then $12 else tenant_max_in_flight end,
            tenant_ingest_per_second =
                case when $13 then $14 else tenant_ingest_per_second end,
            tenant_max_destinations = case when $15 then $16 else tenant_max_destinations end,
            ceiling_per_second = case when $17 then $18 else ceiling_per_second end,
            ceiling_at_once = case when $17 then $19 else ceiling_at_once end,
            ceiling_in_flight = case when $17 then $20 else ceiling_in_flight end,
            ceiling_batch_events = case when $17 then $21 else ceiling_batch_events end,
            ceiling_batch_bytes = case when $17 then $22 else ceiling_batch_bytes end,
            ceiling_age_seconds = case when $17 then $23 else ceiling_age_seconds end
        where name = $1",
    )
    .bind(name)
    .bind(change.limits.is_some())
    .bind(numbers[0])
    .bind(numbers[1])
    .bind(numbers[2])
    .bind(numbers[3])
    .bind(numbers[4])
    .bind(numbers[5])
    .bind(limits.unlimited)
    .bind(limits.shape.map(|shape| shape.as_str()))
    .bind(change.tenant_max_in_flight.is_some())
    .bind(change.tenant_max_in_flight.flatten().map(integer))
    .bind(change.tenant_ingest_per_second.is_some())
    .bind(change.tenant_ingest_per_second.flatten().map(integer))
    .bind(change.tenant_max_destinations.is_some())
    .bind(change.tenant_max_destinations.flatten().map(integer))
    .bind(change.ceiling.is_some())
    .bind(ceiling.per_second)
    .bind(ceiling.at_once.map(integer))
    .bind(ceiling.max_in_flight.map(integer))
    .bind(ceiling.batch_events.map(integer))
    .bind(ceiling.batch_bytes.map(integer))
    .bind(ceiling.age_seconds.map(integer))
    .execute(&mut *transaction)
    .await?;
    let changed = tiers(&mut *transaction, Some(name)).await?;
    transaction.commit().await?;
    Ok(changed.into_iter().next())
}
