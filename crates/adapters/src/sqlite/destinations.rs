//! Destinations, as their owners see them.

use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::filter::Filter;
use domain::handshake::Handshake;
use domain::ids::{DestinationId, TenantId};
use domain::limit::Count;
use domain::limit_group::GroupName;
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use engine::ports::{
    COUNTED_AFTER_DELETION, CatalogError, Destination, DestinationChange, LimitHistory,
    NewDestination, StoreError, too_many_destinations,
};
use rusqlite::{Connection, Row, Transaction, params};

use super::fault::Fault;
use super::response_times::spread;
use super::rows::{all, execute, first, settings, tier_settings, time, word};

const SELECT: &str = "
    select d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day, d.unlimited,
        d.burst, d.shape, d.max_in_flight, d.safety_margin, d.margin_cap, d.count,
        t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day, t.unlimited,
        t.burst, t.shape, t.max_in_flight,
        d.id, d.tenant_id, d.name, d.url, d.event_types, d.state, d.created_at,
        d.pass_traceparent, (select now from store_clock),
        r.least_micros, r.least_at, r.most_micros, r.most_at, d.external_id,
        c.per_second, c.at_once, c.in_flight, d.filter, d.handshake, d.allowed_per_minute,
        d.limit_group, c.batch_events, c.batch_bytes, d.granted_per_second, d.granted_at_once,
        d.granted_in_flight, c.age_seconds
    from destinations d
    join tenants n on n.id = d.tenant_id
    join tiers t on t.name = n.tier
    join ceilings c on c.destination_id = d.id
    left join response_times r on r.destination_id = d.id";

const INSERT: &str = "
    -- create_destination
    insert into destinations (id, tenant_id, name, url, event_types, limit_per_second,
        limit_per_minute, limit_per_hour, limit_per_day, unlimited, burst, shape, max_in_flight,
        safety_margin, created_at, pass_traceparent, external_id, margin_cap, count, filter,
        handshake, limit_group)
    values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19,
        ?20, ?21, ?22)";

/// One statement, so that the trigger sees one change.
const CHANGE: &str = "
    -- change_destination
    update destinations
    set name = coalesce(?3, name), url = coalesce(?4, url),
        event_types = coalesce(?5, event_types), state = coalesce(?6, state),
        limit_per_second = iif(?7, ?8, limit_per_second),
        limit_per_minute = iif(?7, ?9, limit_per_minute),
        limit_per_hour = iif(?7, ?10, limit_per_hour),
        limit_per_day = iif(?7, ?11, limit_per_day),
        unlimited = iif(?7, ?12, unlimited),
        burst = iif(?7, ?13, burst),
        shape = iif(?7, ?14, shape),
        max_in_flight = iif(?7, ?15, max_in_flight),
        safety_margin = iif(?7, ?16, safety_margin),
        pass_traceparent = coalesce(?17, pass_traceparent),
        external_id = coalesce(?18, external_id),
        margin_cap = iif(?7, ?19, margin_cap),
        count = iif(?7, ?20, count),
        filter = iif(?21, ?22, filter),
        handshake = coalesce(?23, handshake),
        limit_group = iif(?24, ?25, limit_group)
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const CALLED: &str = "
    -- destination_called
    select id from destinations indexed by destinations_by_external_id
    where tenant_id = ?1 and external_id = ?2 and external_id is not null and deleted_at is null";

const DELETE: &str = "
    -- delete_destination
    update destinations set deleted_at = ?3
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const LAST_HISTORY: &str = "
    -- the last entry of limit history
    select coalesce(max(id), 0) from limit_history";

