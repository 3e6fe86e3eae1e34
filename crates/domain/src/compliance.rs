//! Judging a ledger after the fact, by the bounds that admission promises.
//!
//! A [`Judge`] takes what was in force when, and every recorded start one by one,
//! and says where a bound was broken and by which attempts; so a ledger of any
//! length is judged in bounded memory. [`ideal_starts`] says how
//! many starts a perfect sender could have made. The audit command, the demo,
//! the simulation and the tests all call these, so none has a bound of its
//! own. Nothing here knows how admission works: it counts.
//!
//! The bounds are those of the plain period; a safety margin only makes the
//! sender stricter than its promise.
//!
//! What is judged is claims or sends; and arrivals, whose receiver may have stood still
//! before it read them ([`AtReceiver`]). A change of limits is in force for claims at once.
//! What had been claimed is sent all the same, within [`MAX_CLAIM_TO_SEND`]: so a change
//! reaches sends by that much later, and until then they may be as many as either allows.
//!
//! **Windows.** Every half-open window (w − P, w] holds at most the largest
//! bound in force within it. **Buckets.** Any t holds at most `burst + r·(t +
//! SLACK)` starts. **Pauses.** None at all.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::{MAX_CLAIM_TO_SEND, known_until};
use crate::destination::DestinationState;
use crate::ids::AttemptId;
use crate::limit::Period;
use crate::policy::{LimitSettings, Policy, Rate};
use crate::time::Timestamp;

mod arrivals;
mod bucket;
mod dues;
mod ideal;
mod pause;
mod short;
mod window;

pub use arrivals::{Arrival, ArrivalVerdict, AtReceiver, Stall, Stalls, USUAL_MARGIN};
use bucket::BucketJudge;
pub use dues::Dues;
pub use ideal::{MeanShare, Share, ideal_starts};
use pause::PauseJudge;
pub use short::{Evidence, MAX_STRETCHES, Noted, Stretch, under_delivery};
use window::WindowJudge;
pub use window::{largest_aligned, largest_sliding};

/// The most violations that are listed per rule; all are counted.
pub const MAX_LISTED: usize = 100;

/// The most attempts that are listed per violation, the newest; all are
/// counted.
pub const MAX_ATTEMPTS: usize = 1_000;

/// A start in the ledger: when, and of which attempt.
pub type Start = (Timestamp, AttemptId);

/// Until when, exclusive, a ledger can be judged that is wanted until `asked`, or until
/// now: later starts may not be known yet, and stand in windows that they were not in.
#[must_use]
pub fn judged_until(asked: Option<Timestamp>, now: Timestamp) -> Timestamp {
    asked.map_or(known_until(now), |asked| asked.min(known_until(now)))
}

/// What was in force from a time on, until the next entry.
#[derive(Debug, Clone, PartialEq)]
pub struct InForce {
    /// From when on. The first entry is taken to reach back for ever.
    pub from: Timestamp,
    /// What was in force.
    pub policy: Policy,
}

impl InForce {
    /// An entry of limit history: settings resolved against the tier, and the
    /// destination's state, of which all but `active` pauses.
    #[must_use]
    pub fn new(from: Timestamp, effective: &LimitSettings, state: DestinationState) -> Self {
        let mut policy = effective.policy();
        if state != DestinationState::Active {
            policy.rate = Rate::Paused;
        }
        Self { from, policy }
    }
}

/// How many starts a window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowCount {
    /// Starts in it.
    pub starts: u64,
    /// Its end: inclusive for a sliding window, exclusive for an aligned one.
    pub ends_at: Timestamp,
}

/// What a start may break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A sliding window of this period.
    Window(Period),
    /// A bucket, or the `burst` of a window.
    Bucket,
    /// Nothing starts while the destination is paused.
    Pause,
}

/// One place where a rule was broken: the worst of those that overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which rule.
    pub rule: Rule,
    /// The last start in the window.
    pub ends_at: Timestamp,
    /// Starts in the window.
    pub starts: u64,
    /// Starts that were allowed in it.
    pub bound: u64,
    /// The attempts that started in it, in order; the newest
    /// [`MAX_ATTEMPTS`].
    pub attempts: Vec<AttemptId>,
}

/// Where a rule was broken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Violations {
    /// How many starts came too early: those at which the count was over.
    pub early_starts: u64,
    /// The places, in order of time; the first [`MAX_LISTED`]. Places whose
    /// windows overlap are one.
    pub listed: Vec<Violation>,
}

