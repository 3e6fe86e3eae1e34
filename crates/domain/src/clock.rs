//! The store's clock, as seen from another machine.
//!
//! A *sample* is one question to the store: the local monotonic clock before
//! it, the store's time in its answer, the local clock after it. The store
//! read its clock somewhere in between, so *store − local*, the **offset**, is
//! in `[store − after, store − before]`: a slow statement makes the interval
//! wide, never wrong. Intervals of several samples are intersected, so the
//! quickest ones decide. As they age they widen by [`DRIFT_PPM`], the most by
//! which two sound clocks, or one that is being slewed, drift apart.
//!
//! Local time is in microseconds of any monotonic clock that goes on while the
//! machine sleeps (`CLOCK_BOOTTIME`).
//!
//! Three questions. [`StoreClock::estimate`] asks *what time is it there?*, so
//! that a worker claims its slots on time: an error costs an *early* answer
//! and nothing else, since the store compares with its own clock.
//! [`StoreClock::surely_by`] asks *is it that late there?*, before a start is sent
//! that was claimed ahead of its slot: clocks that drift faster than [`DRIFT_PPM`]
//! send it early, but by no more than the last sample is wide.
//! [`ClockWatch`] asks *did it step?*: a forward step makes starts leave their
//! windows too early, so admission has to freeze ([`freeze_for`]).

use std::time::Duration;

use crate::policy::{Policy, Rate};
use crate::time::{Timestamp, micros};

/// How far two clocks may drift apart without a step, in parts per million:
/// the most that the kernel slews a clock by. Half a millisecond a second.
pub const DRIFT_PPM: i64 = 500;

/// A step of the store's clock that is larger than this freezes admission.
pub const STEP: Duration = Duration::from_millis(50);

/// Admission is frozen no longer than this, whatever the period: a clock that
/// stepped by hours would otherwise stop a daily limit for a day.
pub const MAX_FREEZE: Duration = Duration::from_secs(60);

/// Where the offset (store − local, in microseconds) must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offset {
    least: i64,
    most: i64,
    /// The local time at which that was true; it widens from there on.
    as_of: i64,
}

impl Offset {
    /// What one sample says; `None` if its local times are out of order.
    fn sampled(before: i64, after: i64, store: Timestamp) -> Option<Self> {
        let offset = Self {
            least: store.as_micros().saturating_sub(after),
            most: store.as_micros().saturating_sub(before),
            // True when the store read its clock, which may be as early as this.
            as_of: before,
        };
        (before <= after).then(|| offset.aged(after))
    }

    /// As true at `local` as it was before; never narrower.
    fn aged(self, local: i64) -> Self {
        let elapsed = i128::from(local) - i128::from(self.as_of);
        if elapsed <= 0 {
            return self;
        }
        let drift = (elapsed * i128::from(DRIFT_PPM) + 999_999) / 1_000_000;
        let drift = i64::try_from(drift).unwrap_or(i64::MAX);
        Self {
            least: self.least.saturating_sub(drift),
            most: self.most.saturating_add(drift),
            as_of: local,
        }
    }

    /// What both say, or `None` if they contradict each other.
    fn and(self, other: Self) -> Option<Self> {
        let least = self.least.max(other.least);
        let most = self.most.min(other.most);
        (least <= most).then_some(Self {
            least,
            most,
            ..self
        })
    }

    fn middle(self) -> i64 {
        let sum = i128::from(self.least) + i128::from(self.most);
        i64::try_from(sum / 2).unwrap_or(i64::MAX)
    }
}

/// An estimate of the store's clock.
///
/// ```
/// use domain::clock::StoreClock;
/// use domain::time::Timestamp;
///
/// let mut clock = StoreClock::default();
/// assert_eq!(clock.estimate(0), None);
/// // Asked at 1.000 s, answered at 1.004 s: it was 70.002 s there at about 1.002 s.
/// clock.observe(1_000_000, 1_004_000, Timestamp::from_millis(70_002));
/// assert_eq!(clock.estimate(2_000_000), Some(Timestamp::from_millis(71_000)));
/// assert_eq!(clock.local_for(Timestamp::from_millis(71_000)), Some(2_000_000));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreClock {
    offset: Option<Offset>,
}

impl StoreClock {
    /// Takes a sample: the local clock in microseconds `before` and `after`
    /// the statement that answered `store`. A sample whose local times are out
    /// of order is ignored; one that contradicts all before it replaces them,
    /// for then the store's clock has stepped.
    pub fn observe(&mut self, before: i64, after: i64, store: Timestamp) {
        let Some(sample) = Offset::sampled(before, after, store) else {
            return;
        };
        let Some(known) = self.offset else {
            self.offset = Some(sample);
            return;
        };
        let local = after.max(known.as_of);
        let sample = sample.aged(local);
        self.offset = Some(known.aged(local).and(sample).unwrap_or(sample));
    }

