//! How long a backlog takes to drain.
//!
//! Each rule by itself says when it would let the last of a backlog start: so many
//! go at once as it has room for now, the rest as its room comes back. The latest
//! of the rules counts, and nothing starts before the time that is explained.

use std::time::Duration;

use super::{Circumstances, Reason};
use crate::admission::Usage;
use crate::limit::Limit;
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::time::{Timestamp, micros};

/// How long so many attempts take, if nothing else comes and nothing changes.
///
/// `None` where nobody can say, because it is up to the receiver, to its owner or
/// to the workers: while the breaker is open, while it is paused or disabled, where
/// places are what it lacks, and where nothing limits. A receiver that is too slow
/// for its limit takes longer: the limit is all that this knows.
///
/// ```
/// use domain::admission::{Backlog, Usage};
/// use domain::destination::DestinationState;
/// use domain::explain::{Circumstances, drains_in};
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
/// use domain::watch::Around;
/// use std::time::Duration;
///
/// let limits = LimitSettings {
///     per_second: Some(2),
///     per_day: Some(50_000),
///     ..LimitSettings::default()
/// };
/// let drain = drains_in(&Circumstances {
///     state: DestinationState::Active,
///     policy: &limits.policy(),
///     usage: &Usage::default(),
///     backlog: &Backlog { due: 96, next_due: None },
///     around: Around::default(),
///     workers: 1,
///     now: Timestamp::from_millis(0),
/// }, 96);
/// assert_eq!(drain, Some(Duration::from_secs(47)));
/// ```
#[must_use]
pub fn drains_in(circumstances: &Circumstances<'_>, backlog: u32) -> Option<Duration> {
    let Some(before_last) = backlog.checked_sub(1) else {
        return Some(Duration::ZERO);
    };
    let (reason, next_at) = circumstances.reason();
    if is_up_to_somebody(reason) {
        return None;
    }
    let now = circumstances.now;
    // In back-off, or held.
    let begins = match reason {
        Reason::Backoff => next_at.unwrap_or(now),
        _ => circumstances.admits_from().unwrap_or(now),
    };
    let rules = Rules::of(circumstances.policy, circumstances.usage, begins.max(now))?;
    let last = rules.start(before_last).max(next_at.unwrap_or(now));
    Some(last.since(now))
}

/// Who or what the next start waits for has no time.
const fn is_up_to_somebody(reason: Reason) -> bool {
    match reason {
        Reason::Paused
        | Reason::Disabled
        | Reason::ZeroLimit
        | Reason::Breaker
        | Reason::Probe
        | Reason::Concurrency
        | Reason::Tenant
        | Reason::NoWorkers
        | Reason::Places
        | Reason::Unscheduled => true,
        Reason::Now
        | Reason::Permitted
        | Reason::NoWork
        | Reason::Backoff
        | Reason::Asked
        | Reason::Refused
        | Reason::Window
        | Reason::Spacing
        | Reason::Smart
        | Reason::Counting => false,
    }
}

/// What a destination's starts have to pass.
struct Rules {
    begins: Timestamp,
    /// The shortest first.
    windows: Vec<Window>,
    bucket: Option<Bucket>,
}

/// At most `max` starts in any `period`.
struct Window {
    max: u32,
    period: Duration,
    /// When its places are free, the first `max` of them: from then on, how many.
    free: Vec<(Timestamp, u32)>,
}

/// A bucket, by what it holds when it begins.
struct Bucket {
    pacing: Pacing,
    period: Duration,
    missing_micro: i64,
}

