//! The ports of what waits and what died: each method is one step on one of
//! the two threads.

use async_trait::async_trait;
use domain::batch::BatchSettings;
use domain::ids::{AttemptId, DestinationId, ReplayId, TenantId};
use engine::ports::{
    Advanced, Backlog, CancelStep, CancelledOne, CancelledStep, CatalogError, DeadLetter,
    DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DestinationPage, NewReplay, Replay,
    ReplayProgress, Replays, Resendable, ResentEvents, Retain, RetainRules, Retained, RetryRules,
    StoreError, Wakes, Which,
};
use rusqlite::Transaction;

use super::fault::Fault;
use super::replays::Advance;
use super::{SqliteStore, cancel, dead_letters, replays, retain, rules};

#[async_trait]
impl Backlog for SqliteStore {
    async fn retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<RetryRules, CatalogError> {
        Ok(self
            .read(move |tx| rules::read(tx, tenant, destination))
            .await?)
    }

    async fn set_retry_rules(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        rules: &RetryRules,
    ) -> Result<(), CatalogError> {
        let rules = rules.clone();
        let step = move |tx: &Transaction<'_>, _| rules::set(tx, tenant, destination, &rules);
        Ok(self.write(step).await?)
    }

    async fn batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<BatchSettings, CatalogError> {
        Ok(self
            .read(move |tx| rules::batches(tx, tenant, destination))
            .await?)
    }

    async fn set_batch_settings(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        settings: &BatchSettings,
    ) -> Result<(), CatalogError> {
        let settings = *settings;
        let step = move |tx: &Transaction<'_>, now| {
            rules::set_batches(tx, now, tenant, destination, &settings)
        };
        Ok(self.write(step).await?)
    }

    async fn cancel_attempt(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<CancelledOne, CatalogError> {
        let step = move |tx: &Transaction<'_>, _| cancel::attempt(tx, tenant, attempt);
        Ok(self.write(step).await?)
    }

    async fn cancel_step(
        &self,
        tenant: TenantId,
        step: &CancelStep,
    ) -> Result<CancelledStep, CatalogError> {
        let step = step.clone();
        let run = move |tx: &Transaction<'_>, now| cancel::step(tx, now, tenant, &step);
        Ok(self.write(run).await?)
    }

    async fn dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Result<DeadLetterPage, CatalogError> {
        let filter = filter.clone();
        let read =
            move |tx: &Transaction<'_>| dead_letters::page(tx, tenant, &filter, after, limit);
        Ok(self.read(read).await?)
    }

    async fn dead_letter(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<DeadLetter, CatalogError> {
        Ok(self
            .read(move |tx| dead_letters::one(tx, tenant, attempt))
            .await?)
    }

    async fn create_replay(
        &self,
        tenant: TenantId,
        new: &NewReplay,
    ) -> Result<Replay, CatalogError> {
        let (of, now) = (new.clone(), (self.clock)());
        let count = move |tx: &Transaction<'_>| replays::count(tx, now, tenant, &of);
        let counted = match new.which {
            // A look-up by its key: it waits for no report.
            Which::One(_) | Which::Event(..) => self.read(count).await?,
            Which::Matching(..) | Which::Events(..) => self.count(count).await?,
        };
        let new = new.clone();
        // Of what was there when it was counted.
        let step =
            move |tx: &Transaction<'_>, _later| replays::create(tx, now, tenant, (&new, counted));
        Ok(self.write(step).await?)
    }

    async fn resendable(
        &self,
        tenant: TenantId,
        to: &[DestinationId],
        which: &ResentEvents,
    ) -> Result<Resendable, CatalogError> {
        let (to, which, now) = (to.to_vec(), which.clone(), (self.clock)());
        let read = move |tx: &Transaction<'_>| replays::resendable(tx, now, tenant, &to, &which);
        Ok(self.count(read).await?)
    }

    async fn destinations_with_dead_letters(
        &self,
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<DestinationPage, CatalogError> {
        let filter = filter.clone();
        let read = move |tx: &Transaction<'_>| {
            dead_letters::destinations(tx, tenant, &filter, after, limit)
        };
        Ok(self.read(read).await?)
    }

    async fn replays(
        &self,
        tenant: TenantId,
        after: Option<ReplayId>,
        limit: u32,
    ) -> Result<Vec<ReplayProgress>, CatalogError> {
        Ok(self
            .read(move |tx| replays::page(tx, tenant, after, limit))
            .await?)
    }

    async fn replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        Ok(self.read(move |tx| replays::read(tx, tenant, id)).await?)
    }

    async fn cancel_replay(&self, tenant: TenantId, id: ReplayId) -> Result<Replay, CatalogError> {
        Ok(self
            .write(move |tx, now| replays::cancel(tx, now, tenant, id))
            .await?)
    }
}

#[async_trait]
impl Replays for SqliteStore {
    async fn advance_replays(&self, limit: u32) -> Result<Advanced, StoreError> {
        let running = self.read(move |tx| replays::running(tx, limit)).await?;
        let (mut advanced, mut wakes) = (Advanced::default(), Wakes::default());
        // One after the other, so that whoever waits for the writer goes between.
        for id in running {
            let one = self.advance_replay(id).await?;
            advanced.replayed = advanced.replayed.saturating_add(one.replayed);
            advanced.resent = advanced.resent.saturating_add(one.resent);
            advanced.running += u32::from(one.runs);
            if let Some(to) = one.to {
                wakes.now(to);
            }
        }
        advanced.wakes = wakes.into_vec();
        Ok(advanced)
    }
}

impl SqliteStore {
    /// One replay, in steps of its own, as far as it goes now.
    async fn advance_replay(&self, id: String) -> Result<Advance, Fault> {
        let mut advance = Advance::default();
        loop {
            let id = id.clone();
            let step = move |tx: &Transaction<'_>, now| replays::advance(tx, now, &id, &advance);
            advance = self.write_together(step).await?;
            if !advance.more {
                return Ok(advance);
            }
        }
    }
}

#[async_trait]
impl Retain for SqliteStore {
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError> {
        let rules = *rules;
        Ok(self
            .write(move |tx, now| retain::retain(tx, now, &rules))
            .await??)
    }
}
