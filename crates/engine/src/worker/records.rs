//! Outcomes of many attempts in one commit, until they are recorded.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use domain::ids::WorkerId;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::ports::{MAX_ROWS, Outcome, Schedule, Store};
use crate::wake::wake_all;

/// Hands in outcomes. Clones share the commit.
#[derive(Clone)]
pub(super) struct Records {
    outcomes: mpsc::Sender<(WorkerId, Outcome)>,
}

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    outcomes: mpsc::Receiver<(WorkerId, Outcome)>,
    failures: Backoff,
}

impl Records {
    /// Starts the loop; it ends when the last clone is dropped and all is
    /// recorded. As many outcomes as `places` may wait; then senders wait too.
    pub(super) fn spawn(
        tasks: &TaskTracker,
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        places: u32,
    ) -> Self {
        let (sender, outcomes) = mpsc::channel(places as usize);
        let back = Loop {
            store,
            schedule,
            outcomes,
            failures: Backoff::new(Duration::from_millis(10), Duration::from_secs(1)),
        };
        tasks.spawn(back.run());
        Self { outcomes: sender }
    }

    /// Hands in one outcome; it will be recorded unless the process dies.
    pub(super) async fn record(&self, worker: WorkerId, outcome: Outcome) {
        // The loop outlives every sender.
        let _ = self.outcomes.send((worker, outcome)).await;
    }
}

impl Loop {
    async fn run(mut self) {
        let mut pending = Vec::new();
        loop {
            let room = MAX_ROWS.saturating_sub(pending.len());
            // With something pending, only take what is there already.
            if pending.is_empty() {
                if self.outcomes.recv_many(&mut pending, room).await == 0 {
                    return;
                }
            } else {
                while pending.len() < MAX_ROWS
                    && let Ok(more) = self.outcomes.try_recv()
                {
                    pending.push(more);
                }
            }
            pending = self.tick(pending).await;
            if pending.is_empty() {
                self.failures.succeeded();
            } else {
                tokio::time::sleep(self.failures.failed()).await;
            }
        }
    }

    /// One commit per identity. Returns what has to be recorded again: a lost
    /// reply or a locked row; recording twice changes nothing.
    async fn tick(&self, batch: Vec<(WorkerId, Outcome)>) -> Vec<(WorkerId, Outcome)> {
        let mut by_worker: BTreeMap<WorkerId, Vec<Outcome>> = BTreeMap::new();
        for (worker, outcome) in batch {
            by_worker.entry(worker).or_default().push(outcome);
        }
        let mut again = Vec::new();
        for (worker, outcomes) in by_worker {
            match self.store.record_outcomes(worker, &outcomes).await {
                Ok(recorded) => {
                    let skipped: HashSet<_> = recorded.skipped.into_iter().collect();
                    let locked = (outcomes.into_iter())
                        .filter(|outcome| skipped.contains(&outcome.attempt))
                        .map(|outcome| (worker, outcome));
                    again.extend(locked);
                    wake_all(self.schedule.as_ref(), &recorded.wakes).await;
                }
                Err(error) => {
                    tracing::warn!(%error, outcomes = outcomes.len(), "not recorded yet");
                    again.extend(outcomes.into_iter().map(|outcome| (worker, outcome)));
                }
            }
        }
        again
    }
}
