//! Permits that get no place go back to the store, many in one statement, and
//! their destinations are looked at again later, not at once: a permit that is
//! admitted again only to be turned away again costs those who have places.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::ports::{MAX_ROWS, Schedule, Store, Wake};
use crate::wake::wake_all;
use crate::worker::hand::InHand;
use crate::worker::places::Places;

/// Takes them. Clones share the statement.
#[derive(Clone)]
pub(super) struct TurnedAway {
    permits: mpsc::Sender<InHand>,
}

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    places: Arc<Places>,
    permits: mpsc::Receiver<InHand>,
}

impl TurnedAway {
    /// Starts the loop; it ends when the last clone is dropped.
    pub(super) fn spawn(
        tasks: &mut JoinSet<()>,
        (store, schedule): (Arc<dyn Store>, Arc<dyn Schedule>),
        places: Arc<Places>,
    ) -> Self {
        let (sender, permits) = mpsc::channel(MAX_ROWS);
        let back = Loop {
            store,
            schedule,
            places,
            permits,
        };
        tasks.spawn(back.run());
        Self { permits: sender }
    }

    /// The permit leaves the hand when the store knows.
    pub(super) async fn send(&self, permit: InHand) {
        metrics::counter!("paceline_permits_turned_away_total").increment(1);
        // If the loop is gone, so is the worker: the permit was not begun.
        let _ = self.permits.send(permit).await;
    }
}

impl Loop {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.permits.recv_many(&mut batch, MAX_ROWS).await > 0 {
            self.tick(std::mem::take(&mut batch)).await;
        }
    }

    /// One statement.
    async fn tick(&self, batch: Vec<InHand>) {
        let permits: Vec<_> = batch.iter().map(|in_hand| in_hand.permit).collect();
        match self.store.release_permits(&permits).await {
            Ok(wakes) => {
                let later = self.later(&wakes);
                wake_all(self.schedule.as_ref(), &later).await;
            }
            Err(error) => tracing::debug!(%error, "permits left to expire"),
        }
        batch.into_iter().for_each(InHand::known);
    }

    /// One wake for each destination, after its pause.
    fn later(&self, wakes: &[Wake]) -> Vec<Wake> {
        let by_destination: BTreeMap<_, _> = (wakes.iter())
            .map(|wake| (wake.destination, *wake))
            .collect();
        (by_destination.into_values())
            .map(|wake| Wake {
                after: wake.after.max(self.places.pause(wake.destination)),
                // They are counted no more: what blocked it may be gone.
                clear_floor: true,
                ..wake
            })
            .collect()
    }
}
