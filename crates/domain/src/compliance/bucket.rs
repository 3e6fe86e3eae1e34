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

use std::collections::VecDeque;
use std::sync::Arc;

use super::{MAX_ATTEMPTS, MAX_LISTED, Rule, Segment, Start, Violation, Violations};
use crate::admission::SLACK;
use crate::ids::AttemptId;
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

/// How many starts are kept at most for a bucket that is refilled faster in the
/// middle of a busy time: its intervals reach back as far as that.
const MAX_BUSY: usize = 1_000_000;

/// Judges the spacing, start by start. Keeps the starts since a meter last stood
/// at zero, up to [`MAX_BUSY`].
pub(super) struct BucketJudge {
    segments: Arc<[Segment]>,
    /// The next segment to enter.
    next: usize,
    /// One that was entered, from whose beginning on no interval is judged yet.
    begins: Option<usize>,
    /// There is, or was, a bucket or a burst.
    judged: bool,
    /// The oldest first.
    meters: Vec<Meter>,
    busy: Busy,
    over: Over,
}

impl BucketJudge {
    pub(super) fn new(segments: Arc<[Segment]>) -> Self {
        Self {
            judged: segments.iter().any(|segment| segment.pacing().is_some()),
            segments,
            next: 0,
            begins: None,
            meters: Vec::new(),
            busy: Busy::default(),
            over: Over::default(),
        }
    }

    /// A start before all that are judged.
    pub(super) fn before(&mut self, start: Start) {
        self.fill(start);
    }

    /// The next start, no earlier than the last.
    pub(super) fn push(&mut self, start: Start) {
        let Some(index) = self.fill(start) else {
            return;
        };
        for meter in &self.meters {
            self.over.note(meter, index, &self.busy);
        }
    }

    /// Raises the meters; the start's number, where anything spaces it.
    fn fill(&mut self, start: Start) -> Option<usize> {
        if !self.judged {
            return None;
        }
        while self.next < self.segments.len() && self.segments[self.next].from <= start.0 {
            self.enter();
        }
        let at = start.0;
        if let Some(begun) = (self.begins).filter(|one| self.segments[*one].alone_from() <= at) {
            self.begin(begun);
        }
        let index = self.busy.push(start);
        let paced = (self.next.checked_sub(1)).and_then(|now| self.segments[now].pacing());
        paced?;
        if self.meters.iter().all(|meter| meter.level_at(at) == 0) {
            self.over.list();
        }
        // Of those that stand at zero, the newest has the tightest bounds.
        let older = self.meters.len().saturating_sub(1);
        let kept = self.meters.drain(..older);
        let kept: Vec<_> = kept.filter(|meter| meter.level_at(at) > 0).collect();
        self.meters = kept
            .into_iter()
            .chain(self.meters.last().copied())
            .collect();
        for meter in &mut self.meters {
            meter.start(index, at);
        }
        let since = self.meters.iter().map(|meter| meter.since).min();
        self.busy.forget_before(since.unwrap_or(index));
        Some(index)
    }

    /// Another entry of the history is in force.
    fn enter(&mut self) {
        // Of one that ends before anything is judged by it alone, nothing is.
        self.begins = None;
        let segment = &self.segments[self.next];
        self.next += 1;
        let Some(pacing) = segment.pacing() else {
            if segment.policy.rate != Rate::Paused {
                self.meters.clear();
            }
            return;
        };
        for meter in &mut self.meters {
            meter.change(pacing, &self.busy);
        }
        self.begins = Some(self.next - 1);
    }

    /// Nothing comes any more that was claimed before this segment: the intervals that
    /// begin now are judged by it.
    fn begin(&mut self, begun: usize) {
        self.begins = None;
        if let Some(pacing) = self.segments[begun].pacing() {
            self.meters.push(Meter::new(pacing));
            // Of two with the same bounds, the older one judges more.
            self.meters.dedup_by_key(|meter| (meter.burst, meter.fall));
        }
    }

    /// `None` where there never was a spacing.
    pub(super) fn finish(mut self) -> Option<Violations> {
        self.over.list();
        self.judged.then_some(self.over.violations)
    }
}

/// The newest starts, by their number in the ledger.
#[derive(Default)]
struct Busy {
    starts: VecDeque<Start>,
    /// The number of the first of them.
    first: usize,
}

impl Busy {
    fn push(&mut self, start: Start) -> usize {
        if self.starts.len() >= MAX_BUSY {
            self.forget_before(self.first + 1);
        }
        self.starts.push_back(start);
        self.first + self.starts.len() - 1
    }

    fn forget_before(&mut self, number: usize) {
        let gone = number.saturating_sub(self.first).min(self.starts.len());
        self.starts.drain(..gone);
        self.first += gone;
    }

