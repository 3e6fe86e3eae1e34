//! Retry rules and batches, as their owner sees and changes them.

use std::time::Duration;

use domain::batch::BatchSettings;
use domain::ids::{DestinationId, TenantId};
use domain::policy::InvalidSettings;
use domain::time::Timestamp;
use engine::ports::{CatalogError, RetryRules, StoreError};
use rusqlite::{Connection, Transaction};

use super::destinations::dated;
use super::fault::Fault;
use super::rows::{age, batch_settings, execute, first};
use super::secrets::BUMP_EPOCH;
use crate::stored_policy;

const RULES: &str = "
    -- retry_rules
    select retry_policy, max_age_ms from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// A trigger refuses an age above the tier's; no other has to do with these columns.
const SET: &str = "
    -- set_retry_rules
    update destinations set retry_policy = ?3, max_age_ms = ?4
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

const BATCHES: &str = "
    -- batch_settings
    select batch_max_events, batch_max_bytes, batch_max_wait_ms,
        coalesce(max_age_ms, tier_age_ms)
    from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// On or off is another epoch, which no trigger sees.
const SET_BATCHES: &str = "
    -- set_batch_settings
    update destinations set batch_max_events = ?3, batch_max_bytes = ?4, batch_max_wait_ms = ?5
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// Reads them; see [`engine::ports::Backlog::retry_rules`].
pub(super) fn read(
    connection: &Connection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<RetryRules, Fault> {
    let key = (destination.to_string(), tenant.to_string());
    let row = first(connection, RULES, key, |row| {
        Ok((row.get::<_, Option<String>>(0)?, age(row, 1)?))
    })?;
    let (policy, max_age) = row.ok_or(CatalogError::NotFound("destination"))?;
    let policy = policy.as_deref().map(stored_policy::parsed).transpose();
    let policy = policy.map_err(|problem| StoreError::Corrupt {
        table: "destinations",
        column: "retry_policy",
        row: destination.to_string(),
        problem,
    })?;
    Ok(RetryRules {
        policy: policy.unwrap_or_default(),
        max_age,
    })
}

/// Writes them; see [`engine::ports::Backlog::set_retry_rules`].
pub(super) fn set(
    tx: &Transaction<'_>,
    tenant: TenantId,
    destination: DestinationId,
    rules: &RetryRules,
) -> Result<(), Fault> {
    rules.policy.validate().map_err(refused)?;
    let (batches, _) = row(tx, tenant, destination)?;
    if batches.validate(rules.max_age).is_err() {
        return Err(refused(InvalidSettings {
            field: "max_age_ms",
            problem: "must be more than the batches' max_wait_ms".to_owned(),
        })
        .into());
    }
    let max_age_ms = rules.max_age.map(|age| age.as_millis());
    let row = (
        destination.to_string(),
        tenant.to_string(),
        stored_policy::written(&rules.policy),
        max_age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX)),
    );
    match execute(tx, SET, row)? {
        0 => Err(CatalogError::NotFound("destination").into()),
        _ => Ok(()),
    }
}

fn refused(invalid: InvalidSettings) -> CatalogError {
    CatalogError::Invalid {
        field: invalid.field.to_owned(),
        problem: invalid.problem,
    }
}

/// What the row says of batches, and how old its events may become.
fn row(
    connection: &Connection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<(BatchSettings, Option<Duration>), Fault> {
    let key = (destination.to_string(), tenant.to_string());
    let row = first(connection, BATCHES, key, |row| {
        Ok((batch_settings(row, 0)?, age(row, 3)?))
    })?;
    Ok(row.ok_or(CatalogError::NotFound("destination"))?)
}

/// Reads it; see [`engine::ports::Backlog::batch_settings`].
pub(super) fn batches(
    connection: &Connection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<BatchSettings, Fault> {
    Ok(row(connection, tenant, destination)?.0)
}

/// Writes it; see [`engine::ports::Backlog::set_batch_settings`].
pub(super) fn set_batches(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    destination: DestinationId,
    settings: &BatchSettings,
) -> Result<(), Fault> {
    let (before, max_age) = row(tx, tenant, destination)?;
    settings.validate(max_age).map_err(refused)?;
    let row = (
        destination.to_string(),
        tenant.to_string(),
        settings.max_events,
        settings.max_bytes,
        settings.max_wait_ms,
    );
    execute(tx, SET_BATCHES, row)?;
    if before.max_events.is_some() != settings.max_events.is_some() {
        let bump = || execute(tx, BUMP_EPOCH, [destination.to_string()]);
        dated(tx, now, bump)?;
    }
    Ok(())
}
