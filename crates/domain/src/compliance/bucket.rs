//! Buckets, with leaky meters: linear, and exact.
//!
//! "At most `burst + r·(t + SLACK)` starts in any t" says the same as: a meter
//! that rises by one with every start and falls at r never stands above
//! `burst + r·SLACK`; for its level after a start is the largest, over all
//! earlier starts, of the starts since then less r times the time since then.
//!
//! An interval that straddles changes is judged by the largest burst and the
//! largest r in force in it. So one meter begins with every entry of the
//! history, falls at the largest r since then, and judges the intervals that
//! begin in its entry. Meters that cannot find more than another one does are
//! dropped, which leaves one or two of them. A pause is passed over; an entry
//! that has no bucket ends them all.

use super::{Rule, Segment, Start, Violation, Violations, attempts};
use crate::admission::SLACK;
use crate::limit::Period;
use crate::policy::{Pacing, Rate};
use crate::time::{Timestamp, micros};

/// One start, in units such that every limit falls by a whole number of them
/// a microsecond: all periods divide a day.
pub(super) const ONE: i128 = Period::Day.duration().as_micros() as i128;

/// By how many units the level falls in a microsecond.
pub(super) fn fall(pacing: Pacing) -> i128 {
    let per_period = ONE / pacing.refill.period.duration().as_micros() as i128;
    i128::from(pacing.refill.max.get()) * per_period
}

/// Judges the spacing; `None` where there never was one.
pub(super) fn judge(segments: &[Segment<'_>], starts: &[Start]) -> Option<Violations> {
    segments.iter().find_map(Segment::pacing)?;
    let mut over = Over::default();
    // The oldest first.
    let mut meters: Vec<Meter> = Vec::new();
    for segment in segments {
        let first = starts.partition_point(|(at, _)| *at < segment.from);
        let after = match segment.until {
            Timestamp::MAX => starts.len(),
            until => starts.partition_point(|(at, _)| *at < until),
        };
        let Some(pacing) = segment.pacing() else {
            if segment.policy.rate != Rate::Paused {
                meters.clear();
            }
            continue;
        };
        for meter in &mut meters {
            meter.change(pacing, &starts[..first]);
        }
        meters.push(Meter::new(pacing));
        // Of two with the same bounds, the older one judges more.
        meters.dedup_by_key(|meter| (meter.burst, meter.fall));
        for (index, (at, _)) in starts.iter().enumerate().take(after).skip(first) {
            if meters.iter().all(|meter| meter.level_at(*at) == 0) {
                over.list(starts);
            }
            // Of those that stand at zero, the newest has the tightest bounds.
            let older = meters.len() - 1;
            let kept = meters
                .drain(..older)
                .filter(|meter| meter.level_at(*at) > 0);
            meters = kept
                .collect::<Vec<_>>()
                .into_iter()
                .chain(meters.last().copied())
                .collect();
            for meter in &mut meters {
                meter.start(index, *at);
                over.note(meter.since, index, meter.over());
            }
        }
    }
    over.list(starts);
    Some(over.violations)
}

/// One leaky meter. Levels are in [`ONE`]s.
#[derive(Clone, Copy)]
struct Meter {
    level: i128,
    /// The start before.
    as_of: Timestamp,
    /// The largest burst in force since it began.
    burst: u32,
    /// The largest fall in force since it began.
    fall: i128,
    /// The first start since the level was zero.
    since: usize,
}

impl Meter {
    fn new(pacing: Pacing) -> Self {
        Self {
            level: 0,
            as_of: Timestamp::MIN,
            burst: pacing.burst,
            fall: fall(pacing),
            since: 0,
        }
    }

    /// Another bucket after these starts. If it is refilled faster, so are the
    /// intervals that reach into it, from their beginning on.
    fn change(&mut self, pacing: Pacing, starts: &[Start]) {
        self.burst = self.burst.max(pacing.burst);
        if fall(pacing) <= self.fall {
            return;
        }
        self.fall = fall(pacing);
        if self.level > 0 {
            self.level = 0;
            for (index, (at, _)) in starts.iter().enumerate().skip(self.since) {
                self.start(index, *at);
            }
        }
    }

    fn level_at(&self, at: Timestamp) -> i128 {
        let elapsed = i128::from(at.as_micros()) - i128::from(self.as_of.as_micros());
        (self.level - elapsed.max(0).saturating_mul(self.fall)).max(0)
    }

    fn start(&mut self, index: usize, at: Timestamp) {
        self.level = self.level_at(at);
        self.as_of = at;
        if self.level == 0 {
            self.since = index;
        }
        self.level += ONE;
    }

    /// By how much it is over the allowance.
    fn over(&self) -> i128 {
        self.level - i128::from(self.burst) * ONE - self.fall * i128::from(micros(SLACK))
    }
}

/// Gathers starts that are over, the worst of those that build on each other.
#[derive(Default)]
struct Over {
    violations: Violations,
    /// The worst at hand: by how much, since which start, up to which.
    worst: Option<(i128, usize, usize)>,
    /// The last start that was over: two meters may say so of one.
    last: Option<usize>,
}

impl Over {
    fn note(&mut self, since: usize, last: usize, over: i128) {
        if over <= 0 {
            return;
        }
        if self.last != Some(last) {
            self.last = Some(last);
            self.violations.early_starts += 1;
        }
        if self.worst.is_none_or(|(worst, ..)| over > worst) {
            self.worst = Some((over, since, last));
        }
    }

    fn list(&mut self, starts: &[Start]) {
        let violation = self.worst.take().map(|(over, first, last)| {
            let count = (last - first + 1) as u64;
            let excess = u64::try_from((over + ONE - 1) / ONE).unwrap_or(u64::MAX);
            Violation {
                rule: Rule::Bucket,
                ends_at: starts[last].0,
                starts: count,
                bound: count.saturating_sub(excess),
                attempts: attempts(&starts[first..=last]),
            }
        });
        self.violations.list(violation);
    }
}
