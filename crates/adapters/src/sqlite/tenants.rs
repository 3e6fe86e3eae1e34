//! Tenants and tiers.

use async_trait::async_trait;
use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, Deletion, EMPTIED_AFTER, EMPTIED_AT_ONCE, NewTenant, TENANT_IS_MANAGED,
    TIER_IN_USE, Tenant, TenantChange, Tenants, Tier, TierChange,
};
use rusqlite::{Connection, Row, Transaction, params};

use super::SqliteStore;
use super::destinations::dated;
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, tier_settings, time, word};

const INSERT: &str = "
    -- create_tenant
    insert into tenants (id, name, tier, max_in_flight, created_at, ingest_per_second,
        external_id)
    select ?1, ?2, name, ?4, ?5, ?6, ?7 from tiers where name = ?3";

const SELECT: &str = "
    select n.id, n.name, n.tier, n.max_in_flight,
        coalesce(n.max_in_flight, t.tenant_max_in_flight), n.created_at, n.ingest_per_second,
        coalesce(n.ingest_per_second, t.tenant_ingest_per_second), n.external_id, n.deleted_at,
        iif(n.deleted_at is null, null, (
            select count(*) from destinations d
            where d.tenant_id = n.id and d.deleted_at is null
        ) + (
            select count(*) from destinations d
            where d.tenant_id = n.id and d.deleted_at is not null and d.drained_at is null
        )),
        (select m.most from most_destinations m where m.tenant_id = n.id)
    from tenants n join tiers t on t.name = n.tier";

const TIER_IS_THERE: &str = "
    -- change_tenant: is there such a tier
    select 1 from tiers where name = ?1";

const CHANGE: &str = "
    -- change_tenant
    update tenants
    set name = coalesce(?2, name), tier = coalesce(?3, tier),
        max_in_flight = iif(?4, ?5, max_in_flight),
        ingest_per_second = iif(?6, ?7, ingest_per_second),
        external_id = coalesce(?8, external_id)
    where id = ?1 and deleted_at is null";

const IS_MANAGED: &str = "
    -- delete_tenant: do resources manage destinations of it
    select 1 from destination_managers where tenant_id = ?1 and uid is not null limit 1";

const DELETE: &str = "
    -- delete_tenant
    update tenants set deleted_at = ?2 where id = ?1 and deleted_at is null";

/// What opens a tenant's doors.
const CLOSE: [&str; 6] = [
    "
    -- delete_tenant: those who administer it look at their own again
    update sessions set tenant_id = '00000000-0000-0000-0000-000000000001'
    where tenant_id = ?1 and may_admin",
    "-- delete_tenant: its sessions and links\ndelete from sessions where tenant_id = ?1",
    "-- delete_tenant: its keys\ndelete from api_keys where tenant_id = ?1",
    "-- delete_tenant: what it asked for\ndelete from limit_requests where tenant_id = ?1",
    "-- delete_tenant: what its people were to be told
    delete from notices where address_id in (
        select id from notice_addresses where tenant_id = ?1
    )",
    "-- delete_tenant: its people
    delete from notice_addresses where tenant_id = ?1",
];

const TO_EMPTY: &str = "
    -- reap: the tenant that was deleted first and of which there is something to do
    select id from tenants n indexed by tenants_to_empty
    where deleted_at is not null and emptied_at is null
        and (deleted_at <= ?1 or exists (
            select 1 from destinations d where d.tenant_id = n.id and d.deleted_at is null
        ))
    order by deleted_at, id limit 1";

const EMPTY: &str = "
    -- reap: some of its destinations
    update destinations set deleted_at = ?2 where id in (
        select id from destinations indexed by destinations_of_tenant
        where tenant_id = ?1 and deleted_at is null order by id limit ?3
    )";

const EMPTIED: &str = "
    -- reap: it has none any more
    update tenants set emptied_at = ?2 where id = ?1";

/// Its limit groups: the history after what writes into it.
const FORGET: [&str; 3] = [
    "-- retain: its limit groups\ndelete from limit_groups where tenant_id = ?1",
    "-- retain: what they allowed\ndelete from limit_group_history where tenant_id = ?1",
    "-- retain: a deleted tenant\ndelete from tenants where id = ?1",
];