const DATE_HISTORY: &str = "
    -- the triggers' clock has milliseconds, ours is the one that starts are by; and not before
    -- what starts until nothing is held any more (changes_begin), nor before an earlier change
    update limit_history
    set in_force_from = max(
        ?2,
        coalesce((
            select max(a.claimed_at) + 1 from deliveries a indexed by deliveries_held
            where a.destination_id = limit_history.destination_id and a.permit is not null
                and a.carried_by is null and a.state = 'started' and a.claimed_at > ?2
                and a.claimed_at < (
                    select p.held_until from pacing p
                    where p.destination_id = limit_history.destination_id
                )
        ), 0),
        coalesce(min(?2 + 26000, (
            select h.in_force_from from limit_history h
            where h.destination_id = limit_history.destination_id and h.id < limit_history.id
            order by h.id desc limit 1
        )), 0)
    )
    where id > ?1";

const HISTORY: &str = "
    -- limits_within: backwards, and no further than the limit
    select * from (
        select * from (
            select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited,
                burst, shape, max_in_flight, safety_margin, margin_cap, count, in_force_from, state, id,
                allowed_per_minute
            from limit_history indexed by limit_history_of_destination
            where destination_id = ?1 and in_force_from > ?2 and in_force_from < ?4
            order by in_force_from desc, id desc limit ?3
        )
        union all
        select * from (
            select limit_per_second, limit_per_minute, limit_per_hour, limit_per_day, unlimited,
                burst, shape, max_in_flight, safety_margin, margin_cap, count, in_force_from, state, id,
                allowed_per_minute
            from limit_history indexed by limit_history_of_destination
            where destination_id = ?1 and in_force_from <= ?2
            order by in_force_from desc, id desc limit 1
        )
    )
    order by in_force_from desc, id desc limit ?3";

const IS_DELETED: &str = "
    -- create: whether the tenant is being deleted
    select deleted_at is not null from tenants where id = ?1";

const BOUND: &str = "
    -- create: how many destinations the tenant may have
    select most from most_destinations where tenant_id = ?1 and most is not null";

const HAS: &str = "
    -- create: how many it has, and has just deleted; up to the bound
    select (
        select count(*) from (
            select 1 from destinations indexed by destinations_of_tenant
            where tenant_id = ?1 and deleted_at is null limit ?3
        )
    ) + (
        select count(*) from (
            select 1 from destinations indexed by destinations_deleted_of_tenant
            where tenant_id = ?1 and deleted_at is not null and deleted_at > ?2 limit ?3
        )
    )";

/// Whether the tenant may have one more.
fn check_room(tx: &Transaction<'_>, now: Timestamp, tenant: TenantId) -> Result<(), Fault> {
    let tenant = tenant.to_string();
    let Some(most) = first(tx, BOUND, [&tenant], |row| Ok(row.get::<_, u32>(0)?))? else {
        return Ok(());
    };
    let since = (now - COUNTED_AFTER_DELETION).as_micros();
    let has = first(tx, HAS, (&tenant, since, most), |row| {
        Ok(row.get::<_, u32>(0)?)
    })?;
    match has {
        Some(has) if has >= most => Err(too_many_destinations().into()),
        _ => Ok(()),
    }
}

/// Creates one; see [`engine::ports::Catalog::create_destination`].
pub(super) fn create(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewDestination,
) -> Result<Destination, Fault> {
    let is_deleted = |row: &Row<'_>| Ok(row.get::<_, bool>(0)?);
    if first(tx, IS_DELETED, [tenant.to_string()], is_deleted)? == Some(true) {
        return Err(CatalogError::NotFound("tenant").into());
    }
    check_room(tx, now, tenant)?;
    dated(tx, now, || {
        let limits = &new.limits;
        let row = params![
            new.id.to_string(),
            tenant.to_string(),
            &new.name,
            &new.url,
            event_types(&new.event_types)?,
            limits.per_second,
            limits.per_minute,
            limits.per_hour,
            limits.per_day,
            limits.unlimited,
            limits.burst,
            limits.shape.map(|shape| shape.as_str()),
            limits.max_in_flight,
            limits.safety_margin,
            now.as_micros(),
            new.pass_traceparent,
            new.external_id.as_ref().map(ExternalId::as_str),
            limits.margin_cap,
            limits.count.map(Count::as_str),
            new.filter.as_ref().map(Filter::to_string),
            new.handshake.as_str(),
            new.limit_group.as_ref().map(GroupName::as_str),
        ];
        execute(tx, INSERT, row)
    })?;
    read(tx, tenant, new.id)
}

