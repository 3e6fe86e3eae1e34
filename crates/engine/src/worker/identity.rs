//! Who a worker is, and the heartbeat that proves it.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::admission::GRACE;
use domain::clock::Step;
use domain::ids::WorkerId;
use rand::RngExt;
use rand::rngs::StdRng;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::ports::{HEARTBEAT_TIMEOUT, Heartbeat, Store, StoreError};
use crate::store_clock::SharedClock;

/// Between two heartbeats.
const EVERY: Duration = Duration::from_secs(1);

/// After so long without a heartbeat written, a worker takes a new identity:
/// well before the store gives up the old one, so that it never goes on under
/// a name whose claims are refused.
const RENEW_AFTER: Duration = HEARTBEAT_TIMEOUT.checked_div(2).expect("two is not zero");

/// A worker's current identity. Starts claimed under an earlier one are still
/// recorded under that.
pub(super) struct Identity {
    store: Arc<dyn Store>,
    clock: Arc<SharedClock>,
    places: u32,
    rng: Arc<Mutex<StdRng>>,
    current: Mutex<Name>,
    /// The store's clock has stepped forward.
    stepped: Notify,
    /// A heartbeat was written.
    written: Notify,
}

/// A name, and when the last of its heartbeats that was written had begun.
#[derive(Clone, Copy)]
struct Name {
    worker: WorkerId,
    written_at: Option<Instant>,
}

impl Name {
    const fn new(worker: WorkerId) -> Self {
        Self {
            worker,
            written_at: None,
        }
    }

    /// Whether its claims are not refused for it, as far as is known here.
    fn is_seen(self) -> bool {
        (self.written_at).is_some_and(|at| at.elapsed() < HEARTBEAT_TIMEOUT)
    }
}

impl Identity {
    pub(super) fn new(
        store: Arc<dyn Store>,
        clock: Arc<SharedClock>,
        places: u32,
        rng: Arc<Mutex<StdRng>>,
    ) -> Self {
        let first = draw(&rng);
        Self {
            store,
            clock,
            places,
            rng,
            current: Mutex::new(Name::new(first)),
            stepped: Notify::new(),
            written: Notify::new(),
        }
    }

    /// The identity to claim under now.
    pub(super) fn current(&self) -> WorkerId {
        self.name().worker
    }

    /// The same, when the store has seen it: what it claims before that is refused, and
    /// would be admitted again only to come back. Not for longer than a permit waits: then
    /// the store is asked all the same.
    pub(super) async fn seen(&self) -> WorkerId {
        let seen = async {
            loop {
                // A heartbeat that is written in between is not missed.
                let mut written = pin!(self.written.notified());
                written.as_mut().enable();
                let name = *self.name();
                if name.is_seen() {
                    return name.worker;
                }
                written.await;
            }
        };
        timeout(GRACE, seen)
            .await
            .unwrap_or_else(|_elapsed| self.current())
    }

    fn name(&self) -> MutexGuard<'_, Name> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first heartbeat, until it is written; false if `shutdown` came
    /// first.
    ///
    /// One that failed may have been written all the same. If that was long
    /// ago the store has given that name up, and takes no other heartbeat for
    /// it without saying so: hence a name is tried for a while only.
    pub(super) async fn introduce(&self, shutdown: &CancellationToken) -> bool {
        let mut failures = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
        let mut drawn_at = Instant::now();
        loop {
            match self.write(self.places).await {
                Ok(()) if drawn_at.elapsed() < HEARTBEAT_TIMEOUT => break,
                Ok(()) => tracing::warn!("the first heartbeat took too long"),
                Err(error) => tracing::warn!(%error, "store away, worker not introduced yet"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return false,
                () = tokio::time::sleep(failures.failed()) => {}
            }
            if drawn_at.elapsed() > RENEW_AFTER {
                self.renew();
                drawn_at = Instant::now();
            }
        }
        !shutdown.is_cancelled()
    }

    /// Heartbeats until `ended`.
    pub(super) async fn beat(self: Arc<Self>, ended: CancellationToken) {
        let mut written_at = Instant::now();
        loop {
            let stepped = tokio::select! {
                biased;
                () = ended.cancelled() => return,
                () = self.stepped.notified() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            let begun_at = Instant::now();
            if stepped || begun_at.duration_since(written_at) > RENEW_AFTER {
                self.renew();
            }
            match self.write(self.places).await {
                Ok(()) => written_at = begun_at,
                Err(error) => tracing::warn!(%error, "heartbeat not written"),
            }
        }
    }

    /// Says that no start of this worker is open any more. Only after
    /// [`Identity::beat`] has ended.
    pub(super) async fn retire(&self) {
        if let Err(error) = self.write(0).await {
            tracing::debug!(%error, "not retired: the heartbeat lapses by itself");
        }
    }

    /// Learns of a step of the store's clock. By a clock that went forward the
    /// last heartbeat may be too old, and then no later one is taken: the
    /// worker has to go on under another name, or all its claims are refused
    /// from now on.
    pub(super) fn clock_stepped(&self, step: Step) {
        if let Step::Forward(_) = step {
            self.name().written_at = None;
            self.stepped.notify_one();
        }
    }

    fn renew(&self) {
        let renewed = draw(&self.rng);
        tracing::warn!(worker = %renewed, "heartbeats were late, or seem so: going on as a new worker");
        *self.name() = Name::new(renewed);
    }

    /// One heartbeat. Its answer also shows the store's clock, so that the
    /// very first permit is waited for and dialled by it.
    async fn write(&self, places: u32) -> Result<(), StoreError> {
        let heartbeat = Heartbeat {
            worker: self.current(),
            places,
        };
        let before = Instant::now();
        let now = self.store.heartbeat(&heartbeat).await?;
        self.note_written(heartbeat.worker, before);
        if let Some(step) = self.clock.sample(before, now) {
            self.clock_stepped(step);
        }
        Ok(())
    }

    /// Whoever waits for it goes on.
    fn note_written(&self, worker: WorkerId, begun_at: Instant) {
        let mut name = self.name();
        if name.worker == worker {
            name.written_at = Some(begun_at);
        }
        drop(name);
        self.written.notify_waiters();
    }
}

fn draw(rng: &Mutex<StdRng>) -> WorkerId {
    let bytes: u128 = rng.lock().unwrap_or_else(PoisonError::into_inner).random();
    WorkerId(uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid())
}