const CAN_BE_FORGOTTEN: &str = "
    -- retain: has a deleted tenant no destination any more
    select 1 from tenants where id = ?1 and emptied_at is not null
        and not exists (select 1 from destinations d where d.tenant_id = ?1 and d.deleted_at is null)
        and not exists (
            select 1 from destinations d where d.tenant_id = ?1 and d.deleted_at is not null
        )";

const TIERS: &str = "
    -- tiers
    select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst,
        shape, max_in_flight, name, tenant_max_in_flight, tenant_ingest_per_second,
        tenant_max_destinations, ceiling_per_second, ceiling_at_once, ceiling_in_flight,
        ceiling_batch_events, ceiling_batch_bytes, ceiling_age_seconds
    from tiers where ?1 is null or name = ?1 order by name";

const CREATE_TIER: &str = "
    -- create_tier
    insert into tiers (name, limit_per_second, limit_per_minute, limit_per_hour, limit_per_day,
        unlimited, burst, shape, max_in_flight, tenant_max_in_flight, tenant_ingest_per_second,
        tenant_max_destinations, ceiling_per_second, ceiling_at_once, ceiling_in_flight,
        ceiling_batch_events, ceiling_batch_bytes, ceiling_age_seconds)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)";

const TIER_HAS_TENANTS: &str = "
    -- delete_tier: has it tenants
    select 1 from tenants indexed by tenants_of_tier where tier = ?1 limit 1";

const DELETE_TIER: &str = "
    -- delete_tier
    delete from tiers where name = ?1";

/// One statement, so that the trigger sees one change.
const CHANGE_TIER: &str = "
    -- change_tier
    update tiers
    set limit_per_second = iif(?2, ?3, limit_per_second),
        limit_per_minute = iif(?2, ?4, limit_per_minute),
        limit_per_hour = iif(?2, ?5, limit_per_hour),
        limit_per_day = iif(?2, ?6, limit_per_day),
        unlimited = iif(?2, ?7, unlimited),
        burst = iif(?2, ?8, burst),
        shape = iif(?2, ?9, shape),
        max_in_flight = iif(?2, ?10, max_in_flight),
        tenant_max_in_flight = iif(?11, ?12, tenant_max_in_flight),
        tenant_ingest_per_second = iif(?13, ?14, tenant_ingest_per_second),
        tenant_max_destinations = iif(?15, ?16, tenant_max_destinations),
        ceiling_per_second = iif(?17, ?18, ceiling_per_second),
        ceiling_at_once = iif(?17, ?19, ceiling_at_once),
        ceiling_in_flight = iif(?17, ?20, ceiling_in_flight),
        ceiling_batch_events = iif(?17, ?21, ceiling_batch_events),
        ceiling_batch_bytes = iif(?17, ?22, ceiling_batch_bytes),
        ceiling_age_seconds = iif(?17, ?23, ceiling_age_seconds)
    where name = ?1";

#[async_trait]
impl Tenants for SqliteStore {
    async fn create_tenant(&self, new: &NewTenant) -> Result<Tenant, CatalogError> {
        let new = new.clone();
        Ok(self.write(move |tx, now| create(tx, now, &new)).await?)
    }

    async fn delete_tenant(&self, id: TenantId) -> Result<Tenant, CatalogError> {
        Ok(self.write(move |tx, now| delete(tx, now, id)).await?)
    }

    async fn tenant(&self, id: TenantId) -> Result<Tenant, CatalogError> {
        Ok(self.read(move |tx| read(tx, id)).await?)
    }

    async fn tenant_called(&self, id: &ExternalId) -> Result<Tenant, CatalogError> {
        let id = id.clone();
        let called = move |tx: &Transaction<'_>| {
            let sql = format!("{SELECT} where n.external_id = ?1 and n.deleted_at is null");
            let found = first(tx, &sql, [id.as_str()], tenant)?;
            found.ok_or_else(|| CatalogError::NotFound("tenant").into())
        };
        Ok(self.read(called).await?)
    }

    async fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<Tenant>, CatalogError> {
        let page = move |tx: &Transaction<'_>| {
            let sql = format!("{SELECT} where n.id > ?1 order by n.id limit ?2");
            let after = after.map(|after| after.to_string()).unwrap_or_default();
            all(tx, &sql, (after, limit), tenant)
        };
        Ok(self.read(page).await?)
    }

    async fn change_tenant(
        &self,
        id: TenantId,
        change: &TenantChange,
    ) -> Result<Tenant, CatalogError> {
        let change = change.clone();
        Ok(self
            .write(move |tx, now| change_tenant(tx, now, id, &change))
            .await?)
    }

    async fn tiers(&self) -> Result<Vec<Tier>, CatalogError> {
        Ok(self
            .read(|tx| all(tx, TIERS, [None::<String>], tier))
            .await?)
    }

    async fn create_tier(&self, new: &Tier) -> Result<Tier, CatalogError> {
        let new = new.clone();
        Ok(self.write(move |tx, _| create_tier(tx, &new)).await?)
    }

    async fn delete_tier(&self, name: &str) -> Result<(), CatalogError> {
        let name = name.to_owned();
        Ok(self.write(move |tx, _| delete_tier(tx, &name)).await?)
    }

    async fn change_tier(&self, name: &str, change: &TierChange) -> Result<Tier, CatalogError> {
        let (name, change) = (name.to_owned(), change.clone());
        Ok(self
            .write(move |tx, now| change_tier(tx, now, &name, &change))
            .await?)
    }
}

