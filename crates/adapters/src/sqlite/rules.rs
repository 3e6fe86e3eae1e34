//! Retry rules, as their owner sees and changes them.

use std::time::Duration;

use domain::ids::{DestinationId, TenantId};
use engine::ports::{CatalogError, RetryRules, StoreError};
use rusqlite::{Connection, Transaction};

use super::fault::Fault;
use super::rows::{execute, first};
use crate::stored_policy;

const RULES: &str = "
    -- retry_rules
    select retry_policy, max_age_ms from destinations
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// No trigger has to do with these columns.
const SET: &str = "
    -- set_retry_rules
    update destinations set retry_policy = ?3, max_age_ms = ?4
    where id = ?1 and tenant_id = ?2 and deleted_at is null";

/// Reads them; see [`engine::ports::Backlog::retry_rules`].
pub(super) fn read(
    connection: &Connection,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<RetryRules, Fault> {
    let key = (destination.to_string(), tenant.to_string());
    let row = first(connection, RULES, key, |row| {
        Ok((
            row.get::<_, Option<String>>(0)?,
            row.get::<_, Option<i64>>(1)?,
        ))
    })?;
    let (policy, max_age_ms) = row.ok_or(CatalogError::NotFound("destination"))?;
    let policy = policy.as_deref().map(stored_policy::parsed).transpose();
    let policy = policy.map_err(|problem| StoreError::Corrupt {
        table: "destinations",
        column: "retry_policy",
        row: destination.to_string(),
        problem,
    })?;
    Ok(RetryRules {
        policy: policy.unwrap_or_default(),
        max_age: max_age_ms.map(|age| Duration::from_millis(age.unsigned_abs())),
    })
}

/// Writes them; see [`engine::ports::Backlog::set_retry_rules`].
pub(super) fn set(
    tx: &Transaction<'_>,
    tenant: TenantId,
    destination: DestinationId,
    rules: &RetryRules,
) -> Result<(), Fault> {
    rules
        .policy
        .validate()
        .map_err(|invalid| CatalogError::Invalid {
            field: invalid.field.to_owned(),
            problem: invalid.problem,
        })?;
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
