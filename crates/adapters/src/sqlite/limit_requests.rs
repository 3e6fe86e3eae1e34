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
use rusqlite::{Row, Transaction};
use uuid::Uuid;

use super::fault::Fault;
use super::rows::{Place, all, execute, first, maybe_time, maybe_word, time, word};
use super::{SqliteStore, destinations, managers};

const ID: Place = ("limit_requests", "id");

const SAME: &str = "
    -- request_limits: one that is open and says the same
    select id from limit_requests
    where tenant_id = ?1 and destination_id = ?2 and state = 'open'";

const REQUEST: &str = "
    -- request_limits
    insert into limit_requests as r
        (id, tenant_id, destination_id, settings, note, created_at, limits_before,
            batch_events, batch_bytes)
    select ?1, d.tenant_id, d.id, ?4, ?5, ?6, ?7, ?8, ?9 from destinations d
    where d.id = ?3 and d.tenant_id = ?2 and d.deleted_at is null
    on conflict (destination_id) where state = 'open' do update
    set id = excluded.id, note = excluded.note, created_at = excluded.created_at,
        settings = coalesce(excluded.settings, r.settings),
        limits_before = coalesce(excluded.limits_before, r.limits_before),
        batch_events = iif(coalesce(excluded.batch_events, excluded.batch_bytes) is null,
            r.batch_events, excluded.batch_events),
        batch_bytes = iif(coalesce(excluded.batch_events, excluded.batch_bytes) is null,
            r.batch_bytes, excluded.batch_bytes)
    where r.note <> excluded.note
        or r.settings is not coalesce(excluded.settings, r.settings)
        or r.limits_before is not coalesce(excluded.limits_before, r.limits_before)
        or coalesce(excluded.batch_events, excluded.batch_bytes) is not null
        and (r.batch_events is not excluded.batch_events
            or r.batch_bytes is not excluded.batch_bytes)";

const SAME_DESTINATIONS: &str = "
    -- request_destinations: one that is open and says the same
    select id from limit_requests
    where tenant_id = ?1 and destination_id is null and state = 'open'
        and destinations = ?2 and note = ?3";

const REPLACE_DESTINATIONS: &str = "
    -- request_destinations: the open one
    delete from limit_requests
    where tenant_id = ?1 and destination_id is null and state = 'open'";

const REQUEST_DESTINATIONS: &str = "
    -- request_destinations
    insert into limit_requests (id, tenant_id, destinations, note, created_at)
    select ?1, n.id, ?3, ?4, ?5 from tenants n
    where n.id = ?2 and n.deleted_at is null";

macro_rules! select {
    ($name:literal, $which:literal) => {
        concat!(
            "
    -- ",
            $name,
            "
    select id, tenant_id, destination_id, settings, note, state, created_at, reason, decided_at,
        limits_before, batch_events, batch_bytes, destinations
    from limit_requests ",
            $which
        )
    };
}

/// Those that are open, or those that are decided: each along its part of an index.
pub(super) const REQUESTS: &str = select!(
    "limit_requests",
    "where (state = 'open') = ?2 and (created_at, id) < (?3, ?4)
    order by created_at desc, id desc limit ?1"
);

/// Of its own: each of the two goes along an index.
pub(super) const REQUESTS_OF_TENANT: &str = select!(
    "limit_requests: a tenant's",
    "where tenant_id = ?5 and (state <> 'open') = (1 - ?2) and (created_at, id) < (?3, ?4)
    order by created_at desc, id desc limit ?1"
);

const ONE_REQUEST: &str = select!("limit_request", "where id = ?1");