fn create(tx: &Transaction<'_>, now: Timestamp, new: &NewTenant) -> Result<Tenant, Fault> {
    let row = (
        new.id.to_string(),
        &new.name,
        &new.tier,
        new.max_in_flight,
        now.as_micros(),
        new.ingest_per_second,
        new.external_id.as_ref().map(ExternalId::as_str),
    );
    match execute(tx, INSERT, row)? {
        0 => Err(no_such_tier()),
        _ => read(tx, new.id),
    }
}

fn delete(tx: &Transaction<'_>, now: Timestamp, id: TenantId) -> Result<Tenant, Fault> {
    let key = id.to_string();
    if first(tx, IS_MANAGED, [&key], |_| Ok(()))?.is_some() {
        return Err(CatalogError::Conflict(TENANT_IS_MANAGED.to_owned()).into());
    }
    execute(tx, DELETE, (&key, now.as_micros()))?;
    let deleted = read(tx, id)?;
    for sql in CLOSE {
        execute(tx, sql, [&key])?;
    }
    Ok(deleted)
}

/// A step of what [`Tenants::delete_tenant`] has begun, of the tenant that was deleted
/// first; and whether there may be more to do at once.
pub(super) fn empty(tx: &Transaction<'_>, now: Timestamp) -> Result<bool, Fault> {
    let old = (now - EMPTIED_AFTER).as_micros();
    let Some(tenant) = first(tx, TO_EMPTY, [old], |row| Ok(row.get::<_, String>(0)?))? else {
        return Ok(false);
    };
    let mut deleted = 0;
    dated(tx, now, || {
        deleted = execute(tx, EMPTY, (&tenant, now.as_micros(), EMPTIED_AT_ONCE))?;
        Ok(deleted)
    })?;
    if deleted == 0 {
        execute(tx, EMPTIED, (&tenant, now.as_micros()))?;
        forget(tx, &tenant)?;
    }
    Ok(true)
}

/// Forgets a deleted tenant with the last of its destinations.
pub(super) fn forget(tx: &Transaction<'_>, tenant: &str) -> Result<(), Fault> {
    if first(tx, CAN_BE_FORGOTTEN, [tenant], |_| Ok(()))?.is_none() {
        return Ok(());
    }
    // Somebody may have looked at it since.
    for sql in CLOSE.into_iter().chain(FORGET) {
        execute(tx, sql, [tenant])?;
    }
    Ok(())
}

fn read(connection: &Connection, id: TenantId) -> Result<Tenant, Fault> {
    let sql = format!("{SELECT} where n.id = ?1");
    let found = first(connection, &sql, [id.to_string()], tenant)?;
    found.ok_or_else(|| CatalogError::NotFound("tenant").into())
}

fn change_tenant(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: TenantId,
    change: &TenantChange,
) -> Result<Tenant, Fault> {
    if let Some(tier) = &change.tier
        && first(tx, TIER_IS_THERE, [tier], |_| Ok(()))?.is_none()
    {
        return Err(no_such_tier());
    }
    dated(tx, now, || {
        let row = params![
            id.to_string(),
            change.name,
            change.tier,
            change.max_in_flight.is_some(),
            change.max_in_flight.flatten(),
            change.ingest_per_second.is_some(),
            change.ingest_per_second.flatten(),
            change.external_id.as_ref().map(ExternalId::as_str),
        ];
        execute(tx, CHANGE, row)
    })
    .and_then(|changed| match changed {
        0 => Err(CatalogError::NotFound("tenant").into()),
        _ => read(tx, id),
    })
}

