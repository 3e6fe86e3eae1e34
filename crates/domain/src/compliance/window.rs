//! Sliding and aligned windows, with two pointers.

use super::{LimitVerdict, Rule, Segment, Start, Violation, Violations, WindowCount, attempts};
use crate::admission::SLACK;
use crate::limit::Period;
use crate::policy::{Policy, Rate};
use crate::time::{Timestamp, micros};

/// The fullest half-open window (w − P, w] of starts, ascending; of equal ones
/// the first. Zero if there are none.
#[must_use]
pub fn largest_sliding(starts: &[Start], period: Period) -> WindowCount {
    let mut largest = WindowCount::default();
    for (first, last) in windows(starts, period) {
        let count = (last - first + 1) as u64;
        if count > largest.starts {
            largest = WindowCount {
                starts: count,
                ends_at: starts[last].0,
            };
        }
    }
    largest
}

/// The fullest period of the calendar (in UTC), as `date_trunc` cuts time, of
/// starts, ascending; of equal ones the first. Zero if there are none.
#[must_use]
pub fn largest_aligned(starts: &[Start], period: Period) -> WindowCount {
    let length = micros(period.duration());
    let bucket = |at: Timestamp| at.as_micros().div_euclid(length);
    let mut largest = WindowCount::default();
    for of_one in starts.chunk_by(|a, b| bucket(a.0) == bucket(b.0)) {
        let count = of_one.len() as u64;
        if count > largest.starts {
            let end = bucket(of_one[0].0).saturating_add(1).saturating_mul(length);
            largest = WindowCount {
                starts: count,
                ends_at: Timestamp::from_micros(end),
            };
        }
    }
    largest
}

/// For every start, the indices of the first and the last start of the window
/// that ends with it.
fn windows(starts: &[Start], period: Period) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut first = 0;
    starts.iter().enumerate().map(move |(last, (ends_at, _))| {
        let begins_at = *ends_at - period.duration();
        while first < last && starts[first].0 <= begins_at {
            first += 1;
        }
        (first, last)
    })
}

/// Judges every window of one period.
pub(super) fn judge(segments: &[Segment<'_>], starts: &[Start], period: Period) -> LimitVerdict {
    let mut bounds = Bounds::new(segments, period);
    let mut over = Over::new(starts, period);
    let mut sliding = WindowCount::default();
    let mut bound_there = None;
    for (first, last) in windows(starts, period) {
        let ends_at = starts[last].0;
        let bound = bounds.at(ends_at);
        let count = (last - first + 1) as u64;
        if count > sliding.starts {
            sliding = WindowCount {
                starts: count,
                ends_at,
            };
            bound_there = bound;
        }
        if let Some(bound) = bound.filter(|bound| count > *bound) {
            over.note(first, last, bound);
        }
    }
    LimitVerdict {
        period,
        aligned: largest_aligned(starts, period),
        sliding,
        bound: bound_there,
        violations: over.finish(),
    }
}

/// The largest bound in force within each window, as the windows move on.
struct Bounds<'a> {
    segments: &'a [Segment<'a>],
    period: Period,
    /// The segments that the window touches.
    touched: std::ops::Range<usize>,
    /// Their largest bound.
    largest: Option<u64>,
}

impl<'a> Bounds<'a> {
    fn new(segments: &'a [Segment<'a>], period: Period) -> Self {
        Self {
            segments,
            period,
            touched: 0..0,
            largest: None,
        }
    }

    /// The bound of the window that ends at `ends_at`; no earlier than the
    /// last one asked for. `None` where any of it was unlimited.
    ///
    /// A segment is taken to include its end, since a start may be recorded
    /// in the same microsecond as the change that came after it.
    fn at(&mut self, ends_at: Timestamp) -> Option<u64> {
        let begins_at = ends_at - self.period.duration();
        let mut touched = self.touched.clone();
        while touched.end < self.segments.len() && self.segments[touched.end].from <= ends_at {
            touched.end += 1;
        }
        while touched.start < touched.end && self.segments[touched.start].until <= begins_at {
            touched.start += 1;
        }
        if touched != self.touched {
            self.touched = touched;
            self.largest = (self.segments[self.touched.clone()].iter())
                .try_fold(Bound::default(), |bound, segment| {
                    bound.or(segment.policy, self.period)
                })
                .map(|bound| bound.starts(self.period));
        }
        self.largest
    }
}

/// The most that the policies seen so far allow in a window.
#[derive(Debug, Clone, Copy, Default)]
struct Bound {
    /// By a window.
    window: u64,
    /// By buckets that refill by this very period: the largest burst, and the
    /// largest refill.
    bucket: Option<(u32, u32)>,
}

impl Bound {
    /// With one more policy; `None` if it allows any number.
    fn or(mut self, policy: &Policy, period: Period) -> Option<Self> {
        let limited = match &policy.rate {
            Rate::Paused => return Some(self),
            Rate::Unlimited => return None,
            Rate::Limited(limited) => limited,
        };
        if let Some(limit) = limited.windows.iter().find(|limit| limit.period == period) {
            self.window = self.window.max(u64::from(limit.max.get()));
            return Some(self);
        }
        let pacing = limited
            .pacing
            .filter(|pacing| pacing.refill.period == period)?;
        let (burst, refill) = self.bucket.unwrap_or_default();
        self.bucket = Some((burst.max(pacing.burst), refill.max(pacing.refill.max.get())));
        Some(self)
    }

    fn starts(self, period: Period) -> u64 {
        let Some((burst, refill)) = self.bucket else {
            return self.window;
        };
        let time = (period.duration() + SLACK).as_micros();
        let refilled = u128::from(refill) * time / period.duration().as_micros();
        let refilled = u64::try_from(refilled).unwrap_or(u64::MAX);
        self.window.max(u64::from(burst).saturating_add(refilled))
    }
}

/// Gathers windows that are over, the worst of those that overlap.
struct Over<'a> {
    starts: &'a [Start],
    period: Period,
    violations: Violations,
    /// The end of the first window of the place at hand.
    begun_at: Timestamp,
    /// The worst window there: its first and last start, and its bound.
    worst: Option<(usize, usize, u64)>,
}

impl<'a> Over<'a> {
    fn new(starts: &'a [Start], period: Period) -> Self {
        Self {
            starts,
            period,
            violations: Violations::default(),
            begun_at: Timestamp::MIN,
            worst: None,
        }
    }

    fn note(&mut self, first: usize, last: usize, bound: u64) {
        self.violations.early_starts += 1;
        let ends_at = self.starts[last].0;
        let excess = |(first, last, bound): (usize, usize, u64)| (last - first + 1) as u64 - bound;
        match self.worst {
            Some(worst) if ends_at < self.begun_at + self.period.duration() => {
                if excess((first, last, bound)) > excess(worst) {
                    self.worst = Some((first, last, bound));
                }
            }
            _ => {
                self.list();
                self.begun_at = ends_at;
                self.worst = Some((first, last, bound));
            }
        }
    }

    fn list(&mut self) {
        let violation = self.worst.take().map(|(first, last, bound)| Violation {
            rule: Rule::Window(self.period),
            ends_at: self.starts[last].0,
            starts: (last - first + 1) as u64,
            bound,
            attempts: attempts(&self.starts[first..=last]),
        });
        self.violations.list(violation);
    }

    fn finish(mut self) -> Violations {
        self.list();
        self.violations
    }
}
