//! What a perfect sender could have started.

use std::collections::VecDeque;
use std::time::Duration;

use super::bucket::{ONE, fall};
use super::{InForce, Segment, segments};
use crate::limit::Limit;
use crate::policy::{Limited, Pacing, Rate};
use crate::time::Timestamp;

/// How much of its limits a destination used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// What it started.
    pub started: u64,
    /// What a perfect sender could have started ([`ideal_starts`]).
    pub allowed: u64,
}

impl Share {
    /// The share in per cent, rounded down; 100 where nothing was allowed. It
    /// can exceed 100 by the starts that a perfect sender made earlier.
    ///
    /// ```
    /// use domain::compliance::Share;
    /// assert_eq!(Share { started: 989, allowed: 1_000 }.percent(), 98);
    /// assert_eq!(Share { started: 0, allowed: 0 }.percent(), 100);
    /// ```
    #[must_use]
    pub fn percent(self) -> u64 {
        match self.allowed {
            0 => 100,
            allowed => self.started.saturating_mul(100) / allowed,
        }
    }
}

/// Instants of the last period at which a [`MeanShare`] is taken.
const INSTANTS: u32 = 32;

/// How much of its limits a destination with backlog used, on average over the
/// instants of the last period.
///
/// At one instant alone, a burst that is late counts whole or not at all: where each
/// window begins a hundredth later than a perfect sender's, twenty of them are one
/// twentieth behind for a fifth of every period, and level for the rest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanShare {
    /// What it had started.
    pub started: f64,
    /// What a perfect sender had ([`ideal_starts`]).
    pub allowed: f64,
}

impl MeanShare {
    /// The share in `[since, until)` of these starts of what was due then, ascending.
    /// What a perfect sender would have started in the `allowance` before each instant
    /// is not held against a real one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use domain::compliance::{InForce, MeanShare};
    /// use domain::destination::DestinationState;
    /// use domain::policy::LimitSettings;
    /// use domain::time::Timestamp;
    ///
    /// let at = Timestamp::from_millis;
    /// let three = LimitSettings { per_second: Some(3), ..LimitSettings::EXACT };
    /// let history = [InForce::new(at(0), &three, DestinationState::Active)];
    /// // Each second's three start a quarter of a second late.
    /// let starts: Vec<_> = (0..10).flat_map(|second| [at(second * 1_000 + 250); 3]).collect();
    /// let (due, second) = (vec![at(0); 100], Duration::from_secs(1));
    /// let share = |until, allowance| {
    ///     let span = (at(0), at(until));
    ///     MeanShare::new(&history, (&due, &starts), span, (second, allowance))
    /// };
    /// for until in [9_000, 9_100, 9_400] {
    ///     let share = share(until, Duration::ZERO);
    ///     assert!((share.allowed - share.started - 0.75).abs() < 0.1);
    /// }
    /// assert!(share(9_100, Duration::from_millis(250)).percent() > 99.9);
    /// ```
    #[must_use]
    pub fn new(
        history: &[InForce],
        (due, starts): (&[Timestamp], &[Timestamp]),
        (since, until): (Timestamp, Timestamp),
        (period, allowance): (Duration, Duration),
    ) -> Self {
        let (mut started, mut allowed) = (0_u64, 0_u64);
        for instant in 0..INSTANTS {
            let until = until - period * instant / INSTANTS;
            let within = |at: &&Timestamp| (since..until).contains(*at);
            started += starts.iter().filter(within).count() as u64;
            allowed += ideal_starts(history, due, since, until - allowance);
        }
        let mean = |sum: u64| sum as f64 / f64::from(INSTANTS);
        Self {
            started: mean(started),
            allowed: mean(allowed),
        }
    }

    /// In per cent; 100 where nothing was allowed.
    #[must_use]
    pub fn percent(self) -> f64 {
        if self.allowed > 0.0 {
            self.started * 100.0 / self.allowed
        } else {
            100.0
        }
    }
}

/// How many of these attempts a perfect sender, without latency and with room
/// for any number at once, could have started in `[since, until)`.
///
/// `due` is when each attempt could have started at the earliest, ascending.
/// Hand in what was due before `since` as well, back to when the backlog was
/// empty, so that what an earlier start blocked is not held against the sender.
/// Every window is exact and every bucket has its burst; a limit that comes
/// into force counts the starts before it too. No safety margin: it is part of
/// what the destination gave away.
///
/// Linear in the attempts, times the windows; keeps as many starts as the
/// largest limit.
///
/// ```
/// use domain::compliance::{InForce, ideal_starts};
/// use domain::destination::DestinationState;
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
///
/// let three = LimitSettings { per_second: Some(3), ..LimitSettings::EXACT };
/// let history = [InForce::new(Timestamp::from_millis(0), &three, DestinationState::Active)];
/// let due = vec![Timestamp::from_millis(0); 100];
/// let at = Timestamp::from_millis;
/// assert_eq!(ideal_starts(&history, &due, at(0), at(10_000)), 30);
/// assert_eq!(ideal_starts(&history, &due, at(500), at(1_001)), 3);
/// ```
#[must_use]
pub fn ideal_starts(
    history: &[InForce],
    due: &[Timestamp],
    since: Timestamp,
    until: Timestamp,
) -> u64 {
    ideal(history, (&[], due.iter().copied()), (since, until))
}