impl Rules {
    /// `None` where nothing limits, or nothing may start.
    fn of(policy: &Policy, usage: &Usage, begins: Timestamp) -> Option<Self> {
        let none = Limited {
            windows: Vec::new(),
            pacing: None,
        };
        let limited = match &policy.rate {
            Rate::Paused => return None,
            Rate::Unlimited if policy.pace.is_none() => return None,
            Rate::Unlimited => &none,
            Rate::Limited(limited) => limited,
        };
        let window = |limit: &Limit| {
            let (max, period) = (limit.max.get(), policy.stretched(limit.period));
            Window::new(max, period, counted(usage, *limit), begins)
        };
        let mut windows: Vec<Window> = limited.windows.iter().map(window).collect();
        windows.extend(policy.pace.map(|pace| {
            let (max, period) = (pace.max(), pace.period());
            Window::new(max, period, exact(usage, &usage.starts), begins)
        }));
        windows.sort_by_key(|window| window.period);
        let bucket = limited.pacing.map(|pacing| {
            let period = policy.stretched(pacing.refill.period);
            let level = (usage.meter).refilled(pacing, micros(period), begins);
            Bucket {
                pacing,
                period,
                missing_micro: level.missing_micro,
            }
        });
        Some(Self {
            begins,
            windows,
            bucket,
        })
    }

    /// When the start is made before which so many others were.
    fn start(&self, others: u32) -> Timestamp {
        let spaced = (self.bucket.as_ref()).map(|bucket| self.begins + bucket.wait(others));
        let mut last = spaced.unwrap_or(self.begins);
        for (place, window) in self.windows.iter().enumerate() {
            let (shorter, _) = self.windows.split_at(place);
            let (cycles, of_cycle) = (others / window.max, others % window.max);
            // Places that come free together are used one after the other, as the
            // shorter rules allow.
            let mut before = 0;
            let mut latest = self.begins;
            for (free, places) in &window.free {
                if before > of_cycle {
                    break;
                }
                latest = latest.max(*free + self.fresh(shorter, of_cycle - before));
                before += places;
            }
            last = last.max(latest + window.period.saturating_mul(cycles));
        }
        last
    }

    /// How long so many starts before the last one take, where nothing was started
    /// before them.
    fn fresh(&self, shorter: &[Window], others: u32) -> Duration {
        let windows = shorter
            .iter()
            .map(|window| window.period.saturating_mul(others / window.max));
        let full = self.bucket.as_ref().map(|bucket| {
            let full = Bucket {
                missing_micro: 0,
                ..*bucket
            };
            full.wait(others)
        });
        windows.chain(full).max().unwrap_or(Duration::ZERO)
    }
}

impl Window {
    fn new(
        max: u32,
        period: Duration,
        mut starts: Vec<(Timestamp, u32)>,
        begins: Timestamp,
    ) -> Self {
        // Each holds its place for a period. Of more than there are places, which a
        // lower limit leaves behind, the newest hold them.
        starts.retain(|(at, _)| *at + period > begins);
        starts.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let mut left = max;
        let mut free = Vec::new();
        for (at, count) in starts {
            let held = count.min(left);
            left -= held;
            free.push((at + period, held));
        }
        free.push((begins, left));
        free.retain(|(_, places)| *places > 0);
        free.reverse();
        Self { max, period, free }
    }
}

impl Bucket {
    /// Until the token for a start before which so many others are made.
    fn wait(&self, others: u32) -> Duration {
        let room = i128::from(self.pacing.burst) * 1_000_000 - i128::from(self.missing_micro);
        let lacks = (i128::from(others) + 1) * 1_000_000 - room;
        let refill = i128::from(self.pacing.refill.max.get()) * 1_000_000;
        let wait = lacks.max(0) * i128::from(micros(self.period)) / refill;
        Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX))
    }
}

/// What a limit counts: starts, and permits that may still become some.
fn counted(usage: &Usage, limit: Limit) -> Vec<(Timestamp, u32)> {
    let coarse = limit
        .is_coarse()
        .then(|| (usage.coarse.iter()).find(|coarse| coarse.period == limit.period));
    match coarse.flatten() {
        Some(coarse) => {
            let mut starts = exact(usage, &coarse.unfolded);
            starts.extend((coarse.buckets.iter()).map(|one| (one.ends_at, one.starts)));
            starts
        }
        None => exact(usage, &usage.starts),
    }
}

fn exact(usage: &Usage, starts: &[Timestamp]) -> Vec<(Timestamp, u32)> {
    let permits = usage.outstanding.iter().map(|one| one.not_before);
    starts
        .iter()
        .copied()
        .chain(permits)
        .map(|at| (at, 1))
        .collect()
}