const GRANT: &str = "
    -- grant_limits
    update destinations
    set granted_per_second =
            nullif(max(coalesce(granted_per_second, 0), coalesce(?3, 0)), 0),
        granted_at_once = nullif(max(coalesce(granted_at_once, 0), coalesce(?4, 0)), 0),
        granted_in_flight = nullif(max(coalesce(granted_in_flight, 0), coalesce(?5, 0)), 0),
        granted_batch_events =
            nullif(max(coalesce(granted_batch_events, 0), coalesce(?6, 0)), 0),
        granted_batch_bytes = nullif(max(coalesce(granted_batch_bytes, 0), coalesce(?7, 0)), 0)
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const GRANT_DESTINATIONS: &str = "
    -- decide_limit_request: grant destinations
    update tenants set granted_destinations = max(coalesce(granted_destinations, 0), ?2)
    where id = ?1 and deleted_at is null";

const DECIDE: &str = "
    -- decide_limit_request
    update limit_requests set state = ?2, decided_at = ?3, reason = ?4
    where id = ?1 and state = 'open'";

const TELL: &str = "
    -- limit_requests: who has to know
    insert into operational_events (event_type, destination_id, tenant_id, details, created_at)
    select ?2, destination_id, tenant_id, ?3, ?4 from limit_requests where id = ?1";

#[async_trait]
impl LimitRequests for SqliteStore {
    async fn request_limits(
        &self,
        tenant: TenantId,
        new: &NewLimitRequest,
    ) -> Result<Uuid, CatalogError> {
        let new = new.clone();
        let step = move |tx: &Transaction<'_>, now: Timestamp| ask(tx, now, tenant, &new);
        Ok(self.write(step).await?)
    }

    async fn request_destinations(
        &self,
        tenant: TenantId,
        new: &NewDestinationsRequest,
    ) -> Result<Uuid, CatalogError> {
        let new = new.clone();
        let step =
            move |tx: &Transaction<'_>, now: Timestamp| ask_for_destinations(tx, now, tenant, &new);
        Ok(self.write(step).await?)
    }

    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        before: Option<LimitRequestPosition>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError> {
        let step = move |tx: &Transaction<'_>| list(tx, tenant, before, limit);
        Ok(self.read(step).await?)
    }

    async fn limit_request(&self, id: Uuid) -> Result<LimitRequest, CatalogError> {
        let step = move |tx: &Transaction<'_>| {
            let found = first(tx, ONE_REQUEST, [id.to_string()], request)?;
            found.ok_or_else(|| CatalogError::NotFound("limit request").into())
        };
        Ok(self.read(step).await?)
    }

    async fn grant_limits(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &LimitSettings,
    ) -> Result<(), CatalogError> {
        let settings = *settings;
        let step = move |tx: &Transaction<'_>, now: Timestamp| {
            grant(tx, now, (tenant, destination), &settings, None)
        };
        Ok(self.write(step).await?)
    }

    async fn decide_limit_request(
        &self,
        id: Uuid,
        decision: LimitRequestState,
        reason: &str,
    ) -> Result<(), CatalogError> {
        let reason = reason.to_owned();
        let step =
            move |tx: &Transaction<'_>, now: Timestamp| decide(tx, now, id, (decision, &reason));
        Ok(self.write(step).await?)
    }
}

/// The open ones, if the page before did not come to the end of them, and then the others.
pub(super) fn list(
    tx: &Transaction<'_>,
    tenant: Option<TenantId>,
    before: Option<LimitRequestPosition>,
    limit: u32,
) -> Result<Vec<LimitRequest>, Fault> {
    let first = LimitRequestPosition::FIRST;
    let before = before.unwrap_or(first);
    let decided = match before.is_open {
        true => first,
        false => before,
    };
    let mut found = Vec::new();
    if before.is_open {
        found = part(tx, tenant, (true, before), limit)?;
    }
    let left = limit.saturating_sub(u32::try_from(found.len()).unwrap_or(limit));
    if left > 0 {
        found.extend(part(tx, tenant, (false, decided), left)?);
    }
    Ok(found)
}

