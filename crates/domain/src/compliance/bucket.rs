//! Buckets, with a leaky meter: linear, and exact.
//!
//! "At most `burst + r·(t + SLACK)` starts in any t" says the same as: a meter
//! that rises by one with every start and falls at r never stands above
//! `burst + r·SLACK`; for its level after a start is the largest, over all
//! earlier starts, of the starts since then less r times the time since then.
//!
//! At a change from one bucket to another the allowance is the larger of both
//! until the level has come down to the new one; and as intervals that
//! straddle a change have the larger r, the meter falls at the largest r that
//! was in force since the start before.

use super::{Rule, Segment, Start, Violation, Violations, attempts};
use crate::admission::SLACK;
use crate::limit::Period;
use crate::policy::Pacing;
use crate::time::{Timestamp, micros};

/// One start, in units such that every limit falls by a whole number of them
/// a microsecond: all periods divide a day.
pub(super) const ONE: i128 = Period::Day.duration().as_micros() as i128;

/// By how many units the level falls in a microsecond.
pub(super) fn fall(pacing: Pacing) -> i128 {
    let per_period = ONE / pacing.refill.period.duration().as_micros() as i128;
    i128::from(pacing.refill.max.get()) * per_period
}

/// The highest level that keeps the promise.
fn allowance(pacing: Pacing) -> i128 {
    i128::from(pacing.burst) * ONE + fall(pacing) * i128::from(micros(SLACK))
}

/// Judges the spacing; `None` where there never was one.
pub(super) fn judge(segments: &[Segment<'_>], starts: &[Start]) -> Option<Violations> {
    segments.iter().find_map(Segment::pacing)?;
    let mut violations = Violations::default();
    let mut next = 0;
    let mut meter: Option<Meter<'_>> = None;
    for segment in segments {
        let Some(pacing) = segment.pacing() else {
            if let Some(meter) = meter.take() {
                meter.finish(&mut violations);
            }
            continue;
        };
        let first = starts.partition_point(|(at, _)| *at < segment.from);
        let after = match segment.until {
            Timestamp::MAX => starts.len(),
            until => starts.partition_point(|(at, _)| *at < until),
        };
        let meter = match &mut meter {
            Some(meter) => {
                meter.change(pacing);
                meter
            }
            None => {
                next = first;
                meter.insert(Meter::new(starts, pacing, first))
            }
        };
        while next < after {
            meter.start(next, &mut violations);
            next += 1;
        }
    }
    if let Some(meter) = meter {
        meter.finish(&mut violations);
    }
    Some(violations)
}

struct Meter<'a> {
    starts: &'a [Start],
    /// In [`ONE`]s.
    level: i128,
    /// The start before.
    as_of: Timestamp,
    /// The largest fall in force since then.
    fall: i128,
    /// What is in force now.
    pacing: Pacing,
    /// The highest level that is allowed.
    allowance: i128,
    /// The first start since the level was zero.
    since: usize,
    /// The worst place of this run of starts: first, last, units over.
    worst: Option<(usize, usize, i128)>,
}

impl<'a> Meter<'a> {
    fn new(starts: &'a [Start], pacing: Pacing, first: usize) -> Self {
        Self {
            starts,
            level: 0,
            as_of: Timestamp::MIN,
            fall: fall(pacing),
            pacing,
            allowance: allowance(pacing),
            since: first,
            worst: None,
        }
    }

    /// Another bucket from now on.
    fn change(&mut self, pacing: Pacing) {
        self.pacing = pacing;
        self.fall = self.fall.max(fall(pacing));
        self.allowance = self.allowance.max(allowance(pacing));
    }

    fn start(&mut self, index: usize, violations: &mut Violations) {
        let at = self.starts[index].0;
        let fallen = i128::from(at.as_micros()) - i128::from(self.as_of.as_micros());
        self.level = (self.level - fallen.max(0).saturating_mul(self.fall)).max(0);
        self.as_of = at;
        self.fall = fall(self.pacing);
        if self.level <= allowance(self.pacing) {
            self.allowance = allowance(self.pacing);
        }
        if self.level == 0 {
            self.list(violations);
            self.since = index;
        }
        self.level += ONE;
        let over = self.level - self.allowance;
        if over > 0 {
            violations.early_starts += 1;
            if self.worst.is_none_or(|(_, _, worst)| over > worst) {
                self.worst = Some((self.since, index, over));
            }
        }
    }

    /// Lists the worst place since the level was zero.
    fn list(&mut self, violations: &mut Violations) {
        let violation = self.worst.take().map(|(first, last, over)| {
            let starts = (last - first + 1) as u64;
            let excess = u64::try_from((over + ONE - 1) / ONE).unwrap_or(u64::MAX);
            Violation {
                rule: Rule::Bucket,
                ends_at: self.starts[last].0,
                starts,
                bound: starts.saturating_sub(excess),
                attempts: attempts(&self.starts[first..=last]),
            }
        });
        violations.list(violation);
    }

    fn finish(mut self, violations: &mut Violations) {
        self.list(violations);
    }
}