fn create_tier(tx: &Transaction<'_>, new: &Tier) -> Result<Tier, Fault> {
    let limits = &new.limits;
    let row = params![
        new.name,
        limits.per_second,
        limits.per_minute,
        limits.per_hour,
        limits.per_day,
        limits.unlimited,
        limits.burst,
        limits.shape.map(|shape| shape.as_str()),
        limits.max_in_flight,
        new.tenant_max_in_flight,
        new.tenant_ingest_per_second,
        new.tenant_max_destinations,
        new.ceiling.per_second,
        new.ceiling.at_once,
        new.ceiling.max_in_flight,
        new.ceiling.batch_events,
        new.ceiling.batch_bytes,
        new.ceiling.age_seconds,
    ];
    execute(tx, CREATE_TIER, row)?;
    Ok(new.clone())
}

fn delete_tier(tx: &Transaction<'_>, name: &str) -> Result<(), Fault> {
    if first(tx, TIER_HAS_TENANTS, [name], |_| Ok(()))?.is_some() {
        return Err(CatalogError::Conflict(TIER_IN_USE.to_owned()).into());
    }
    match execute(tx, DELETE_TIER, [name])? {
        0 => Err(CatalogError::NotFound("tier").into()),
        _ => Ok(()),
    }
}

fn change_tier(
    tx: &Transaction<'_>,
    now: Timestamp,
    name: &str,
    change: &TierChange,
) -> Result<Tier, Fault> {
    let limits = change.limits.unwrap_or_default();
    let ceiling = change.ceiling.unwrap_or_default();
    dated(tx, now, || {
        let row = params![
            name,
            change.limits.is_some(),
            limits.per_second,
            limits.per_minute,
            limits.per_hour,
            limits.per_day,
            limits.unlimited,
            limits.burst,
            limits.shape.map(|shape| shape.as_str()),
            limits.max_in_flight,
            change.tenant_max_in_flight.is_some(),
            change.tenant_max_in_flight.flatten(),
            change.tenant_ingest_per_second.is_some(),
            change.tenant_ingest_per_second.flatten(),
            change.tenant_max_destinations.is_some(),
            change.tenant_max_destinations.flatten(),
            change.ceiling.is_some(),
            ceiling.per_second,
            ceiling.at_once,
            ceiling.max_in_flight,
            ceiling.batch_events,
            ceiling.batch_bytes,
            ceiling.age_seconds,
        ];
        execute(tx, CHANGE_TIER, row)
    })?;
    let found = first(tx, TIERS, [Some(name)], tier)?;
    found.ok_or_else(|| CatalogError::NotFound("tier").into())
}

fn no_such_tier() -> Fault {
    CatalogError::Invalid {
        field: "tier".to_owned(),
        problem: "there is no such tier".to_owned(),
    }
    .into()
}

fn tenant(row: &Row<'_>) -> Result<Tenant, Fault> {
    Ok(Tenant {
        id: word(row, 0, ("tenants", "id"))?,
        name: row.get(1)?,
        tier: row.get(2)?,
        max_in_flight: row.get(3)?,
        effective_max_in_flight: row.get(4)?,
        created_at: time(row, 5)?,
        ingest_per_second: row.get(6)?,
        effective_ingest_per_second: row.get(7)?,
        external_id: row.get::<_, Option<String>>(8)?.map(ExternalId::kept),
        deletion: match maybe_time(row, 9)? {
            Some(since) => Some(Deletion {
                since,
                destinations_left: row.get(10)?,
            }),
            None => None,
        },
        effective_max_destinations: row.get(11)?,
    })
}

fn tier(row: &Row<'_>) -> Result<Tier, Fault> {
    Ok(Tier {
        limits: tier_settings(row, 0)?,
        name: row.get(8)?,
        tenant_max_in_flight: row.get(9)?,
        tenant_ingest_per_second: row.get(10)?,
        tenant_max_destinations: row.get(11)?,
        ceiling: Ceiling {
            per_second: row.get(12)?,
            at_once: row.get(13)?,
            max_in_flight: row.get(14)?,
            batch_events: row.get(15)?,
            batch_bytes: row.get(16)?,
            age_seconds: row.get(17)?,
        },
    })
}