    /// The store's time when the local clock says `local_micros`; `None`
    /// before the first sample.
    #[must_use]
    pub fn estimate(&self, local_micros: i64) -> Option<Timestamp> {
        let offset = self.offset?.middle();
        Some(Timestamp::from_micros(local_micros.saturating_add(offset)))
    }

    /// The local time, in microseconds, at which the store's clock says `at`;
    /// `None` before the first sample.
    #[must_use]
    pub fn local_for(&self, at: Timestamp) -> Option<i64> {
        let offset = self.offset?.middle();
        Some(at.as_micros().saturating_sub(offset))
    }

    /// The local time, in microseconds, from which on the store's clock surely says `at` or
    /// later, if the clocks drift by no more than [`DRIFT_PPM`] and it has not stepped since
    /// the last sample; `None` before the first one.
    #[must_use]
    pub fn surely_by(&self, at: Timestamp) -> Option<i64> {
        let offset = self.offset?;
        let by = at.as_micros().saturating_sub(offset.least);
        let ahead = i128::from(by) - i128::from(offset.as_of);
        if ahead <= 0 {
            return Some(by);
        }
        // It may run slower than the local one until then, by all of the drift.
        let slower = i128::from(1_000_000 - DRIFT_PPM);
        let longest = (ahead * 1_000_000 + slower - 1) / slower + 1;
        let longest = i64::try_from(longest).unwrap_or(i64::MAX);
        Some(offset.as_of.saturating_add(longest))
    }

    /// By how much the estimate may be wrong when the local clock says
    /// `local_micros`, if the clocks drift by no more than [`DRIFT_PPM`] and
    /// have not stepped since the last sample.
    #[must_use]
    pub fn uncertainty(&self, local_micros: i64) -> Option<Duration> {
        let offset = self.offset?;
        let aged = offset.aged(local_micros);
        let middle = offset.middle();
        let most = aged.most.saturating_sub(middle);
        let most = most.max(middle.saturating_sub(aged.least));
        Some(Duration::from_micros(most.max(0).unsigned_abs()))
    }
}

/// A step of the store's clock against the local one: by at least so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Starts leave their windows that much too early: freeze.
    Forward(Duration),
    /// The store's times repeat: admission stalls by itself until they pass.
    Backward(Duration),
}

/// Watches the store's clock for steps of more than [`STEP`].
///
/// It compares where the offset must be by all earlier samples with where it
/// must be by the new one, and reports a step when more than [`STEP`] lies
/// between the two. So neither slow statements nor drift within [`DRIFT_PPM`]
/// can look like a step; and a real one is found by the first sample after it
/// if it is larger than [`STEP`] and the width of both intervals. Smaller ones
/// are not forgotten: they add up until drift explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockWatch {
    offset: Option<Offset>,
}

impl ClockWatch {
    /// Takes a sample, as [`StoreClock::observe`] does; says whether the
    /// store's clock has stepped since the one before.
    #[must_use]
    pub fn observe(&mut self, before: i64, after: i64, store: Timestamp) -> Option<Step> {
        let sample = Offset::sampled(before, after, store)?;
        let Some(known) = self.offset else {
            self.offset = Some(sample);
            return None;
        };
        let local = after.max(known.as_of);
        let (known, sample) = (known.aged(local), sample.aged(local));
        let step = step_between(known, sample);
        self.offset = Some(match step {
            Some(_) => sample,
            // Where a step was too small to report, the reference stays.
            None => known.and(sample).unwrap_or(known),
        });
        step
    }
}

fn step_between(known: Offset, sample: Offset) -> Option<Step> {
    let forward = sample.least.saturating_sub(known.most);
    let backward = known.least.saturating_sub(sample.most);
    let by = |micros: i64| Duration::from_micros(micros.unsigned_abs());
    if forward > micros(STEP) {
        Some(Step::Forward(by(forward)))
    } else if backward > micros(STEP) {
        Some(Step::Backward(by(backward)))
    } else {
        None
    }
}

/// For how long a forward step freezes admission of a destination with this
/// policy: its longest period, at most [`MAX_FREEZE`]. Zero where no rate
/// limits.
#[must_use]
pub fn freeze_for(policy: &Policy) -> Duration {
    let Rate::Limited(limited) = &policy.rate else {
        return Duration::ZERO;
    };
    let refill = limited.pacing.map(|pacing| pacing.refill);
    (limited.windows.iter().copied().chain(refill))
        .map(|limit| policy.stretched(limit))
        .max()
        .unwrap_or_default()
        .min(MAX_FREEZE)
}
