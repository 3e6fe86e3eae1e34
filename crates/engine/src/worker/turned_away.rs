//! Permits that get no place go back to the store, many in one statement. Where all of
//! a destination's have waited for as long as they could, it is looked at again at once:
//! they have stood in line. Others are looked at again later: a permit that is admitted
//! again only to be turned away again costs those who have places.
//!
//! Of a destination that is not known to answer the store admits nothing
//! meanwhile. A later wake alone would not do: a run that is due sooner finds
//! its limit free, and thousands that hang, each looked at every second, would
//! keep schedulers and workers from all others. When enough places are free again
//! before that, as many as find one are called back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::DestinationId;
use domain::slow::Pause;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::ports::{Deferral, MAX_ROWS, Schedule, Store, Wake};
use crate::wake::wake_all;
use crate::worker::hand::InHand;
use crate::worker::places::Places;

/// Takes them. Clones share the statement.
#[derive(Clone)]
pub(super) struct TurnedAway {
    permits: mpsc::Sender<Back>,
}

/// A permit that goes back.
struct Back {
    in_hand: InHand,
    why: Why,
}

/// Why it goes back, and so when its destination is looked at again.
#[derive(Debug, Clone, Copy)]
enum Why {
    /// It waited for as long as it could, or its slot is too far ahead to be waited for: at
    /// once, unless others of its destination were turned away.
    TooLate,
    /// There was no place to wait in: after a pause, as its destination stands.
    TurnedAway,
    /// Nothing of its destination can start for so long: then.
    PutOff(Duration),
}

struct Loop {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    places: Arc<Places>,
    permits: mpsc::Receiver<Back>,
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
    pub(super) async fn send(&self, in_hand: InHand) {
        self.back(in_hand, Why::TurnedAway).await;
    }

    /// The same after its time has passed, which is nobody's turning away.
    pub(super) async fn too_late(&self, in_hand: InHand) {
        self.back(in_hand, Why::TooLate).await;
    }

    /// The same where nothing of its destination can start for so long, which is no
    /// matter of places: nothing is admitted of it meanwhile.
    pub(super) async fn put_off(&self, in_hand: InHand, lasts: Duration) {
        self.back(in_hand, Why::PutOff(lasts)).await;
    }

    async fn back(&self, in_hand: InHand, why: Why) {
        metrics::counter!("paceline_permits_turned_away_total").increment(1);
        // If the loop is gone, so is the worker: the permit was not begun.
        let _ = self.permits.send(Back { in_hand, why }).await;
    }
}

impl Loop {
    async fn run(mut self) {
        let mut batch = Vec::new();
        let places = Arc::clone(&self.places);
        loop {
            let back = tokio::select! {
                biased;
                received = self.permits.recv_many(&mut batch, MAX_ROWS) => match received {
                    0 => return,
                    _ => Vec::new(),
                },
                back = places.called_back() => back,
            };
            match back.is_empty() {
                true => self.tick(std::mem::take(&mut batch)).await,
                false => self.call_back(&back).await,
            }
        }
    }

    /// One statement, and one call of the schedule. Where either fails, they come back
    /// by themselves, later.
    async fn call_back(&self, destinations: &[DestinationId]) {
        let deferrals: Vec<_> = (destinations.iter())
            .map(|destination| Deferral {
                destination: *destination,
                lasts: Duration::ZERO,
            })
            .collect();
        if let Err(error) = self.store.defer(&deferrals).await {
            tracing::debug!(%error, "not called back");
            return;
        }
        let wakes: Vec<_> = (destinations.iter())
            .map(|destination| Wake {
                clear_floor: true,
                ..Wake::now(*destination)
            })
            .collect();
        wake_all(self.schedule.as_ref(), &wakes).await;
    }

    /// Two statements at most.
    async fn tick(&self, batch: Vec<Back>) {
        let permits: Vec<_> = batch.iter().map(|one| one.in_hand.permit).collect();
        let pauses = self.pauses(&batch);
        // Before the permits are back, or they would be admitted again at once.
        self.defer(&pauses).await;
        match self.store.release_permits(&permits).await {
            Ok(wakes) => wake_all(self.schedule.as_ref(), &later(&wakes, &pauses)).await,
            Err(error) => tracing::debug!(%error, "permits left to expire"),
        }
        batch.into_iter().for_each(|one| one.in_hand.known());
    }

    /// When to look at each destination again. Not for those that are only late.
    fn pauses(&self, batch: &[Back]) -> BTreeMap<DestinationId, Pause> {
        let mut put_off: BTreeMap<DestinationId, Option<Duration>> = BTreeMap::new();
        for one in batch {
            let lasts = match one.why {
                Why::TooLate => continue,
                Why::TurnedAway => None,
                Why::PutOff(lasts) => Some(lasts),
            };
            let longest = put_off.entry(one.in_hand.permit.destination).or_default();
            *longest = (*longest).max(lasts);
        }
        let pause = |destination, put_off: Option<Duration>| match put_off {
            None => self.places.pause(destination),
            Some(lasts) => Pause {
                lasts,
                defers: true,
            },
        };
        (put_off.into_iter())
            .map(|(destination, put_off)| (destination, pause(destination, put_off)))
            .collect()
    }

    /// A failure costs what a permit costs that is turned away again.
    async fn defer(&self, pauses: &BTreeMap<DestinationId, Pause>) {
        let deferrals: Vec<_> = (pauses.iter())
            .filter(|(_, pause)| pause.defers)
            .map(|(destination, pause)| Deferral {
                destination: *destination,
                lasts: pause.lasts,
            })
            .collect();
        if deferrals.is_empty() {
            return;
        }
        if let Err(error) = self.store.defer(&deferrals).await {
            tracing::debug!(%error, "not deferred");
        }
    }
}

/// One wake for each destination, after its pause if it has one.
fn later(wakes: &[Wake], pauses: &BTreeMap<DestinationId, Pause>) -> Vec<Wake> {
    let by_destination: BTreeMap<_, _> = (wakes.iter())
        .map(|wake| (wake.destination, *wake))
        .collect();
    (by_destination.into_values())
        .map(|wake| {
            let pause = pauses.get(&wake.destination);
            Wake {
                after: wake
                    .after
                    .max(pause.map_or(Duration::ZERO, |pause| pause.lasts)),
                // They are counted no more: what blocked it may be gone.
                clear_floor: true,
                ..wake
            }
        })
        .collect()
}
