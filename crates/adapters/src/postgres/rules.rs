//! Retry rules, as their owner sees and changes them.

use std::time::Duration;

use domain::ids::{DestinationId, TenantId};
use domain::retry::RetrySettings;
use engine::ports::{RetryRules, StoreError};
use sqlx::PgPool;

use super::failure::Failure;
use crate::stored_policy;

/// What a destination's row says.
pub(super) async fn read(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<RetryRules, Failure> {
    let row: Option<(Option<String>, Option<i64>)> = sqlx::query_as(
        "-- retry_rules
        select d.retry_policy::text, d.max_age_ms from destinations d
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let (policy, max_age_ms) = row.ok_or(Failure::NotFound("destination"))?;
    let policy = policy.as_deref().map(stored_policy::parsed).transpose();
    let policy = policy.map_err(|problem| {
        Failure::Corrupt(StoreError::Corrupt {
            table: "destinations",
            column: "retry_policy",
            row: destination.to_string(),
            problem,
        })
    })?;
    Ok(RetryRules {
        policy: policy.unwrap_or_default(),
        max_age: max_age_ms.map(|age| Duration::from_millis(age.unsigned_abs())),
    })
}

/// Writes them. The trigger has nothing to do with these columns.
pub(super) async fn set(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
    rules: &RetryRules,
) -> Result<(), Failure> {
    RetrySettings::validate(&rules.policy).map_err(Failure::Invalid)?;
    let max_age_ms = rules.max_age.map(|age| age.as_millis());
    let changed = sqlx::query(
        "-- set_retry_rules
        update destinations d set retry_policy = $3::text::jsonb, max_age_ms = $4
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .bind(stored_policy::written(&rules.policy))
    .bind(max_age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX)))
    .execute(pool)
    .await?;
    match changed.rows_affected() {
        0 => Err(Failure::NotFound("destination")),
        _ => Ok(()),
    }
}