fn part(
    tx: &Transaction<'_>,
    tenant: Option<TenantId>,
    (is_open, before): (bool, LimitRequestPosition),
    limit: u32,
) -> Result<Vec<LimitRequest>, Fault> {
    let (at, id) = (before.created_at.as_micros(), before.id.to_string());
    match tenant {
        Some(tenant) => {
            let of = (limit, is_open, at, id, tenant.to_string());
            all(tx, REQUESTS_OF_TENANT, of, request)
        }
        None => all(tx, REQUESTS, (limit, is_open, at, id), request),
    }
}

/// Its parts that the new one does not ask for stay as they were asked for.
fn ask(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewLimitRequest,
) -> Result<Uuid, Fault> {
    let json = |settings: &LimitSettings| {
        serde_json::to_string(settings).map_err(|error| StoreError::Unavailable(error.to_string()))
    };
    let (tenant, destination) = (tenant.to_string(), new.destination.to_string());
    let limits = new.limits.as_ref();
    let row = (
        new.id.to_string(),
        &tenant,
        &destination,
        limits.map(|limits| json(&limits.settings)).transpose()?,
        &new.note,
        now.as_micros(),
        limits.map(|limits| json(&limits.before)).transpose()?,
        new.batches.events,
        new.batches.bytes,
    );
    if execute(tx, REQUEST, row)? == 0 {
        let same = first(tx, SAME, (&tenant, &destination), |row| word(row, 0, ID))?;
        return same.ok_or_else(|| CatalogError::NotFound("destination").into());
    }
    let asked = first(tx, ONE_REQUEST, [new.id.to_string()], request)?;
    let Some(Wanted::Limits {
        limits, batches, ..
    }) = asked.map(|asked| asked.wanted)
    else {
        return Err(CatalogError::NotFound("limit request").into());
    };
    let settings = limits.as_ref().map(|limits| &limits.settings);
    let details = request_details(new.id, settings, batches, &new.note);
    tell(tx, now, (new.id, OperationalType::LimitsRequested, details))?;
    Ok(new.id)
}

fn ask_for_destinations(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    new: &NewDestinationsRequest,
) -> Result<Uuid, Fault> {
    let tenant = tenant.to_string();
    let asked = (&tenant, new.destinations, &new.note);
    if let Some(same) = first(tx, SAME_DESTINATIONS, asked, |row| word(row, 0, ID))? {
        return Ok(same);
    }
    execute(tx, REPLACE_DESTINATIONS, [&tenant])?;
    let row = (
        new.id.to_string(),
        &tenant,
        new.destinations,
        &new.note,
        now.as_micros(),
    );
    if execute(tx, REQUEST_DESTINATIONS, row)? == 0 {
        return Err(CatalogError::NotFound("tenant").into());
    }
    let details = destinations_details(new.id, new.destinations, &new.note);
    tell(tx, now, (new.id, OperationalType::LimitsRequested, details))?;
    Ok(new.id)
}

fn grant(
    tx: &Transaction<'_>,
    now: Timestamp,
    (tenant, destination): (TenantId, DestinationId),
    settings: &LimitSettings,
    before: Option<&LimitSettings>,
) -> Result<(), Fault> {
    managers::check(tx, Managed::by_nobody(tenant, destination))?;
    let found = destinations::read(tx, tenant, destination)?;
    if before.is_some_and(|before| *before != found.limits) {
        return Err(CatalogError::Conflict(LIMITS_HAVE_CHANGED.to_owned()).into());
    }
    raise(tx, (tenant, destination), Ceiling::of_own(settings))?;
    let change = DestinationChange {
        limits: Some(*settings),
        ..DestinationChange::default()
    };
    destinations::change(tx, now, tenant, destination, &change).map(drop)
}

/// The destination may have as much from then on, whatever its tier says.
fn raise(
    tx: &Transaction<'_>,
    (tenant, destination): (TenantId, DestinationId),
    granted: Ceiling,
) -> Result<(), Fault> {
    let row = (
        destination.to_string(),
        tenant.to_string(),
        granted.per_second,
        granted.at_once,
        granted.max_in_flight,
        granted.batch_events,
        granted.batch_bytes,
    );
    match execute(tx, GRANT, row)? {
        0 => Err(CatalogError::NotFound("destination").into()),
        _ => Ok(()),
    }
}

