//! Under-delivery: there was a backlog, and less started than nine tenths of
//! what the limit would have let start.
//!
//! Judged slot by slot of a [`Curve`], so in bounded memory. A slot is short if
//! something waited all the time, and none of the limits was used to nine tenths
//! in the period that ends with it. What cannot be known is held against nobody:
//! periods that began before the curve, or in which a limit changed.

use std::time::Duration;

use super::{InForce, Segment, segments};
use crate::limit::{Count, Limit};
use crate::policy::{Policy, Rate};
use crate::series::Curve;
use crate::smart::Effective;
use crate::time::Timestamp;
use crate::watch::Shortfall;

/// Which part of a limit has to be used at least.
const ENOUGH: f64 = 0.9;

/// Use is judged over so long at least: fast limits start in batches.
const SPAN: Duration = Duration::from_secs(10);

/// The most stretches that are listed; all their seconds are counted.
pub const MAX_STRETCHES: usize = 100;

/// A time in which a destination got less than its limit allowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// When it began, to a slot.
    pub from: Timestamp,
    /// When it ended.
    pub until: Timestamp,
    /// Why.
    pub reason: Shortfall,
    /// What started in it.
    pub starts: u64,
    /// What the limit allows in so long; `None` is any number.
    pub allowed: Option<f64>,
    /// The most that waited.
    pub backlog: u64,
}

/// Something that was written down when it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noted {
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub until: Timestamp,
    /// What it was.
    pub reason: Shortfall,
}

/// What is known beside the curve.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// What was in force when.
    pub history: &'a [InForce],
    /// What smart delivery lowered from when on, the earliest first.
    pub smart: &'a [(Timestamp, Effective)],
    /// Breakers, and shortfalls that operators were told of.
    pub noted: &'a [Noted],
}

/// Where a destination got less than its limit allowed, and why: what was
/// written down then; else what shows in the curve itself. What shows nothing is
/// for want of workers.
///
/// ```
/// use domain::compliance::{Evidence, InForce, under_delivery};
/// use domain::destination::DestinationState;
/// use domain::policy::LimitSettings;
/// use domain::series::{Passage, Series};
/// use domain::time::Timestamp;
/// use domain::watch::Shortfall;
///
/// let at = Timestamp::from_millis;
/// let ten = LimitSettings { per_second: Some(10), ..LimitSettings::EXACT };
/// let history = [InForce::new(at(0), &ten, DestinationState::Active)];
/// let mut series = Series::new(at(0), at(60_000), 60);
/// for _ in 0..900 {
///     // All due at once, and none has started.
///     series.add(&Passage { due_at: at(0), started_at: None, finished_at: None, refused: false });
/// }
/// let evidence = Evidence { history: &history, ..Evidence::default() };
/// let found = under_delivery(&series.finish(), &evidence);
/// assert_eq!((found.len(), found[0].reason), (1, Shortfall::Places));
/// ```
#[must_use]
pub fn under_delivery(curve: &Curve, evidence: &Evidence<'_>) -> Vec<Stretch> {
    let segments = segments(evidence.history);
    let look = Look {
        curve,
        sums: Sums::of(curve),
        segments: &segments,
        evidence,
    };
    let mut stretches: Vec<Stretch> = Vec::new();
    for slot in 0..curve.slots.len() {
        let Some(found) = look.at(slot) else {
            continue;
        };
        match stretches.last_mut() {
            Some(last) if last.until == found.from && last.reason == found.reason => {
                last.until = found.until;
                last.starts += found.starts;
                last.allowed = last.allowed.zip(found.allowed).map(|(a, b)| a + b);
                last.backlog = last.backlog.max(found.backlog);
            }
            _ => stretches.push(found),
        }
    }
    stretches
}

/// Sums over the slots before each.
struct Sums {
    starts: Vec<u64>,
    refused: Vec<u64>,
    in_flight_micros: Vec<u64>,
    /// In how many of them something waited all the time.
    backlogged: Vec<u64>,
}

impl Sums {
    fn of(curve: &Curve) -> Self {
        let sum = |of: fn(&crate::series::Slot) -> u64| {
            let mut sum = 0;
            let sums = curve.slots.iter().map(|slot| {
                sum += of(slot);
                sum
            });
            std::iter::once(0).chain(sums).collect()
        };
        Self {
            starts: sum(|slot| slot.starts),
            refused: sum(|slot| slot.refused),
            in_flight_micros: sum(|slot| slot.in_flight_micros),
            backlogged: sum(|slot| u64::from(slot.backlog_throughout > 0)),
        }
    }
}

/// Of the slots up to and with `slot`, `count` of them.
fn within(sums: &[u64], slot: usize, count: usize) -> u64 {
    sums[slot + 1] - sums[slot + 1 - count]
}

struct Look<'a> {
    curve: &'a Curve,
    sums: Sums,
    segments: &'a [Segment],
    evidence: &'a Evidence<'a>,
}

