//! Buckets, with leaky meters: linear, and exact.
//!
//! "At most `burst + r·(t + SLACK)` starts in any t" says the same as: a meter
//! that rises by one with every start and falls at r never stands above
//! `burst + r·SLACK`; for its level after a start is the largest, over all
//! earlier starts, of the starts since then less r times the time since then.
//!
//! Two meters are kept. One begins anew with every entry of the history and
//! judges the intervals within it. The other goes on from bucket to bucket and
//! judges the intervals that straddle a change, by the largest burst and the
//! largest r in force since it last stood at zero; in the gap between the last
//! start before a change and the first one after it, it falls at the larger r.

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

/// Judges the spacing; `None` where there never was one.
pub(super) fn judge(segments: &[Segment<'_>], starts: &[Start]) -> Option<Violations> {
    segments.iter().find_map(Segment::pacing)?;
    let mut over = Over::default();
    let mut across: Option<Meter> = None;
    for segment in segments {
        let Some(pacing) = segment.pacing() else {
            over.list(starts);
            across = None;
            continue;
        };
        let first = starts.partition_point(|(at, _)| *at < segment.from);
        let after = match segment.until {
            Timestamp::MAX => starts.len(),
            until => starts.partition_point(|(at, _)| *at < until),
        };
        let mut within = Meter::new(pacing);
        let across = across.get_or_insert(within);
        across.change(pacing);
        for (index, (at, _)) in starts.iter().enumerate().take(after).skip(first) {
            if across.level_at(*at) == 0 {
                over.list(starts);
            }
            let (within, across) = (within.start(index, *at), across.start(index, *at));
            over.note(index, within.max(across));
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
    /// What is in force now.
    pacing: Pacing,
    /// The largest fall in force since the start before.
    gap_fall: i128,
    /// The largest burst and fall in force since the level was zero.
    most: (u32, i128),
    /// The first start since the level was zero.
    since: usize,
}

impl Meter {
    fn new(pacing: Pacing) -> Self {
        Self {
            level: 0,
            as_of: Timestamp::MIN,
            pacing,
            gap_fall: fall(pacing),
            most: (pacing.burst, fall(pacing)),
            since: 0,
        }
    }

    /// Another bucket from now on.
    fn change(&mut self, pacing: Pacing) {
        self.pacing = pacing;
        self.gap_fall = self.gap_fall.max(fall(pacing));
        self.most = (self.most.0.max(pacing.burst), self.most.1.max(fall(pacing)));
    }

    fn level_at(&self, at: Timestamp) -> i128 {
        let elapsed = i128::from(at.as_micros()) - i128::from(self.as_of.as_micros());
        (self.level - elapsed.max(0).saturating_mul(self.gap_fall)).max(0)
    }

    /// Takes a start; returns by how much it is over the allowance, and since
    /// which start that has been building up.
    fn start(&mut self, index: usize, at: Timestamp) -> (i128, usize) {
        self.level = self.level_at(at);
        self.as_of = at;
        self.gap_fall = fall(self.pacing);
        if self.level == 0 {
            self.since = index;
            self.most = (self.pacing.burst, fall(self.pacing));
        }
        self.level += ONE;
        let (burst, fall) = self.most;
        let allowance = i128::from(burst) * ONE + fall * i128::from(micros(SLACK));
        (self.level - allowance, self.since)
    }
}

/// Gathers starts that are over, the worst of those that build on each other.
#[derive(Default)]
struct Over {
    violations: Violations,
    /// The worst at hand: by how much, since which start, up to which.
    worst: Option<(i128, usize, usize)>,
}

impl Over {
    fn note(&mut self, last: usize, (over, since): (i128, usize)) {
        if over <= 0 {
            return;
        }
        self.violations.early_starts += 1;
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