/// The same, of due times that come one by one, after these starts.
pub(super) fn ideal(
    history: &[InForce],
    (before, due): (&[Timestamp], impl Iterator<Item = Timestamp>),
    (since, until): (Timestamp, Timestamp),
) -> u64 {
    let segments = segments(history);
    let mut sender = PerfectSender::new(&segments);
    for at in before {
        sender.note(*at);
    }
    let mut started = 0;
    for due in due {
        match sender.start(due) {
            Some(at) if at < until => started += u64::from(at >= since),
            _ => break,
        }
    }
    started
}

struct PerfectSender<'a> {
    segments: &'a [Segment],
    /// The segment at hand.
    current: usize,
    /// The newest starts, the newest last.
    recent: VecDeque<Timestamp>,
    /// How many of them can matter.
    keep: usize,
    bucket: Bucket,
}

/// The level of the bucket in force.
#[derive(Clone, Copy)]
struct Bucket {
    /// In [`ONE`]s.
    level: i128,
    as_of: Timestamp,
}

impl Bucket {
    fn level_at(self, at: Timestamp, pacing: Pacing) -> i128 {
        let elapsed = i128::from(at.as_micros()) - i128::from(self.as_of.as_micros());
        (self.level - elapsed.max(0).saturating_mul(fall(pacing))).max(0)
    }

    fn start(&mut self, at: Timestamp, pacing: Pacing) {
        self.level = self.level_at(at, pacing) + ONE;
        self.as_of = at;
    }

    /// The first instant, `at` or later, with a token.
    fn opens(self, at: Timestamp, pacing: Pacing) -> Timestamp {
        let over = self.level_at(at, pacing) + ONE - i128::from(pacing.burst) * ONE;
        let wait = (over.max(0) + fall(pacing) - 1) / fall(pacing);
        let wait = i64::try_from(wait).unwrap_or(i64::MAX);
        Timestamp::from_micros(at.as_micros().saturating_add(wait))
    }
}

impl<'a> PerfectSender<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        let keep = segments.iter().map(most_needed).max().unwrap_or(0);
        Self {
            segments,
            current: 0,
            recent: VecDeque::new(),
            keep: keep as usize,
            bucket: Bucket {
                level: 0,
                as_of: Timestamp::MIN,
            },
        }
    }

    /// What has started already, whatever the limits say.
    fn note(&mut self, at: Timestamp) {
        self.move_on(at);
        let pacing = self.segments.get(self.current).and_then(Segment::pacing);
        self.record(at, pacing);
    }

    /// Starts the next attempt as early as can be; `None` if it never could.
    fn start(&mut self, due: Timestamp) -> Option<Timestamp> {
        let mut at = self.recent.back().map_or(due, |last| due.max(*last));
        loop {
            self.move_on(at);
            let segment = self.segments.get(self.current)?;
            let opens = match &segment.policy.rate {
                Rate::Paused => Timestamp::MAX,
                Rate::Unlimited => at,
                Rate::Limited(limited) => self.opens(limited, at),
            };
            if opens < segment.until {
                self.record(opens, segment.pacing());
                return Some(opens);
            }
            if segment.until == Timestamp::MAX {
                return None;
            }
            at = segment.until;
        }
    }

    /// Enters the segment that `at` is in.
    fn move_on(&mut self, at: Timestamp) {
        while self.current + 1 < self.segments.len() && self.segments[self.current].until <= at {
            let before = self.segments[self.current].pacing();
            self.current += 1;
            let pacing = self.segments[self.current].pacing();
            if let (None, Some(pacing)) = (before, pacing) {
                self.fill_from_starts(pacing);
            }
        }
    }

    /// A bucket that comes into force counts the starts before it.
    fn fill_from_starts(&mut self, pacing: Pacing) {
        self.bucket.level = 0;
        for at in &self.recent {
            self.bucket.start(*at, pacing);
        }
    }

    fn opens(&self, limited: &Limited, at: Timestamp) -> Timestamp {
        let mut opens = at;
        for limit in &limited.windows {
            opens = opens.max(self.window_opens(*limit));
        }
        match limited.pacing {
            Some(pacing) => self.bucket.opens(opens, pacing),
            None => opens,
        }
    }

    /// One period after the L-th newest start.
    fn window_opens(&self, limit: Limit) -> Timestamp {
        let max = limit.max.get() as usize;
        match self.recent.len().checked_sub(max) {
            Some(index) => self.recent[index] + limit.period.duration(),
            None => Timestamp::MIN,
        }
    }

    fn record(&mut self, at: Timestamp, pacing: Option<Pacing>) {
        if let Some(pacing) = pacing {
            self.bucket.start(at, pacing);
        }
        if self.recent.len() >= self.keep.max(1) {
            self.recent.pop_front();
        }
        self.recent.push_back(at);
    }
}

/// How many of the newest starts a segment's policy looks at.
fn most_needed(segment: &Segment) -> u32 {
    match &segment.policy.rate {
        Rate::Paused | Rate::Unlimited => 1,
        Rate::Limited(limited) => (limited.windows.iter())
            .map(|limit| limit.max.get())
            .chain(limited.pacing.map(|pacing| pacing.burst))
            .max()
            .unwrap_or(1),
    }
}
