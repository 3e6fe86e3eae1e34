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
use rusqlite::{Row, Transaction};
use uuid::Uuid;

use super::fault::Fault;
use super::rows::{all, execute, first, maybe_time, time, word};
use super::{SqliteStore, destinations, managers};

const SAME: &str = "
    -- request_limits: one that is open and says the same
    select id from limit_requests
    where tenant_id = ?1 and destination_id = ?2 and state = 'open'
        and settings = ?3 and note = ?4 and limits_before = ?5";

const REPLACE: &str = "
    -- request_limits: the open one
    delete from limit_requests where destination_id = ?1 and state = 'open'";

const REQUEST: &str = "
    -- request_limits
    insert into limit_requests
        (id, tenant_id, destination_id, settings, note, created_at, limits_before)
    select ?1, d.tenant_id, d.id, ?4, ?5, ?6, ?7 from destinations d
    where d.id = ?3 and d.tenant_id = ?2 and d.deleted_at is null";

const REQUESTS: &str = "
    -- limit_requests
    select id, tenant_id, destination_id, settings, note, state, created_at, reason, decided_at
    from limit_requests where ?1 is null or tenant_id = ?1
    order by state <> 'open', created_at desc, id desc limit ?2";

const ONE_REQUEST: &str = "
    -- limit_request
    select id, tenant_id, destination_id, settings, note, state, created_at, reason, decided_at
    from limit_requests where id = ?1";

const OPEN: &str = "
    -- decide_limit_request: is it open
    select id, tenant_id, destination_id, settings, note, state, created_at, reason, decided_at,
        limits_before
    from limit_requests where id = ?1 and state = 'open'";

const GRANT: &str = "
    -- grant_limits
    update destinations
    set granted_per_second =
            nullif(max(coalesce(granted_per_second, 0), coalesce(?3, 0)), 0),
        granted_at_once = nullif(max(coalesce(granted_at_once, 0), coalesce(?4, 0)), 0),
        granted_in_flight = nullif(max(coalesce(granted_in_flight, 0), coalesce(?5, 0)), 0)
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

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

    async fn limit_requests(
        &self,
        tenant: Option<TenantId>,
        limit: u32,
    ) -> Result<Vec<LimitRequest>, CatalogError> {
        let tenant = tenant.map(|tenant| tenant.to_string());
        let step = move |tx: &Transaction<'_>| all(tx, REQUESTS, (tenant, limit), request);
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
            grant(tx, now, (tenant, destination), (&settings, None))
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
    let (settings, before) = (json(&new.settings)?, json(&new.before)?);
    let asked = (&tenant, &destination, &settings, &new.note, &before);
    if let Some(same) = first(tx, SAME, asked, |row| {
        word(row, 0, ("limit_requests", "id"))
    })? {
        return Ok(same);
    }
    execute(tx, REPLACE, [&destination])?;
    let row = (
        new.id.to_string(),
        &tenant,
        &destination,
        settings,
        &new.note,
        now.as_micros(),
        before,
    );
    if execute(tx, REQUEST, row)? == 0 {
        return Err(CatalogError::NotFound("destination").into());
    }
    let details = request_details(new.id, &new.settings, &new.note);
    tell(tx, now, (new.id, OperationalType::LimitsRequested, details))?;
    Ok(new.id)
}

fn grant(
    tx: &Transaction<'_>,
    now: Timestamp,
    (tenant, destination): (TenantId, DestinationId),
    (settings, before): (&LimitSettings, Option<&LimitSettings>),
) -> Result<(), Fault> {
    managers::check(tx, Managed::by_nobody(tenant, destination))?;
    let found = destinations::read(tx, tenant, destination)?;
    if before.is_some_and(|before| *before != found.limits) {
        return Err(CatalogError::Conflict(LIMITS_HAVE_CHANGED.to_owned()).into());
    }
    let granted = Ceiling::of_own(settings);
    let row = (
        destination.to_string(),
        tenant.to_string(),
        granted.per_second,
        granted.at_once,
        granted.max_in_flight,
    );
    execute(tx, GRANT, row)?;
    let change = DestinationChange {
        limits: Some(*settings),
        ..DestinationChange::default()
    };
    destinations::change(tx, now, tenant, destination, &change).map(drop)
}

fn decide(
    tx: &Transaction<'_>,
    now: Timestamp,
    id: Uuid,
    (decision, reason): (LimitRequestState, &str),
) -> Result<(), Fault> {
    let found = first(tx, OPEN, [id.to_string()], |row| {
        let request = request(row)?;
        let before: String = row.get(9)?;
        Ok((request, limits(id, &before)?))
    })?;
    let Some((open, before)) = found else {
        return Err(CatalogError::Conflict(NOT_OPEN.to_owned()).into());
    };
    if decision == LimitRequestState::Approved {
        let of = (open.tenant, open.destination);
        grant(tx, now, of, (&open.settings, Some(&before)))?;
    }
    let row = (id.to_string(), decision.as_str(), now.as_micros(), reason);
    execute(tx, DECIDE, row)?;
    let details = decision_details(id, decision.as_str(), reason);
    tell(tx, now, (id, OperationalType::LimitsDecided, details))
}

fn limits(id: Uuid, settings: &str) -> Result<LimitSettings, Fault> {
    serde_json::from_str(settings).map_err(|error| {
        StoreError::Corrupt {
            table: "limit_requests",
            column: "settings",
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
    let id: Uuid = word(row, 0, ("limit_requests", "id"))?;
    let settings: String = row.get(3)?;
    Ok(LimitRequest {
        id,
        tenant: word(row, 1, ("limit_requests", "tenant_id"))?,
        destination: word(row, 2, ("limit_requests", "destination_id"))?,
        settings: limits(id, &settings)?,
        note: row.get(4)?,
        state: word(row, 5, ("limit_requests", "state"))?,
        created_at: time(row, 6)?,
        reason: row.get(7)?,
        decided_at: maybe_time(row, 8)?,
    })
}
