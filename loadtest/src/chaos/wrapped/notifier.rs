//! The notifier's port, past the crash points.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Operations, RelayedOperations, StoreError, WatchRules, Watched};

use super::super::crash::{CrashPoint, Trap};

pub(crate) struct TrappedOperations(pub(crate) Arc<dyn Operations>, pub(crate) Trap);

#[async_trait]
impl Operations for TrappedOperations {
    async fn relay_operational_events(&self, limit: u32) -> Result<RelayedOperations, StoreError> {
        let relayed = self.0.relay_operational_events(limit).await?;
        if relayed.relayed > 0 {
            self.1.at(CrashPoint::AfterRelay);
        }
        Ok(relayed)
    }

    async fn watch(&self, rules: &WatchRules) -> Result<Watched, StoreError> {
        let watched = self.0.watch(rules).await?;
        if !watched.news.is_empty() {
            self.1.at(CrashPoint::AfterWatch);
        }
        Ok(watched)
    }

    async fn trim_operational_events(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.0.trim_operational_events(kept, limit).await
    }

    async fn drop_notices(&self, kept: Duration, limit: u32) -> Result<u32, StoreError> {
        self.0.drop_notices(kept, limit).await
    }
}
