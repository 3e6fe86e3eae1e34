//! Health, for people; see [`engine::ports::HealthBook`].

use async_trait::async_trait;
use domain::destination::DestinationState;
use domain::health::FAILING_PERCENT;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    BreakerChange, CatalogError, HealthBook, HealthView, Managed, OperationalEvent,
};
use rusqlite::{Connection, Transaction};

use super::destinations::{dated, not_found, read};
use super::fault::Fault;
use super::rows::{all, execute, first, maybe_word, time, word};
use super::{SqliteStore, health, managers};

const FIND: &str = "
    -- health: is it the tenant's
    select alert_failing_percent from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const ACTIVATE: &str = "
    -- resume: active
    update destinations set state = 'active' where id = ?1 and state <> 'active'";

const FORGET: &str = "
    -- resume: well
    delete from health where destination_id = ?1";

/// Whatever the last run waited for: the sweep finds it if its wake is lost.
const LOOK: &str = "
    -- resume: look
    update pacing set next_look_at = null where destination_id = ?1";

const CHANGE_BREAKER: &str = "
    -- change_breaker
    update destinations
    set breaker_failures = iif(?3, ?4, breaker_failures),
        breaker_failing_for_seconds = iif(?5, ?6, breaker_failing_for_seconds),
        breaker_disable_after_seconds = iif(?7, ?8, breaker_disable_after_seconds)
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const EVENTS: &str = "
    -- operational_events
    select id, created_at, event_type, destination_id, tenant_id, details
    from operational_events where id > ?1 order by id limit ?2";

#[async_trait]
impl HealthBook for SqliteStore {
    async fn health(
        &self,
        tenant: TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<HealthView>, CatalogError> {
        let ids = destinations.to_vec();
        Ok(self
            .look(move |tx, now| {
                let mut views = Vec::with_capacity(ids.len());
                for &id in &ids {
                    views.extend(view(tx, now, tenant, id)?);
                }
                Ok(views)
            })
            .await?)
    }

    async fn resume(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<(), CatalogError> {
        Ok(self
            .write(move |tx, now| resume(tx, now, tenant, destination))
            .await?)
    }

    async fn change_breaker(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        change: &BreakerChange,
    ) -> Result<(), CatalogError> {
        let change = *change;
        let row = (
            destination.to_string(),
            tenant.to_string(),
            change.failures.is_some(),
            change.failures.flatten(),
            change.failing_for_seconds.is_some(),
            change.failing_for_seconds.flatten(),
            change.disable_after_seconds.is_some(),
            change.disable_after_seconds.flatten(),
        );
        Ok(self
            .write(move |tx, _| match execute(tx, CHANGE_BREAKER, row)? {
                0 => Err(not_found()),
                _ => Ok(()),
            })
            .await?)
    }

    async fn operational_events(
        &self,
        after: i64,
        limit: u32,
    ) -> Result<Vec<OperationalEvent>, CatalogError> {
        Ok(self.read(move |tx| events(tx, after, limit)).await?)
    }
}

/// By how many failures it fails, where that is set; `None` if it is not there.
fn found(
    tx: &Connection,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<Option<u32>>, Fault> {
    let key = (id.to_string(), tenant.to_string());
    first(tx, FIND, key, |row| Ok(row.get(0)?))
}

pub(super) fn view(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<HealthView>, Fault> {
    let Some(failing_percent) = found(tx, tenant, id)? else {
        return Ok(None);
    };
    let remembered = health::read(tx, id)?;
    Ok(remembered.map(|remembered| HealthView {
        destination: id,
        now,
        health: remembered.health,
        settings: remembered.settings,
        failing_percent: failing_percent.unwrap_or(FAILING_PERCENT),
    }))
}

fn resume(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    id: DestinationId,
) -> Result<(), Fault> {
    // A pause is the manager's, what failures made of it is not.
    if read(tx, tenant, id)?.state == DestinationState::Paused {
        managers::check(tx, Managed::by_nobody(tenant, id))?;
    }
    let key = id.to_string();
    dated(tx, now, || execute(tx, ACTIVATE, [&key]))?;
    execute(tx, FORGET, [&key])?;
    execute(tx, LOOK, [&key])?;
    Ok(())
}

fn events(tx: &Transaction<'_>, after: i64, limit: u32) -> Result<Vec<OperationalEvent>, Fault> {
    all(tx, EVENTS, (after, limit), |row| {
        Ok(OperationalEvent {
            id: row.get(0)?,
            created_at: time(row, 1)?,
            event_type: row.get(2)?,
            destination: maybe_word(row, 3, ("operational_events", "destination_id"))?,
            tenant: word(row, 4, ("operational_events", "tenant_id"))?,
            details: row.get(5)?,
        })
    })
}
