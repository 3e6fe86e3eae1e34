//! Operational events become events, exactly once, and are forgotten; and who
//! is told of them.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::ids::{DestinationId, TenantId};
use domain::operations::{
    OperationalDestination, OperationalEvent, OperationalScope, first_deliveries,
};
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, CatalogError, MAX_OPERATIONAL, MAX_ROWS, Registration, RelayedOperations,
    StoreError,
};
use rusqlite::{Connection, Row, Transaction};

use super::destinations::not_found;
use super::fault::Fault;
use super::ingest;
use super::notices;
use super::rows::{all, execute, first, maybe_word, time, word};

const TO_RELAY: &str = "
    -- relay_operational_events: those that were not relayed yet
    select id, created_at, event_type, destination_id, tenant_id, details
    from operational_events indexed by operational_events_to_relay
    where relayed_at is null order by id limit ?1";

const MARK: &str = "
    -- relay_operational_events: relayed
    update operational_events set relayed_at = ?2 where id = ?1";

const TOLD_OF_ALL: &str = "
    -- relay_operational_events: who is told of everybody's
    select position, destination_id, tenant_id, scope, event_types
    from operational_destinations indexed by operational_destinations_of_all
    where scope = 'installation' order by position";

const OF_TENANT: &str = "
    -- operational_destinations
    select position, destination_id, tenant_id, scope, event_types
    from operational_destinations indexed by operational_destinations_of_tenant
    where tenant_id = ?1 order by position limit ?2";

const TRIM: &str = "
    -- trim_operational_events: of the oldest rows those that are old
    delete from operational_events
    where relayed_at is not null and created_at < ?1
        and id in (select id from operational_events order by id limit ?2)";

const FIND: &str = "
    -- register_operational: is it the tenant's, and how many are there
    select
        exists (
            select 1 from destinations
            where id = ?1 and tenant_id = ?2 and deleted_at is null
        ),
        (
            select count(*) from operational_destinations
            where tenant_id = ?2 and destination_id <> ?1
        )";

const REGISTER: &str = "
    -- register_operational
    insert into operational_destinations (destination_id, tenant_id, scope, event_types, created_at)
    values (?1, ?2, ?3, ?4, ?5)
    on conflict (destination_id) do update
    set scope = excluded.scope, event_types = excluded.event_types";

const UNREGISTER: &str = "
    -- unregister_operational
    delete from operational_destinations where destination_id = ?1 and tenant_id = ?2";

const RECENT: &str = "
    -- recent_operational_events: of one tenant
    select id, created_at, event_type, destination_id, tenant_id, details
    from operational_events indexed by operational_events_of_tenant
    where tenant_id = ?3 and id < ?1 order by id desc limit ?2";

const RECENT_OF_ALL: &str = "
    -- recent_operational_events: of all
    select id, created_at, event_type, destination_id, tenant_id, details
    from operational_events where id < ?1 order by id desc limit ?2";