    /// From this one on, with their numbers.
    fn since(&self, number: usize) -> impl Iterator<Item = (usize, Start)> + '_ {
        let skipped = number.saturating_sub(self.first);
        let numbers = self.first + skipped..;
        numbers.zip(self.starts.iter().skip(skipped).copied())
    }
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
    fn change(&mut self, pacing: Pacing, busy: &Busy) {
        self.burst = self.burst.max(pacing.burst);
        if fall(pacing) <= self.fall {
            return;
        }
        self.fall = fall(pacing);
        if self.level > 0 {
            self.level = 0;
            for (index, (at, _)) in busy.since(self.since) {
                self.start(index, at);
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
        self.level - room(self.burst, self.fall)
    }
}

/// A meter that runs from the last start to the first.
pub(super) struct Backwards<'a> {
    segments: &'a [Segment],
    level: i128,
    /// The start after.
    as_of: Timestamp,
    /// By how much the level falls in a microsecond, and up to where it may rise: by what
    /// is in force for the start at hand. Zeros where nothing spaces it.
    fall: i128,
    room: i128,
}

impl<'a> Backwards<'a> {
    pub(super) fn new(segments: &'a [Segment]) -> Self {
        Self {
            segments,
            level: 0,
            as_of: Timestamp::MAX,
            fall: 0,
            room: 0,
        }
    }

    /// When a start that was seen at `seen` may have been at the latest, and no later than
    /// `at`, beside those that are there.
    pub(super) fn latest(&mut self, at: Timestamp, seen: Timestamp) -> Timestamp {
        let now = self.segments.partition_point(|one| one.from <= seen);
        let Some(now) = (now.checked_sub(1)).map(|now| &self.segments[now]) else {
            return at;
        };
        let Some(pacing) = now.pacing() else {
            // A pause is passed over, as by whoever judges forwards.
            if now.policy.rate != Rate::Paused {
                (self.level, self.fall) = (0, 0);
            }
            return at;
        };
        self.fall = fall(pacing);
        self.room = room(pacing.burst, self.fall) - ONE;
        let over = self.level - self.room;
        if over <= 0 {
            return at;
        }
        let before = i64::try_from((over + self.fall - 1) / self.fall).unwrap_or(i64::MAX);
        at.min(Timestamp::from_micros(
            self.as_of.as_micros().saturating_sub(before),
        ))
    }

    /// It was at `at`.
    pub(super) fn push(&mut self, at: Timestamp) {
        let elapsed = i128::from(self.as_of.as_micros()) - i128::from(at.as_micros());
        self.level = (self.level - elapsed.max(0).saturating_mul(self.fall)).max(0);
        if self.fall > 0 {
            self.level += ONE;
        }
        self.as_of = self.as_of.min(at);
    }
}

/// Up to where a meter may stand.
fn room(burst: u32, fall: i128) -> i128 {
    i128::from(burst) * ONE + fall * i128::from(micros(SLACK))
}

/// Gathers starts that are over, the worst of those that build on each other.
#[derive(Default)]
struct Over {
    violations: Violations,
    /// The worst at hand, and by how much.
    worst: Option<(i128, Violation)>,
    /// The last start that was over: two meters may say so of one.
    last: Option<usize>,
}

impl Over {
    fn note(&mut self, meter: &Meter, last: usize, busy: &Busy) {
        let over = meter.over();
        if over <= 0 {
            return;
        }
        if self.last != Some(last) {
            self.last = Some(last);
            self.violations.early_starts += 1;
        }
        if self.worst.as_ref().is_some_and(|(worst, _)| over <= *worst) {
            return;
        }
        let starts = (last - meter.since + 1) as u64;
        let excess = u64::try_from((over + ONE - 1) / ONE).unwrap_or(u64::MAX);
        let attempts = match self.violations.listed.len() < MAX_LISTED {
            true => newest_since(busy, meter.since),
            false => Vec::new(),
        };
        let violation = Violation {
            rule: Rule::Bucket,
            ends_at: meter.as_of,
            starts,
            bound: starts.saturating_sub(excess),
            attempts,
        };
        self.worst = Some((over, violation));
    }

    fn list(&mut self) {
        let worst = self.worst.take();
        self.violations.list(worst.map(|(_, violation)| violation));
    }
}

fn newest_since(busy: &Busy, since: usize) -> Vec<AttemptId> {
    let skipped = since.saturating_sub(busy.first);
    let count = busy.starts.len().saturating_sub(skipped);
    let newest = skipped + count.saturating_sub(MAX_ATTEMPTS);
    (busy.starts.iter().skip(newest))
        .map(|(_, attempt)| *attempt)
        .collect()
}
