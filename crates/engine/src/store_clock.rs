//! The worker's and the scheduler's estimate of the store's clock.
//!
//! Every answer of the store that carries its time is a sample. The estimate
//! decides how long to wait before a claim: one that comes early by it is
//! answered *early* by the store. When a start that was claimed ahead of its slot
//! is sent is decided by the bounds of all samples ([`SharedClock::surely_by`]).
//!
//! The runtime's clock stands still while the machine is suspended, and the
//! store's, unless it is on that machine's monotonic clock too, does not. So
//! the time spent suspended is added to it ([`Suspended`]): otherwise a laptop
//! that wakes up, or a virtual machine that was moved, would look as if the
//! store's clock had stepped, and freeze admission.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::clock::{ClockWatch, Step, StoreClock};
use domain::time::{Timestamp, micros};
use tokio::time::Instant;

/// How long the machine has been suspended so far, since some fixed time; it
/// never gets less. Read at the edge, for virtual time knows none.
pub type Suspended = fn() -> Duration;

/// Never suspended.
#[must_use]
pub const fn never_suspended() -> Duration {
    Duration::ZERO
}

/// An estimate that tasks share.
pub struct SharedClock {
    origin: Instant,
    suspended: Suspended,
    inner: Mutex<Inner>,
}

struct Inner {
    clock: StoreClock,
    watch: ClockWatch,
    /// As of the last sample.
    suspended: Duration,
}

impl SharedClock {
    /// Without a sample yet, on a machine that is never suspended.
    #[must_use]
    pub fn new() -> Self {
        Self::counting(never_suspended)
    }

    /// Without a sample yet; local time goes on while the machine sleeps.
    #[must_use]
    pub fn counting(suspended: Suspended) -> Self {
        Self {
            origin: Instant::now(),
            suspended,
            inner: Mutex::new(Inner {
                clock: StoreClock::default(),
                watch: ClockWatch::default(),
                suspended: suspended(),
            }),
        }
    }

    /// Learns that the store's clock said `store` at some instant between
    /// `before` and now. Returns a step of that clock if this shows one.
    pub fn sample(&self, before: Instant, store: Timestamp) -> Option<Step> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let suspended = (self.suspended)();
        let after = self.local(Instant::now(), suspended);
        // If it was suspended since the last sample, nobody knows whether that
        // was before or after the question: the interval gets wide, not wrong.
        let before = self.local(before, inner.suspended.min(suspended));
        inner.suspended = suspended;
        let step = inner.watch.observe(before, after, store);
        if step.is_some() {
            inner.clock = StoreClock::default();
        }
        inner.clock.observe(before, after, store);
        step
    }

    /// What the store's clock shows, by the estimate; `None` before the first
    /// sample.
    #[must_use]
    pub fn now(&self) -> Option<Timestamp> {
        let now = self.local(Instant::now(), (self.suspended)());
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock.estimate(now)
    }

    /// How long until the store's clock shows `at`, by the estimate; zero when
    /// it does, or while there is no estimate.
    #[must_use]
    pub fn until(&self, at: Timestamp) -> Duration {
        (self.now()).map_or(Duration::ZERO, |store| at.since(store))
    }

    /// Waits until the store's clock shows `at`, by the estimate. Returns at
    /// once if it does: a timer of no length would still take up to a
    /// millisecond.
    pub async fn reach(&self, at: Timestamp) {
        let left = self.until(at);
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
    }

    /// From when on the store's clock surely shows `at` or later, by all samples together;
    /// `None` before the first one. A machine that is suspended until then finds it later.
    #[must_use]
    pub fn surely_by(&self, at: Timestamp) -> Option<Instant> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // A reading may be too much, and what is subtracted must not be.
        let suspended = inner.suspended.min((self.suspended)());
        let awake = inner.clock.surely_by(at)? - micros(suspended);
        // A sample's local times are whole microseconds, and what is cut off them was later.
        let awake = awake.saturating_add(1).max(0).unsigned_abs();
        Some(self.origin + Duration::from_micros(awake))
    }

    fn local(&self, instant: Instant, suspended: Duration) -> i64 {
        let awake = instant.saturating_duration_since(self.origin);
        micros(awake.saturating_add(suspended))
    }
}

impl Default for SharedClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const T0: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    /// Seconds; only this module's one test that suspends moves it.
    static SUSPENDED: AtomicU64 = AtomicU64::new(3_600);

    fn suspended() -> Duration {
        Duration::from_secs(SUSPENDED.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_slept_sees_no_step() {
        let clock = SharedClock::counting(suspended);
        assert_eq!(clock.sample(Instant::now(), T0), None);
        let asleep = Duration::from_secs(900);
        // The store's clock has gone on; this one's has not.
        SUSPENDED.fetch_add(asleep.as_secs(), Ordering::Relaxed);
        assert_eq!(clock.until(T0 + asleep), Duration::ZERO);
        let soon = T0 + asleep + Duration::from_secs(1);
        assert_eq!(clock.until(soon), Duration::from_secs(1));
        assert_eq!(clock.sample(Instant::now(), T0 + asleep), None);

        // A real step is still seen, once samples are narrow again.
        assert_eq!(clock.sample(Instant::now(), T0 + asleep), None);
        let stepped = T0 + asleep + Duration::from_secs(5);
        let step = clock.sample(Instant::now(), stepped);
        assert!(matches!(step, Some(Step::Forward(_))), "{step:?}");
    }

    /// Milliseconds; only the next test moves it.
    static TOO_MUCH: AtomicU64 = AtomicU64::new(0);

    fn sometimes_too_much() -> Duration {
        Duration::from_millis(TOO_MUCH.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_is_too_much_sends_nothing_early() {
        let clock = SharedClock::counting(sometimes_too_much);
        let began = Instant::now();
        assert_eq!(clock.surely_by(T0), None);
        assert_eq!(clock.sample(began, T0), None);
        let slot = Duration::from_millis(20);
        let by = clock.surely_by(T0 + slot).unwrap();
        assert!(by >= began + slot, "{by:?}");
        TOO_MUCH.store(5, Ordering::Relaxed);
        assert_eq!(clock.surely_by(T0 + slot), Some(by));
    }

    /// What it is for: without counting, the sleep looks like a step.
    #[tokio::test(start_paused = true)]
    async fn a_sleep_that_is_not_counted_looks_like_a_step() {
        let clock = SharedClock::new();
        assert_eq!(clock.sample(Instant::now(), T0), None);
        let step = clock.sample(Instant::now(), T0 + Duration::from_secs(900));
        assert!(matches!(step, Some(Step::Forward(_))), "{step:?}");
    }
}