/// One batch; see [`engine::ports::Operations`].
pub(super) fn relay(
    tx: &Transaction<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<RelayedOperations, Fault> {
    let rows = all(tx, TO_RELAY, [limit], event)?;
    let mut relayed = RelayedOperations::default();
    if rows.is_empty() {
        return Ok(relayed);
    }
    let told = told_of(tx, &rows)?;
    let (taken, events) = first_deliveries(&rows, &told, MAX_ROWS);
    let mut rest = &events[..];
    while !rest.is_empty() {
        let answers = ingest::accept_events(tx, now, rest)?;
        rest = rest.get(answers.len()..).unwrap_or_default();
        for answer in answers {
            if let Acceptance::Accepted(destinations) = answer {
                relayed.accepted += 1;
                relayed.destinations.extend(destinations);
            }
        }
    }
    notices::leave(tx, now, &rows[..taken])?;
    for row in &rows[..taken] {
        execute(tx, MARK, (row.id, now.as_micros()))?;
        relayed.relayed += 1;
    }
    relayed.more = taken < rows.len() || relayed.relayed >= limit;
    relayed.destinations.sort_unstable();
    relayed.destinations.dedup();
    Ok(relayed)
}

/// Who may be told of these: those of their tenants and of the installation.
fn told_of(
    tx: &Transaction<'_>,
    news: &[OperationalEvent],
) -> Result<Vec<OperationalDestination>, Fault> {
    let mut told = all(tx, TOLD_OF_ALL, [], destination)?;
    let tenants: BTreeSet<TenantId> = news.iter().map(|one| one.tenant).collect();
    for tenant in tenants {
        let own = of_tenant(tx, tenant)?.into_iter();
        told.extend(own.filter(|one| one.scope == OperationalScope::Tenant));
    }
    Ok(told)
}

fn event(row: &Row<'_>) -> Result<OperationalEvent, Fault> {
    Ok(OperationalEvent {
        id: row.get(0)?,
        created_at: time(row, 1)?,
        event_type: row.get(2)?,
        destination: maybe_word(row, 3, ("operational_events", "destination_id"))?,
        tenant: word(row, 4, ("operational_events", "tenant_id"))?,
        details: row.get(5)?,
    })
}

fn destination(row: &Row<'_>) -> Result<OperationalDestination, Fault> {
    const TABLE: &str = "operational_destinations";
    let types: String = row.get(4)?;
    let event_types = serde_json::from_str(&types).map_err(|error| StoreError::Corrupt {
        table: TABLE,
        column: "event_types",
        row: types.clone(),
        problem: error.to_string(),
    })?;
    Ok(OperationalDestination {
        position: row.get(0)?,
        destination: word(row, 1, (TABLE, "destination_id"))?,
        tenant: word(row, 2, (TABLE, "tenant_id"))?,
        scope: word(row, 3, (TABLE, "scope"))?,
        event_types,
    })
}

/// Deletes what is old, the oldest first.
pub(super) fn trim(
    tx: &Transaction<'_>,
    now: Timestamp,
    kept: Duration,
    limit: u32,
) -> Result<u32, Fault> {
    let deleted = execute(tx, TRIM, ((now - kept).as_micros(), limit))?;
    Ok(u32::try_from(deleted).unwrap_or(u32::MAX))
}

pub(super) fn register(
    tx: &Transaction<'_>,
    now: Timestamp,
    (tenant, id): (TenantId, DestinationId),
    registration: &Registration,
) -> Result<OperationalDestination, Fault> {
    let key = (id.to_string(), tenant.to_string());
    let found = first(tx, FIND, (&key.0, &key.1), |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, u32>(1)?))
    })?;
    let (is_there, others) = found.unwrap_or_default();
    if !is_there {
        return Err(not_found());
    }
    if others >= MAX_OPERATIONAL {
        let problem = format!("the tenant has {MAX_OPERATIONAL} operational destinations already");
        let field = "id".to_owned();
        return Err(CatalogError::Invalid { field, problem }.into());
    }
    let types = serde_json::to_string(&registration.event_types)
        .map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let scope = registration.scope.as_str();
    execute(
        tx,
        REGISTER,
        (&key.0, &key.1, scope, types, now.as_micros()),
    )?;
    let registered = of_tenant(tx, tenant)?;
    (registered.into_iter())
        .find(|one| one.destination == id)
        .ok_or_else(not_found)
}

pub(super) fn unregister(
    tx: &Transaction<'_>,
    tenant: TenantId,
    id: DestinationId,
) -> Result<(), Fault> {
    match execute(tx, UNREGISTER, (id.to_string(), tenant.to_string()))? {
        0 => Err(CatalogError::NotFound("operational destination").into()),
        _ => Ok(()),
    }
}

pub(super) fn of_tenant(
    connection: &Connection,
    tenant: TenantId,
) -> Result<Vec<OperationalDestination>, Fault> {
    all(
        connection,
        OF_TENANT,
        (tenant.to_string(), MAX_OPERATIONAL),
        destination,
    )
}

pub(super) fn recent(
    connection: &Connection,
    tenant: Option<TenantId>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<OperationalEvent>, Fault> {
    let before = before.unwrap_or(i64::MAX);
    match tenant {
        Some(tenant) => all(
            connection,
            RECENT,
            (before, limit, tenant.to_string()),
            event,
        ),
        None => all(connection, RECENT_OF_ALL, (before, limit), event),
    }
}
