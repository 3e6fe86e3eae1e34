//! Replays: dead letters, and events that are sent again, go back into the backlog, at
//! the pace that their replay's share of the limit allows.
//!
//! Every instance does it; there is no leader, because each replay is locked
//! for a step, and a step is one commit. A crash between two steps delays the
//! replay and neither loses nor repeats anything.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::pause::ends_within;
use crate::ports::{Replays, Schedule};
use crate::wake::wake_all;

/// How replays are carried out.
#[derive(Debug, Clone, Copy)]
pub struct ReplayOptions {
    /// Between two steps while a replay runs: short against the second whose
    /// worth may wait.
    pub every: Duration,
    /// Between two looks while none runs.
    pub idle: Duration,
    /// Replays in one step.
    pub batch: u32,
}

impl Default for ReplayOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(200),
            idle: Duration::from_secs(1),
            batch: 32,
        }
    }
}

/// The first and the longest wait after the store did not answer.
const FAILURE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The loop.
pub struct ReplayLoop {
    replays: Arc<dyn Replays>,
    schedule: Arc<dyn Schedule>,
    options: ReplayOptions,
    failures: Backoff,
}

impl ReplayLoop {
    /// Over these replays, waking into this schedule.
    #[must_use]
    pub fn new(
        replays: Arc<dyn Replays>,
        schedule: Arc<dyn Schedule>,
        options: ReplayOptions,
    ) -> Self {
        Self {
            replays,
            schedule,
            options,
            failures: Backoff::new(FAILURE_BACKOFF.0, FAILURE_BACKOFF.1),
        }
    }

    /// Replays until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let pause = self.tick().await;
            if ends_within(pause, &shutdown).await {
                return;
            }
        }
    }

    /// One step of the running replays. Returns how long to wait until the
    /// next.
    pub async fn tick(&mut self) -> Duration {
        match self.replays.advance_replays(self.options.batch).await {
            Ok(advanced) => {
                self.failures.succeeded();
                let replayed = advanced.replayed.into();
                metrics::counter!("paceline_dead_letters_replayed_total").increment(replayed);
                metrics::counter!("paceline_events_resent_total").increment(advanced.resent.into());
                wake_all(self.schedule.as_ref(), &advanced.wakes).await;
                match advanced.running {
                    0 => self.options.idle,
                    _ => self.options.every,
                }
            }
            Err(error) => {
                tracing::warn!(%error, "replays not advanced, will go on");
                self.failures.failed()
            }
        }
    }
}
