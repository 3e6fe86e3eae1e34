//! The tally: what came of each destination's requests, counted behind the path of
//! events, and who begins to fail.
//!
//! Every scheduler runs the loop and none leads: the store gives the turn to one at a
//! time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::notifier::tell;
use crate::pause::ends_within;
use crate::ports::{StoreError, Tallied, Tallies, TallyRules};

/// How a tally runs.
#[derive(Debug, Clone, Copy)]
pub struct TallyOptions {
    /// Between two looks whether a step is due.
    pub every: Duration,
    /// How it goes round.
    pub rules: TallyRules,
}

impl Default for TallyOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            rules: TallyRules::default(),
        }
    }
}

/// The loop.
pub struct TallyLoop {
    tallies: Arc<dyn Tallies>,
    options: TallyOptions,
}

impl TallyLoop {
    /// A tally of this store.
    #[must_use]
    pub fn new(tallies: Arc<dyn Tallies>, options: TallyOptions) -> Self {
        Self { tallies, options }
    }

    /// Goes on until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            let pause = match self.tick().await {
                Ok(Tallied { more: true, .. }) => self.options.rules.pace,
                Ok(_) => self.options.every,
                Err(error) => {
                    tracing::warn!(%error, "requests not tallied, will try again");
                    self.options.every
                }
            };
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One step. Its log lines follow the commit, and may be lost with the process.
    pub async fn tick(&self) -> Result<Tallied, StoreError> {
        let tallied = self.tallies.tally(&self.options.rules).await?;
        metrics::counter!("paceline_tallied_requests_total").increment(tallied.counted);
        tallied.news.iter().for_each(tell);
        Ok(tallied)
    }
}