/// Reads one; see [`engine::ports::Catalog::destination`].
pub(super) fn read(
    connection: &Connection,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Destination, Fault> {
    let sql = format!("{SELECT} where d.id = ?1 and d.tenant_id = ?2 and d.deleted_at is null");
    let key = (id.to_string(), tenant.to_string());
    let read = first(connection, &sql, key, destination)?;
    read.ok_or_else(not_found)
}

/// Which one is called so; see [`engine::ports::Catalog::destination_called`].
pub(super) fn called(
    connection: &Connection,
    tenant: TenantId,
    id: &ExternalId,
) -> Result<DestinationId, Fault> {
    let key = (tenant.to_string(), id.as_str());
    let found = first(connection, CALLED, key, |row| {
        word(row, 0, ("destinations", "id"))
    })?;
    found.ok_or_else(not_found)
}

/// Reads a page; see [`engine::ports::Catalog::destinations`].
pub(super) fn page(
    connection: &Connection,
    tenant: TenantId,
    after: Option<DestinationId>,
    limit: u32,
) -> Result<Vec<Destination>, Fault> {
    let sql = format!(
        "{SELECT} where d.tenant_id = ?1 and d.id > ?2 and d.deleted_at is null
        order by d.id limit ?3"
    );
    let after = after.map(|after| after.to_string()).unwrap_or_default();
    all(
        connection,
        &sql,
        (tenant.to_string(), after, limit),
        destination,
    )
}

/// Reads these; see [`engine::ports::Catalog::destinations_of`].
pub(super) fn of(
    connection: &Connection,
    tenant: TenantId,
    ids: &[DestinationId],
) -> Result<Vec<Destination>, Fault> {
    let sql = format!(
        "{SELECT} where d.tenant_id = ?1 and d.deleted_at is null
            and d.id in (select value from json_each(?2))
        order by d.id"
    );
    let quoted: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
    let ids = format!("[{}]", quoted.join(","));
    all(connection, &sql, (tenant.to_string(), ids), destination)
}

/// Changes one; see [`engine::ports::Catalog::change_destination`].
pub(super) fn change(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
    change: &DestinationChange,
) -> Result<Destination, Fault> {
    let types = change.event_types.as_deref().map(event_types).transpose()?;
    let limits = change.limits.unwrap_or_default();
    let changed = dated(tx, now, || {
        let row = params![
            id.to_string(),
            tenant.to_string(),
            change.name,
            change.url,
            types,
            change.state.map(|state| state.as_str()),
            change.limits.is_some(),
            limits.per_second,
            limits.per_minute,
            limits.per_hour,
            limits.per_day,
            limits.unlimited,
            limits.burst,
            limits.shape.map(|shape| shape.as_str()),
            limits.max_in_flight,
            limits.safety_margin,
            change.pass_traceparent,
            change.external_id.as_ref().map(ExternalId::as_str),
            limits.margin_cap,
            limits.count.map(Count::as_str),
            change.filter.is_some(),
            change.filter.iter().flatten().next().map(Filter::to_string),
            change.handshake.map(Handshake::as_str),
            change.limit_group.is_some(),
            change
                .limit_group
                .iter()
                .flatten()
                .next()
                .map(GroupName::as_str),
        ];
        execute(tx, CHANGE, row)
    })?;
    match changed {
        0 => Err(not_found()),
        _ => read(tx, tenant, id),
    }
}

/// Deletes one; see [`engine::ports::Catalog::delete_destination`].
pub(super) fn delete(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<(), Fault> {
    let key = (id.to_string(), tenant.to_string(), now.as_micros());
    match dated(tx, now, || execute(tx, DELETE, key))? {
        0 => Err(not_found()),
        _ => Ok(()),
    }
}

/// Reads limit history; see [`engine::ports::Catalog::limits_within`].
pub(super) fn limits_within(
    connection: &Connection,
    id: DestinationId,
    (since, until): (Timestamp, Option<Timestamp>),
    limit: u32,
) -> Result<Vec<LimitHistory>, Fault> {
    let until = until.map_or(i64::MAX, Timestamp::as_micros);
    let part = (id.to_string(), since.as_micros(), limit, until);
    let mut newest_first = all(connection, HISTORY, part, entry)?;
    newest_first.reverse();
    Ok(newest_first)
}

fn entry(row: &Row<'_>) -> Result<LimitHistory, Fault> {
    Ok(LimitHistory {
        effective: settings(row, (0, 14))?,
        in_force_from: time(row, 11)?,
        state: word(row, 12, ("limit_history", "state"))?,
    })
}

/// Makes a change, and dates the history that it wrote by the store's clock,
/// read under the write lock: every start before it was earlier, every start
/// after it will be later.
pub(super) fn dated(
    tx: &Transaction<'_>,
    now: Timestamp,
    change: impl FnOnce() -> Result<usize, Fault>,
) -> Result<usize, Fault> {
    let last: i64 = first(tx, LAST_HISTORY, [], |row| Ok(row.get(0)?))?.unwrap_or(0);
    let changed = change()?;
    execute(tx, DATE_HISTORY, (last, now.as_micros()))?;
    Ok(changed)
}

pub(super) fn not_found() -> Fault {
    CatalogError::NotFound("destination").into()
}

fn event_types(types: &[String]) -> Result<String, Fault> {
    let json = serde_json::to_string(types);
    json.map_err(|error| StoreError::Unavailable(error.to_string()).into())
}

fn destination(row: &Row<'_>) -> Result<Destination, Fault> {
    let limits: LimitSettings = settings(row, (0, 38))?;
    let id: DestinationId = word(row, 19, ("destinations", "id"))?;
    let types: String = row.get(23)?;
    let event_types = serde_json::from_str(&types).map_err(|error| StoreError::Corrupt {
        table: "destinations",
        column: "event_types",
        row: id.to_string(),
        problem: error.to_string(),
    })?;
    let tier = tier_settings(row, 11)?;
    let ceiling = Ceiling {
        per_second: row.get(33)?,
        at_once: row.get(34)?,
        max_in_flight: row.get(35)?,
        batch_events: row.get(40)?,
        batch_bytes: row.get(41)?,
        age_seconds: row.get(45)?,
    };
    let granted = Ceiling {
        per_second: row.get(42)?,
        at_once: row.get(43)?,
        max_in_flight: row.get(44)?,
        ..Ceiling::default()
    };
    Ok(Destination {
        id,
        external_id: row.get::<_, Option<String>>(32)?.map(ExternalId::kept),
        tenant: word(row, 20, ("destinations", "tenant_id"))?,
        name: row.get(21)?,
        url: row.get(22)?,
        event_types,
        filter: row
            .get::<_, Option<String>>(36)?
            .as_deref()
            .map(Filter::stored),
        state: word(row, 24, ("destinations", "state"))?,
        limits,
        effective: limits.or_tier(&tier),
        ceiling,
        own_ceiling: ceiling.or_of_tier(&tier, &[granted, Ceiling::of_own(&limits)]),
        lasting_ceiling: ceiling.or_of_tier(&tier, &[granted]),
        spread: spread(row, 28, time(row, 27)?)?,
        pass_traceparent: row.get(26)?,
        handshake: word(row, 37, ("destinations", "handshake"))?,
        limit_group: row.get::<_, Option<String>>(39)?.map(GroupName::kept),
        created_at: time(row, 25)?,
    })
}
