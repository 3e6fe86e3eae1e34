//! The worker's and the scheduler's estimate of the store's clock.
//!
//! Every answer of the store that carries its time is a sample. The estimate
//! decides how long to wait and nothing else: a claim that comes early by it
//! is answered *early* by the store.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::clock::{ClockWatch, Step, StoreClock};
use domain::time::{Timestamp, micros};
use tokio::time::Instant;

/// An estimate that tasks share.
pub struct SharedClock {
    origin: Instant,
    inner: Mutex<(StoreClock, ClockWatch)>,
}

impl SharedClock {
    /// Without a sample yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            inner: Mutex::new((StoreClock::default(), ClockWatch::default())),
        }
    }

    /// Learns that the store's clock said `store` at some instant between
    /// `before` and now. Returns a step of that clock if this shows one.
    pub fn sample(&self, before: Instant, store: Timestamp) -> Option<Step> {
        let after = self.local(Instant::now());
        let before = self.local(before);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let step = inner.1.observe(before, after, store);
        if step.is_some() {
            inner.0 = StoreClock::default();
        }
        inner.0.observe(before, after, store);
        step
    }

    /// How long until the store's clock shows `at`, by the estimate; zero when
    /// it does, or while there is no estimate.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        let now = self.local(Instant::now());
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner
            .0
            .estimate(now)
            .map_or(Duration::ZERO, |store| at.since(store))
    }

    fn local(&self, instant: Instant) -> i64 {
        micros(instant.saturating_duration_since(self.origin))
    }
}

impl Default for SharedClock {
    fn default() -> Self {
        Self::new()
    }
}