fn decide(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: Uuid,
    (decision, reason): (LimitRequestState, &str),
) -> Result<(), Fault> {
    let found = first(tx, ONE_REQUEST, [id.to_string()], request)?;
    let open = found.filter(|found| found.state == LimitRequestState::Open);
    let Some(open) = open else {
        return Err(CatalogError::Conflict(NOT_OPEN.to_owned()).into());
    };
    if decision == LimitRequestState::Approved {
        match open.wanted {
            Wanted::Limits {
                destination,
                limits,
                batches,
            } => {
                let of = (open.tenant, destination);
                if let Some(OtherLimits { before, settings }) = &limits {
                    grant(tx, now, of, settings, Some(before))?;
                }
                if !batches.is_empty() {
                    raise(tx, of, Ceiling::default().with_batches(batches))?;
                }
            }
            Wanted::Destinations(most) => grant_destinations(tx, open.tenant, most)?,
        }
    }
    let row = (id.to_string(), decision.as_str(), now.as_micros(), reason);
    execute(tx, DECIDE, row)?;
    let details = decision_details(id, decision.as_str(), reason);
    tell(tx, now, (id, OperationalType::LimitsDecided, details))
}

/// The tenant may have so many destinations from then on.
fn grant_destinations(tx: &Transaction<'_>, tenant: TenantId, most: u32) -> Result<(), Fault> {
    match execute(tx, GRANT_DESTINATIONS, (tenant.to_string(), most))? {
        0 => Err(CatalogError::NotFound("tenant").into()),
        _ => Ok(()),
    }
}

fn limits(id: Uuid, (column, text): (&'static str, &str)) -> Result<LimitSettings, Fault> {
    serde_json::from_str(text).map_err(|error| {
        StoreError::Corrupt {
            table: "limit_requests",
            column,
            row: id.to_string(),
            problem: error.to_string(),
        }
        .into()
    })
}

fn tell(
    tx: &Transaction<'_>,
    now: Timestamp,
    (id, what, details): (Uuid, OperationalType, String),
) -> Result<(), Fault> {
    let row = (id.to_string(), what.as_str(), details, now.as_micros());
    execute(tx, TELL, row)?;
    Ok(())
}

fn request(row: &Row<'_>) -> Result<LimitRequest, Fault> {
    let id = word(row, 0, ID)?;
    Ok(LimitRequest {
        id,
        tenant: word(row, 1, ("limit_requests", "tenant_id"))?,
        wanted: wanted(row, id)?,
        note: row.get(4)?,
        state: word(row, 5, ("limit_requests", "state"))?,
        created_at: time(row, 6)?,
        reason: row.get(7)?,
        decided_at: maybe_time(row, 8)?,
    })
}

/// For a destination or for a number of them, as the table's check says.
fn wanted(row: &Row<'_>, id: Uuid) -> Result<Wanted, Fault> {
    let destination = maybe_word(row, 2, ("limit_requests", "destination_id"))?;
    let Some(destination) = destination else {
        return Ok(Wanted::Destinations(row.get(12)?));
    };
    let (settings, before): (Option<String>, Option<String>) = (row.get(3)?, row.get(9)?);
    let other = |settings: String| -> Result<OtherLimits, Fault> {
        Ok(OtherLimits {
            before: limits(id, ("limits_before", before.as_deref().unwrap_or_default()))?,
            settings: limits(id, ("settings", &settings))?,
        })
    };
    Ok(Wanted::Limits {
        destination,
        limits: settings.map(other).transpose()?,
        batches: LargerBatches {
            events: row.get(10)?,
            bytes: row.get(11)?,
        },
    })
}
