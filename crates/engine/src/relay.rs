//! The relay: rows of the outbox become events.
//!
//! Any number of relays may run; the store gives each a lane of its own. A
//! relay that dies leaves nothing half done, and one that is told of nothing
//! still looks once a second: the notification only saves that second.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::ports::{Lane, Outbox, Schedule, Wake};
use crate::wake::wake_all;

/// How a relay runs.
#[derive(Debug, Clone, Copy)]
pub struct RelayOptions {
    /// Between two looks at an outbox that was empty.
    pub every: Duration,
    /// Rows in one transaction.
    pub batch: u32,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            batch: 500,
        }
    }
}

/// The loop.
pub struct Relay {
    outbox: Arc<dyn Outbox>,
    schedule: Arc<dyn Schedule>,
    options: RelayOptions,
    lane: Lane,
}

impl Relay {
    /// A relay of this outbox, waking into this schedule.
    #[must_use]
    pub fn new(
        outbox: Arc<dyn Outbox>,
        schedule: Arc<dyn Schedule>,
        options: RelayOptions,
    ) -> Self {
        Self {
            outbox,
            schedule,
            options,
            lane: Lane::default(),
        }
    }

    /// Relays until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let outbox = Arc::clone(&self.outbox);
        loop {
            let more = self.tick().await;
            if more && !shutdown.is_cancelled() {
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = outbox.inserted() => {}
                () = tokio::time::sleep(self.options.every) => {}
            }
        }
    }

    /// One transaction. Returns whether more may be left.
    pub async fn tick(&mut self) -> bool {
        let relayed = match self.outbox.relay(self.lane, self.options.batch).await {
            Ok(relayed) => relayed,
            Err(error) => {
                tracing::warn!(%error, "relaying failed, will run again");
                return false;
            }
        };
        let Some(lane) = relayed.lane else {
            return false;
        };
        self.lane = lane;
        metrics::counter!("paceline_outbox_relayed_total").increment(relayed.accepted.into());
        metrics::counter!("paceline_outbox_rejected_total").increment(relayed.rejected.into());
        if relayed.rejected > 0 {
            let rows = relayed.rejected;
            tracing::warn!(rows, "rows of the outbox rejected: see outbox_rejected");
        }
        let wakes: Vec<_> = relayed.destinations.into_iter().map(Wake::now).collect();
        if !wakes.is_empty() {
            wake_all(self.schedule.as_ref(), &wakes).await;
        }
        // A lane whose rows are all held by their users has none to give.
        relayed.accepted + relayed.rejected > 0
    }
}
