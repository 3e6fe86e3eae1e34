//! What waits and what died, as those see it who look after it.

use async_trait::async_trait;
use domain::batch::BatchSettings;
use domain::ids::{AttemptId, DestinationId, ReplayId, TenantId};
use engine::ports::{
    Advanced, Backlog, CancelStep, CancelledOne, CancelledStep, CatalogError, DeadLetter,
    DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DestinationPage, NewReplay, Replay,
    ReplayProgress, Replays, RetryRules, StoreError,
};

use super::rows::{DestinationRow, Rows};
use super::{ModelStore, cancel, change, dead_letters, replays};

#[async_trait]
impl Backlog for ModelStore {
    async fn retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<RetryRules, CatalogError> {
        self.read(|rows| {
            let row = own(rows, tenant, destination)?;
            Ok(RetryRules {
                policy: row.retry.clone(),
                max_age: row.max_age,
            })
        })
    }

    async fn set_retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        rules: &RetryRules,
    ) -> Result<(), CatalogError> {
        let invalid = |field: &str, problem: String| CatalogError::Invalid {
            field: field.to_owned(),
            problem,
        };
        let valid = rules.policy.validate();
        valid.map_err(|refused| invalid(refused.field, refused.problem))?;
        if rules.max_age.is_some_and(|age| age.is_zero()) {
            return Err(invalid("max_age_ms", "must be at least 1".to_owned()));
        }
        self.step(|rows, _| {
            let batches = own(rows, tenant, destination)?.batches;
            if batches.validate(rules.max_age).is_err() {
                let problem = "must be more than the batches' max_wait_ms";
                return Err(invalid("max_age_ms", problem.to_owned()));
            }
            if let Some(row) = rows.destinations.get_mut(&destination) {
                row.retry = rules.policy.clone();
                row.max_age = rules.max_age;
            }
            Ok(())
        })
    }

    async fn batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<BatchSettings, CatalogError> {
        self.read(|rows| Ok(own(rows, tenant, destination)?.batches))
    }

    async fn set_batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &BatchSettings,
    ) -> Result<(), CatalogError> {
        self.change(|rows, now| change::set_batches(rows, now, tenant, destination, settings))
    }

    async fn cancel_attempt(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<CancelledOne, CatalogError> {
        self.step(|rows, now| cancel::attempt(rows, now, tenant, attempt))
    }

    async fn cancel_step(
        &self,
        tenant: TenantId,
        step: &CancelStep,
    ) -> Result<CancelledStep, CatalogError> {
        self.step(|rows, now| cancel::step(rows, now, tenant, step))
    }

    async fn dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Result<DeadLetterPage, CatalogError> {
        Ok(self.read(|rows| dead_letters::page(rows, tenant, filter, after, limit)))
    }

    async fn dead_letter(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<DeadLetter, CatalogError> {
        self.read(|rows| dead_letters::one(rows, tenant, attempt))
    }

    async fn create_replay(
        &self,
        tenant: TenantId,
        new: &NewReplay,
    ) -> Result<Replay, CatalogError> {
        self.step(|rows, now| replays::create(rows, now, tenant, new))
    }

    async fn destinations_with_dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<DestinationPage, CatalogError> {
        Ok(self.read(|rows| dead_letters::destinations(rows, tenant, filter, after, limit)))
    }

    async fn replays(
        &self,
        tenant: TenantId,
        after: Option<ReplayId>,
        limit: u32,
    ) -> Result<Vec<ReplayProgress>, CatalogError> {
        Ok(self.read(|rows| replays::page(rows, tenant, after, limit)))
    }

    async fn replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        self.read(|rows| replays::read(rows, tenant, id))
    }

    async fn cancel_replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        self.step(|rows, now| replays::cancel(rows, now, tenant, id))
    }
}

#[async_trait]
impl Replays for ModelStore {
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError> {
        Ok(self.step(|rows, now| replays::advance(rows, now, limit)))
    }
}

/// A destination that is the tenant's, and there.
pub(super) fn own(
    rows: &Rows,
    tenant: TenantId,
    destination: DestinationId,
) -> Result<&DestinationRow, CatalogError> {
    let row = rows.living(destination);
    row.filter(|row| row.tenant == tenant)
        .ok_or(CatalogError::NotFound("destination"))
}