impl Violations {
    /// Whether the rule was kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.early_starts == 0
    }

    fn list(&mut self, violation: Option<Violation>) {
        if self.listed.len() < MAX_LISTED {
            self.listed.extend(violation);
        }
    }
}

/// How the limit of one period was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitVerdict {
    /// Which limit's.
    pub period: Period,
    /// The fullest second (minute, hour, day) of the calendar, as a `group by
    /// date_trunc` sees it; it can hide twice the limit.
    pub aligned: WindowCount,
    /// The fullest sliding window; of equal ones the first.
    pub sliding: WindowCount,
    /// What was allowed in that window; `None` is any number.
    pub bound: Option<u64>,
    /// Windows that held more than their bound.
    pub violations: Violations,
}

/// What a ledger shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// All starts that were judged.
    pub starts: u64,
    /// One per period that was limited at any time, the shortest first.
    pub limits: Vec<LimitVerdict>,
    /// The spacing; `None` where no bucket or burst was ever in force.
    pub bucket: Option<Violations>,
    /// Starts in a pause.
    pub pause: Violations,
}

impl Verdict {
    /// Whether every rule was kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.violations().next().is_none()
    }

    /// All listed violations, rule by rule.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.rules().flat_map(|violations| &violations.listed)
    }

    /// Starts that came too early, by any rule.
    #[must_use]
    pub fn early_starts(&self) -> u64 {
        self.rules().map(|violations| violations.early_starts).sum()
    }

    fn rules(&self) -> impl Iterator<Item = &Violations> {
        (self.limits.iter().map(|limit| &limit.violations))
            .chain(&self.bucket)
            .chain([&self.pause])
    }
}

/// Judges the starts of one destination, ascending, by what was in force when.
///
/// Linear in the starts. What lies before the first entry is judged by it; by
/// an empty history nothing is judged.
///
/// ```
/// use domain::compliance::{InForce, judge};
/// use domain::destination::DestinationState;
/// use domain::ids::AttemptId;
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
///
/// let two = LimitSettings { per_second: Some(2), ..LimitSettings::EXACT };
/// let history = [InForce::new(Timestamp::from_millis(0), &two, DestinationState::Active)];
/// let start = |id, ms| (Timestamp::from_millis(ms), AttemptId(id));
/// // Two in every second of the calendar, and all four within 900 ms.
/// let verdict = judge(&history, &[start(1, 200), start(2, 900), start(3, 1_000), start(4, 1_100)]);
/// let limit = &verdict.limits[0];
/// assert_eq!((limit.aligned.starts, limit.sliding.starts, limit.bound), (2, 4, Some(2)));
/// assert_eq!(limit.violations.listed[0].attempts, [1, 2, 3, 4].map(AttemptId));
/// ```
#[must_use]
pub fn judge(history: &[InForce], starts: &[Start]) -> Verdict {
    all(Judge::new(history), starts)
}

/// The same of when requests were sent, which a change reaches later.
#[must_use]
pub fn judge_sends(history: &[InForce], sends: &[Start]) -> Verdict {
    all(Judge::of_sends(history), sends)
}

fn all(mut judge: Judge, starts: &[Start]) -> Verdict {
    starts.iter().for_each(|start| judge.push(*start));
    judge.finish()
}

/// Judges the starts of one destination one by one, in order: [`judge`] for
/// ledgers that do not fit into memory.
///
/// It keeps the starts of one window of each limit, and of buckets those since
/// they were last full, a million at most.
pub struct Judge {
    starts: u64,
    windows: Vec<WindowJudge>,
    bucket: BucketJudge,
    pause: PauseJudge,
}

impl Judge {
    /// By what was in force when. Each change is in force at once.
    #[must_use]
    pub fn new(history: &[InForce]) -> Self {
        Self::by(segments(history).into())
    }

    /// The same of sends: what had been claimed before a change goes out after it.
    #[must_use]
    pub fn of_sends(history: &[InForce]) -> Self {
        let mut segments = segments(history);
        for segment in &mut segments {
            segment.later = MAX_CLAIM_TO_SEND;
        }
        Self::by(segments.into())
    }

    fn by(segments: Arc<[Segment]>) -> Self {
        let limited = |period: &Period| {
            let mut segments = segments.iter();
            segments.any(|segment| limits(&segment.policy, *period))
        };
        let periods = Period::ALL.into_iter().filter(limited);
        Self {
            starts: 0,
            windows: periods
                .map(|period| WindowJudge::new(Arc::clone(&segments), period))
                .collect(),
            bucket: BucketJudge::new(Arc::clone(&segments)),
            pause: PauseJudge::new(Arc::clone(&segments)),
        }
    }

