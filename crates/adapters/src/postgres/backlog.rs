//! The ports of what waits and what died, each method one step of its own
//! file.

use async_trait::async_trait;
use domain::batch::BatchSettings;
use domain::ids::{AttemptId, DestinationId, ReplayId, TenantId};
use engine::ports::{
    Advanced, Backlog, CancelStep, CancelledOne, CancelledStep, CatalogError, DeadLetter,
    DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DestinationPage, NewReplay, Replay,
    ReplayProgress, Replays, Resendable, ResentEvents, Retain, RetainRules, Retained, RetryRules,
    StoreError,
};

use super::failure::retried;
use super::{PostgresStore, cancel, dead_letters, replays, retain, rules};

#[async_trait]
impl Backlog for PostgresStore {
    async fn retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<RetryRules, CatalogError> {
        Ok(retried(|| rules::read(&self.pool, tenant, destination)).await?)
    }

    async fn set_retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        rules: &RetryRules,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| rules::set(&self.pool, tenant, destination, rules)).await?)
    }

    async fn batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<BatchSettings, CatalogError> {
        Ok(retried(|| rules::batches(&self.pool, tenant, destination)).await?)
    }

    async fn set_batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &BatchSettings,
    ) -> Result<(), CatalogError> {
        Ok(retried(|| rules::set_batches(&self.pool, tenant, destination, settings)).await?)
    }

    async fn cancel_attempt(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<CancelledOne, CatalogError> {
        Ok(retried(|| cancel::attempt(&self.pool, tenant, attempt)).await?)
    }

    async fn cancel_step(
        &self,
        tenant: TenantId,
        step: &CancelStep,
    ) -> Result<CancelledStep, CatalogError> {
        Ok(retried(|| cancel::step(&self.pool, tenant, step)).await?)
    }

    async fn dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Result<DeadLetterPage, CatalogError> {
        Ok(retried(|| dead_letters::page(&self.pool, tenant, filter, after, limit)).await?)
    }

    async fn dead_letter(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<DeadLetter, CatalogError> {
        Ok(retried(|| dead_letters::one(&self.pool, tenant, attempt)).await?)
    }

    async fn create_replay(
        &self,
        tenant: TenantId,
        new: &NewReplay,
    ) -> Result<Replay, CatalogError> {
        Ok(retried(|| replays::create(&self.pool, tenant, new)).await?)
    }

    async fn resendable(
        &self,
        tenant: TenantId,
        to: &[DestinationId],
        which: &ResentEvents,
    ) -> Result<Resendable, CatalogError> {
        Ok(retried(|| replays::resendable(&self.pool, tenant, to, which)).await?)
    }

    async fn destinations_with_dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<DestinationPage, CatalogError> {
        let read = || dead_letters::destinations(&self.pool, tenant, filter, after, limit);
        Ok(retried(read).await?)
    }

    async fn replays(
        &self,
        tenant: TenantId,
        after: Option<ReplayId>,
        limit: u32,
    ) -> Result<Vec<ReplayProgress>, CatalogError> {
        Ok(retried(|| replays::page(&self.pool, tenant, after, limit)).await?)
    }

    async fn replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        Ok(retried(|| replays::read(&self.pool, tenant, id)).await?)
    }

    async fn cancel_replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        Ok(retried(|| replays::cancel(&self.pool, tenant, id)).await?)
    }
}

#[async_trait]
impl Replays for PostgresStore {
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError> {
        Ok(retried(|| replays::advance(&self.pool, limit)).await?)
    }
}

#[async_trait]
impl Retain for PostgresStore {
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError> {
        Ok(retried(|| retain::retain(&self.pool, rules)).await?)
    }
}
