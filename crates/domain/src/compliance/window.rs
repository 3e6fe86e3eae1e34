//! Sliding and aligned windows, start by start.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{
    LimitVerdict, MAX_LISTED, Rule, Segment, Start, Violation, Violations, WindowCount, newest,
};
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
    let mut aligned = Aligned::new(period);
    starts.iter().for_each(|(at, _)| aligned.push(*at));
    aligned.finish()
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

/// Judges every window of one period, start by start. Keeps the starts of one
/// window.
pub(super) struct WindowJudge {
    period: Period,
    bounds: Bounds,
    over: Over,
    /// Those in the window that ends with the last one.
    recent: VecDeque<Start>,
    aligned: Aligned,
    sliding: WindowCount,
    bound_there: Option<u64>,
}

impl WindowJudge {
    pub(super) fn new(segments: Arc<[Segment]>, period: Period) -> Self {
        Self {
            period,
            bounds: Bounds::new(segments, period),
            over: Over::new(period),
            recent: VecDeque::new(),
            aligned: Aligned::new(period),
            sliding: WindowCount::default(),
            bound_there: None,
        }
    }

    /// A start before all that are judged.
    pub(super) fn before(&mut self, start: Start) {
        self.enter(start);
        self.aligned.before(start.0);
    }

    /// The window that ends with this start.
    fn enter(&mut self, start: Start) {
        let begins_at = start.0 - self.period.duration();
        while self
            .recent
            .front()
            .is_some_and(|first| first.0 <= begins_at)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(start);
    }

    /// The next start, no earlier than the last.
    pub(super) fn push(&mut self, start: Start) {
        let ends_at = start.0;
        self.enter(start);
        self.aligned.push(ends_at);
        let bound = self.bounds.at(ends_at);
        let starts = self.recent.len() as u64;
        if starts > self.sliding.starts {
            self.sliding = WindowCount { starts, ends_at };
            self.bound_there = bound;
        }
        if let Some(bound) = bound.filter(|bound| starts > *bound) {
            self.over.note(&self.recent, ends_at, bound);
        }
    }

    pub(super) fn finish(self) -> LimitVerdict {
        LimitVerdict {
            period: self.period,
            aligned: self.aligned.finish(),
            sliding: self.sliding,
            bound: self.bound_there,
            violations: self.over.finish(),
        }
    }
}

/// The fullest period of the calendar, start by start.
struct Aligned {
    length: i64,
    current: Option<i64>,
    starts: u64,
    /// The current one has a start that is judged.
    is_judged: bool,
    largest: WindowCount,
}

impl Aligned {
    fn new(period: Period) -> Self {
        Self {
            length: micros(period.duration()),
            current: None,
            starts: 0,
            is_judged: false,
            largest: WindowCount::default(),
        }
    }

    fn push(&mut self, at: Timestamp) {
        self.before(at);
        self.is_judged = true;
    }

    fn before(&mut self, at: Timestamp) {
        let number = at.as_micros().div_euclid(self.length);
        if self.current != Some(number) {
            self.close();
            self.current = Some(number);
        }
        self.starts += 1;
    }

    fn close(&mut self) {
        let starts = std::mem::take(&mut self.starts);
        let is_judged = std::mem::take(&mut self.is_judged);
        if let Some(number) = self
            .current
            .filter(|_| is_judged && starts > self.largest.starts)
        {
            let end = number.saturating_add(1).saturating_mul(self.length);
            self.largest = WindowCount {
                starts,
                ends_at: Timestamp::from_micros(end),
            };
        }
    }

    fn finish(mut self) -> WindowCount {
        self.close();
        self.largest
    }
}

/// The largest bound in force within each window, as the windows move on.
pub(super) struct Bounds {
    segments: Arc<[Segment]>,
    period: Period,
    /// The segments that the window touches.
    touched: std::ops::Range<usize>,
    /// Their largest bound.
    largest: Option<u64>,
}

impl Bounds {
    pub(super) fn new(segments: Arc<[Segment]>, period: Period) -> Self {
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
    pub(super) fn at(&mut self, ends_at: Timestamp) -> Option<u64> {
        let begins_at = ends_at - self.period.duration();
        let mut touched = self.touched.clone();
        while touched.end < self.segments.len() && self.segments[touched.end].from <= ends_at {
            touched.end += 1;
        }
        while touched.start < touched.end
            && self.segments[touched.start].reaches_until() <= begins_at
        {
            touched.start += 1;
        }
        if touched != self.touched {
            self.touched = touched;
            self.largest = (self.segments[self.touched.clone()].iter())
                .try_fold(Bound::default(), |bound, segment| {
                    bound.or(&segment.policy, self.period)
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
struct Over {
    period: Period,
    violations: Violations,
    /// The end of the first window of the place at hand.
    begun_at: Timestamp,
    /// The worst window there.
    worst: Option<Violation>,
}

impl Over {
    fn new(period: Period) -> Self {
        Self {
            period,
            violations: Violations::default(),
            begun_at: Timestamp::MIN,
            worst: None,
        }
    }

    fn note(&mut self, window: &VecDeque<Start>, ends_at: Timestamp, bound: u64) {
        self.violations.early_starts += 1;
        let starts = window.len() as u64;
        let same_place = ends_at < self.begun_at + self.period.duration();
        let worst = self.worst.as_ref().filter(|_| same_place);
        match worst.map(|worst| worst.starts - worst.bound) {
            Some(excess) if starts - bound <= excess => return,
            Some(_) => {}
            None => {
                self.list();
                self.begun_at = ends_at;
            }
        }
        // What is not listed any more need not be known.
        let attempts = match self.violations.listed.len() < MAX_LISTED {
            true => newest(window),
            false => Vec::new(),
        };
        self.worst = Some(Violation {
            rule: Rule::Window(self.period),
            ends_at,
            starts,
            bound,
            attempts,
        });
    }

    fn list(&mut self) {
        let worst = self.worst.take();
        self.violations.list(worst);
    }

    fn finish(mut self) -> Violations {
        self.list();
        self.violations
    }
}
