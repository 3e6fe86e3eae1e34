//! Retry rules and batches, as their owner sees and changes them.

use domain::batch::BatchSettings;
use domain::ids::{DestinationId, TenantId};
use domain::policy::InvalidSettings;
use domain::retry::RetrySettings;
use engine::ports::{RetryRules, StoreError};
use sqlx::PgPool;

use super::catalog::lock_tier;
use super::failure::Failure;
use super::rows::{age, batch_settings, integer};
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
        max_age: age(max_age_ms),
    })
}

/// Writes them. The trigger refuses an age above the tier's, and has nothing else to do with
/// these columns.
pub(super) async fn set(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
    rules: &RetryRules,
) -> Result<(), Failure> {
    RetrySettings::validate(&rules.policy).map_err(Failure::Invalid)?;
    let max_age_ms = rules.max_age.map(|age| age.as_millis());
    let mut transaction = pool.begin().await?;
    let changed: Option<Vec<Option<i32>>> = sqlx::query_scalar(
        "-- set_retry_rules
        update destinations d set retry_policy = $3::text::jsonb, max_age_ms = $4
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null
        returning array[d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms]",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .bind(stored_policy::written(&rules.policy))
    .bind(max_age_ms.map(|age| i64::try_from(age).unwrap_or(i64::MAX)))
    .fetch_optional(&mut *transaction)
    .await?;
    let batches = changed.ok_or(Failure::NotFound("destination"))?;
    if batch_settings(&batches).validate(rules.max_age).is_err() {
        return Err(Failure::Invalid(InvalidSettings {
            field: "max_age_ms",
            problem: "must be more than the batches' max_wait_ms".to_owned(),
        }));
    }
    Ok(transaction.commit().await?)
}

/// What a destination's row says of batches.
pub(super) async fn batches(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<BatchSettings, Failure> {
    let row: Option<Vec<Option<i32>>> = sqlx::query_scalar(
        "-- batch_settings
        select array[d.batch_max_events, d.batch_max_bytes, d.batch_max_wait_ms]
        from destinations d
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    Ok(batch_settings(
        &row.ok_or(Failure::NotFound("destination"))?,
    ))
}

/// Writes it. On or off is another epoch: workers read the target again, and
/// the trigger revokes what is out.
pub(super) async fn set_batches(
    pool: &PgPool,
    tenant: TenantId,
    destination: DestinationId,
    settings: &BatchSettings,
) -> Result<(), Failure> {
    settings.validate(None).map_err(Failure::Invalid)?;
    let mut transaction = pool.begin().await?;
    lock_tier(&mut transaction, tenant).await?;
    let changed: Option<Option<i64>> = sqlx::query_scalar(
        "-- set_batch_settings
        update destinations d
        set batch_max_events = $3, batch_max_bytes = $4, batch_max_wait_ms = $5,
            epoch = d.epoch + case
                when (d.batch_max_events is null) = ($3::integer is null) then 0 else 1 end
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null
        returning coalesce(d.max_age_ms, d.tier_age_ms)",
    )
    .bind(destination.0)
    .bind(tenant.0)
    .bind(settings.max_events.map(integer))
    .bind(settings.max_bytes.map(integer))
    .bind(settings.max_wait_ms.map(integer))
    .fetch_optional(&mut *transaction)
    .await?;
    let max_age_ms = changed.ok_or(Failure::NotFound("destination"))?;
    settings
        .validate(age(max_age_ms))
        .map_err(Failure::Invalid)?;
    Ok(transaction.commit().await?)
}