impl Look<'_> {
    /// The slot, if it is short.
    fn at(&self, slot: usize) -> Option<Stretch> {
        let (from, until) = (self.curve.begins_at(slot), self.curve.begins_at(slot + 1));
        if until > self.curve.until {
            return None;
        }
        let policy = self.in_force(from, until)?;
        let spans = self.spans(policy)?;
        let longest = spans.iter().map(|span| span.slots).max()?;
        if longest > slot + 1 || within(&self.sums.backlogged, slot, longest) < longest as u64 {
            return None;
        }
        self.in_force(self.curve.begins_at(slot + 1 - longest), until)?;
        let starts = |slots| within(&self.sums.starts, slot, slots) as f64;
        let used = |span: &Span| starts(span.slots) + 1.0 >= span.allowed * ENOUGH;
        if spans.iter().any(used) {
            return None;
        }
        let step = self.curve.step.as_secs_f64();
        let allowed = policy.starts_per_second().map(|rate| rate * step);
        let here = &self.curve.slots[slot];
        if allowed.is_some_and(|allowed| here.starts as f64 >= allowed * ENOUGH) {
            return None;
        }
        Some(Stretch {
            from,
            until,
            reason: self.reason(slot, longest, policy),
            starts: here.starts,
            allowed,
            backlog: here.backlog.max(here.backlog_throughout),
        })
    }

    /// What was in force all the time: entries that change no rate are one.
    fn in_force(&self, from: Timestamp, until: Timestamp) -> Option<&Policy> {
        let mut all =
            (self.segments.iter()).filter(|segment| segment.from < until && segment.until > from);
        let first = all.next()?;
        let alike = |segment: &Segment| {
            let (one, other) = (&first.policy, &segment.policy);
            one.rate == other.rate && one.margin == other.margin
        };
        let last = all.try_fold(first, |_, segment| alike(segment).then_some(segment))?;
        Some(&last.policy)
    }

    /// What each limit is judged over; `None` where nothing may start.
    fn spans(&self, policy: &Policy) -> Option<Vec<Span>> {
        let span = |period: Duration, allowed_in: &dyn Fn(Duration) -> f64| {
            let length = period.max(SPAN).max(self.curve.step);
            let slots = length.as_micros().div_ceil(self.curve.step.as_micros());
            let slots = usize::try_from(slots).unwrap_or(usize::MAX);
            let length = self
                .curve
                .step
                .saturating_mul(u32::try_from(slots).unwrap_or(u32::MAX));
            Span {
                slots,
                allowed: allowed_in(length),
            }
        };
        let rate = |limit: Limit, time: Duration| {
            let period = policy.stretched(limit).as_secs_f64();
            time.as_secs_f64() / period * f64::from(limit.max.get())
        };
        match &policy.rate {
            Rate::Paused => None,
            // A round trip in each period, which starts do not tell.
            _ if policy.count == Count::Response => None,
            // Anything at all shows that it does not stand still.
            Rate::Unlimited => Some(vec![span(SPAN, &|_| 2.0)]),
            Rate::Limited(limited) => {
                let windows = (limited.windows.iter())
                    .map(|limit| span(policy.stretched(*limit), &|time| rate(*limit, time)));
                let bucket = limited.pacing.map(|pacing| {
                    let one = policy.refill_period(pacing) / pacing.refill.max.get();
                    span(one * 10, &|time| time.as_secs_f64() / one.as_secs_f64())
                });
                Some(windows.chain(bucket).collect())
            }
        }
    }

    fn reason(&self, slot: usize, longest: usize, policy: &Policy) -> Shortfall {
        let (from, until) = (self.curve.begins_at(slot), self.curve.begins_at(slot + 1));
        let noted = self.evidence.noted.iter();
        if let Some(noted) = noted
            .clone()
            .find(|one| one.from < until && one.until > from)
        {
            return noted.reason;
        }
        let in_flight = within(&self.sums.in_flight_micros, slot, 1) as f64;
        let in_flight = in_flight / self.curve.step.as_micros() as f64;
        if in_flight >= f64::from(policy.max_in_flight) * ENOUGH {
            return Shortfall::Concurrency;
        }
        let before = self
            .evidence
            .smart
            .partition_point(|(from, _)| *from < until);
        let lowered = before
            .checked_sub(1)
            .map(|last| self.evidence.smart[last].1);
        let lowered = lowered.unwrap_or_default().below(policy);
        let slots = longest.min(slots_of(SPAN, self.curve.step));
        let started = within(&self.sums.starts, slot, slots) as f64 + 1.0;
        let seconds = self.curve.step.as_secs_f64() * slots as f64;
        let as_fast = |rate: f64| started >= rate * seconds * ENOUGH;
        let as_many = |most: u32| in_flight >= f64::from(most) * ENOUGH;
        if lowered.per_second.is_some_and(as_fast) || lowered.max_in_flight.is_some_and(as_many) {
            return Shortfall::Smart;
        }
        match within(&self.sums.refused, slot, slots) {
            0 => Shortfall::Places,
            _ => Shortfall::Refused,
        }
    }
}

fn slots_of(span: Duration, step: Duration) -> usize {
    usize::try_from(span.as_micros().div_ceil(step.as_micros())).unwrap_or(1)
}

/// A limit, over as many slots as it is judged in.
struct Span {
    slots: usize,
    allowed: f64,
}

#[cfg(test)]
mod tests;
