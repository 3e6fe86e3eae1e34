//! Retention: what is over and old goes, in small steps.
//!
//! Every scheduler runs one and none leads: the store gives each step to one, and
//! after it nobody gets another for some times as long as it took, so that a
//! backlog of old rows never takes more than a small part of the store. The loop
//! pauses for as long, which is all there is where one process has the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::pause::ends_within;
use crate::ports::{Retain, RetainRules, Retained, StoreError};

/// How it runs.
#[derive(Debug, Clone, Copy)]
pub struct RetentionOptions {
    /// What is kept, and how a step goes.
    pub rules: RetainRules,
    /// Between two looks while nothing is due.
    pub every: Duration,
    /// The shortest pause after a step.
    pub shortest_pause: Duration,
}

impl Default for RetentionOptions {
    /// A fifth of one connection's time while there is something to do.
    fn default() -> Self {
        Self {
            rules: RetainRules::default(),
            every: Duration::from_secs(1),
            shortest_pause: Duration::from_millis(20),
        }
    }
}

/// The loop.
pub struct RetentionLoop {
    store: Arc<dyn Retain>,
    options: RetentionOptions,
}

impl RetentionLoop {
    /// Retention of this store.
    #[must_use]
    pub fn new(store: Arc<dyn Retain>, options: RetentionOptions) -> Self {
        Self { store, options }
    }

    /// Goes on until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            let began = Instant::now();
            let pause = match self.tick().await {
                Ok(retained) => self.pause(&retained, began.elapsed()),
                Err(error) => {
                    tracing::warn!(%error, "retention failed, will try again");
                    self.options.every
                }
            };
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One step of whatever is due.
    pub async fn tick(&self) -> Result<Retained, StoreError> {
        let retained = self.store.retain(&self.options.rules).await?;
        if let Some(walk) = retained.walk {
            metrics::counter!("paceline_retention_examined_total", "of" => walk.as_str())
                .increment(retained.examined.into());
            metrics::counter!("paceline_retention_removed_total", "of" => walk.as_str())
                .increment(retained.removed.into());
        }
        Ok(retained)
    }

    fn pause(&self, retained: &Retained, took: Duration) -> Duration {
        if retained.walk.is_none() {
            return self.options.every;
        }
        let pause = took.saturating_mul(self.options.rules.pause_factor);
        pause.max(self.options.shortest_pause)
    }
}
