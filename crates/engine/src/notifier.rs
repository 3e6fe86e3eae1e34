//! The notifier: what operators must know reaches them.
//!
//! Three loops in one: the watch raises what nobody else would notice, the
//! relay hands operational events to operational destinations, and what is old
//! is deleted in small steps. Every scheduler runs one and none leads: the
//! store gives the watch to one at a time, and each operational event to one
//! relay.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::pause::ends_within;
use crate::ports::{Operations, Schedule, StoreError, Told, Wake, WatchRules};
use crate::wake::wake_all;

/// How a notifier runs.
#[derive(Debug, Clone, Copy)]
pub struct NotifierOptions {
    /// Between two rounds in which there was nothing more to do.
    pub every: Duration,
    /// Operational events in one transaction of the relay.
    pub batch: u32,
    /// Transactions of the relay in one round, so that a flood of news keeps
    /// neither the watch nor the end of the process waiting.
    pub batches: u32,
    /// How the watch goes round.
    pub watch: WatchRules,
    /// How long operational events are kept.
    pub kept: Duration,
    /// How many of them one step deletes.
    pub trimmed: u32,
    /// Notices that nobody could be told for so long are dropped.
    pub notices_kept: Duration,
    /// How many of them one step drops.
    pub notices_dropped: u32,
}

impl Default for NotifierOptions {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            batch: 100,
            batches: 10,
            watch: WatchRules::default(),
            kept: Duration::from_secs(30 * 86_400),
            trimmed: 100,
            notices_kept: domain::notices::KEPT,
            notices_dropped: 1_000,
        }
    }
}

/// The loop.
pub struct Notifier {
    operations: Arc<dyn Operations>,
    schedule: Arc<dyn Schedule>,
    options: NotifierOptions,
}

impl Notifier {
    /// A notifier of this store, waking into this schedule.
    #[must_use]
    pub fn new(
        operations: Arc<dyn Operations>,
        schedule: Arc<dyn Schedule>,
        options: NotifierOptions,
    ) -> Self {
        Self {
            operations,
            schedule,
            options,
        }
    }

    /// Goes on until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        loop {
            self.tick().await;
            if ends_within(self.options.every, &shutdown).await {
                return;
            }
        }
    }

    /// One step of the watch, a few batches of the relay, and a few old rows. A
    /// round of the watch that has more steps goes on with the next tick, so
    /// that it never takes a connection for long.
    pub async fn tick(&self) {
        if let Err(error) = self.watch().await {
            tracing::warn!(%error, "watch failed, will look again");
        }
        for _ in 0..self.options.batches {
            match self.relay().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "operational events not relayed, will try again");
                    break;
                }
            }
        }
        let (kept, limit) = (self.options.kept, self.options.trimmed);
        if let Err(error) = self.operations.trim_operational_events(kept, limit).await {
            tracing::warn!(%error, "old operational events not deleted, will try again");
        }
    }

    /// One step of the watch. Its log lines follow the commit, and may be lost
    /// with the process.
    pub async fn watch(&self) -> Result<(), StoreError> {
        let watched = self.operations.watch(&self.options.watch).await?;
        if watched.stepped {
            metrics::counter!("paceline_watch_looks_total").increment(watched.looked.into());
        }
        watched.news.iter().for_each(tell);
        // Once in a round of the watch, by whoever ends it.
        if watched.stepped && !watched.more {
            self.drop_notices().await?;
        }
        Ok(())
    }

    async fn drop_notices(&self) -> Result<(), StoreError> {
        let (kept, limit) = (self.options.notices_kept, self.options.notices_dropped);
        let dropped = self.operations.drop_notices(kept, limit).await?;
        if dropped > 0 {
            metrics::counter!("paceline_notices_dropped_total").increment(dropped.into());
            tracing::error!(dropped, "notices dropped: they could not be told for a day");
        }
        Ok(())
    }

    /// One transaction of the relay; whether more may be left. The wakes that
    /// follow it may be lost with the process: the sweep finds what is due.
    pub async fn relay(&self) -> Result<bool, StoreError> {
        let limit = self.options.batch;
        let relayed = self.operations.relay_operational_events(limit).await?;
        metrics::counter!("paceline_operational_events_relayed_total")
            .increment(relayed.relayed.into());
        let wakes: Vec<_> = relayed.destinations.into_iter().map(Wake::now).collect();
        if !wakes.is_empty() {
            wake_all(self.schedule.as_ref(), &wakes).await;
        }
        Ok(relayed.more)
    }
}

/// Operators are told by the log too. What workers find they log themselves.
pub(crate) fn tell(told: &Told) {
    let destination = told.destination.map(tracing::field::display);
    let tenant = told.tenant;
    let (event, details) = (told.news.event_type.as_str(), told.news.details.as_str());
    if told.news.event_type.is_good() {
        tracing::info!(destination, %tenant, event, details, "operational event");
    } else {
        tracing::warn!(destination, %tenant, event, details, "operational event");
    }
}