    /// A start before the time that is judged: it counts in windows and buckets
    /// that reach over its beginning, and is not judged itself. All of them come
    /// before the first [`Self::push`], in order.
    pub fn before(&mut self, start: Start) {
        self.windows
            .iter_mut()
            .for_each(|window| window.before(start));
        self.bucket.before(start);
    }

    /// The next start, no earlier than the one before it.
    pub fn push(&mut self, start: Start) {
        self.starts += 1;
        self.windows
            .iter_mut()
            .for_each(|window| window.push(start));
        self.bucket.push(start);
        self.pause.push(start);
    }

    /// What all of them show.
    #[must_use]
    pub fn finish(self) -> Verdict {
        let windows = self.windows.into_iter();
        Verdict {
            starts: self.starts,
            limits: windows.map(WindowJudge::finish).collect(),
            bucket: self.bucket.finish(),
            pause: self.pause.finish(),
        }
    }
}

/// An entry of the history with its end.
#[derive(Debug, Clone)]
struct Segment {
    from: Timestamp,
    until: Timestamp,
    policy: Policy,
    /// How much later its beginning and its end reach what is judged.
    later: Duration,
}

impl Segment {
    /// From when on nothing is left of what was in force before.
    fn alone_from(&self) -> Timestamp {
        self.from + self.later
    }

    /// Until when it allows what it allowed.
    fn reaches_until(&self) -> Timestamp {
        self.until + self.later
    }

    fn pacing(&self) -> Option<crate::policy::Pacing> {
        match &self.policy.rate {
            Rate::Limited(limited) => limited.pacing,
            Rate::Paused | Rate::Unlimited => None,
        }
    }
}

/// The history as intervals without gaps, in order, from ever to ever. Of
/// entries of the same time only the last was ever in force.
fn segments(history: &[InForce]) -> Vec<Segment> {
    let mut entries: Vec<&InForce> = history.iter().collect();
    entries.sort_by_key(|entry| entry.from);
    let mut segments: Vec<Segment> = Vec::with_capacity(entries.len());
    for entry in entries {
        if segments.last().is_some_and(|last| last.from == entry.from) {
            segments.pop();
        }
        if let Some(last) = segments.last_mut() {
            last.until = entry.from;
        }
        segments.push(Segment {
            from: entry.from,
            until: Timestamp::MAX,
            policy: entry.policy.clone(),
            later: Duration::ZERO,
        });
    }
    if let Some(first) = segments.first_mut() {
        first.from = Timestamp::MIN;
    }
    segments
}

/// How far before `since` starts still count in `[since, until)`: as long as the
/// longest window in force in it, or as a full bucket takes to empty; a day at
/// most.
#[must_use]
pub fn reaches_back(history: &[InForce], (since, until): (Timestamp, Timestamp)) -> Duration {
    let segments = segments(history);
    let within = |segment: &&Segment| segment.from < until && segment.until >= since;
    let reach = segments.iter().filter(within).map(|segment| {
        let Rate::Limited(limited) = &segment.policy.rate else {
            return Duration::ZERO;
        };
        let windows = limited.windows.iter().map(|limit| limit.period.duration());
        let bucket = limited.pacing.map(|pacing| {
            let refill = pacing.refill;
            let full = refill.period.duration().saturating_mul(pacing.burst) / refill.max.get();
            full.max(refill.period.duration())
        });
        windows.chain(bucket).max().unwrap_or_default()
    });
    let longest = reach.max().unwrap_or_default();
    longest.min(Period::Day.duration())
}

/// Whether a policy says anything about windows of this period.
fn limits(policy: &Policy, period: Period) -> bool {
    match &policy.rate {
        Rate::Paused | Rate::Unlimited => false,
        Rate::Limited(limited) => (limited.windows.iter())
            .chain(limited.pacing.as_ref().map(|pacing| &pacing.refill))
            .any(|limit| limit.period == period),
    }
}

/// The newest of these attempts, in order.
fn newest(starts: &VecDeque<Start>) -> Vec<AttemptId> {
    let skipped = starts.len().saturating_sub(MAX_ATTEMPTS);
    (starts.iter().skip(skipped))
        .map(|(_, attempt)| *attempt)
        .collect()
}

#[cfg(test)]
mod tests;
