//! How long a backlog takes to drain.
//!
//! Each rule by itself says when it would let the last of a backlog start: so many
//! go at once as it has room for now, the rest as its room comes back. The latest
//! of the rules counts, and nothing starts before the time that is explained.
//! `max_in_flight` is such a rule as soon as it is known how long a request takes.

use std::time::Duration;

use super::{Circumstances, Reason};
use crate::admission::Usage;
use crate::limit::Limit;
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::time::{Timestamp, micros};

/// What was measured of a destination's requests lately.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Measured {
    /// How long a request took on average, from its start to its outcome; `None` if
    /// none has ended.
    pub request_time: Option<Duration>,
    /// How many started in a second.
    pub starts_per_second: f64,
}

impl Measured {
    /// Of requests that took so long each, and of so many starts in this time.
    ///
    /// It is the average, and not the median, that says how often places come free:
    /// one request in ten that takes ten seconds holds a place longer than nine that
    /// take one.
    #[must_use]
    pub fn of(took: impl IntoIterator<Item = Duration>, (starts, within): (u32, Duration)) -> Self {
        let (mut sum, mut count) = (Duration::ZERO, 0_u32);
        for time in took {
            (sum, count) = (sum.saturating_add(time), count.saturating_add(1));
        }
        let starts_per_second = match within.as_secs_f64() {
            seconds if seconds > 0.0 => f64::from(starts) / seconds,
            _ => 0.0,
        };
        Self {
            request_time: sum.checked_div(count),
            starts_per_second,
        }
    }
}

/// Why nobody can say how long a backlog takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// It is paused or disabled, or one of its limits is 0.
    Stopped,
    /// Its breaker is open, or half open.
    Breaker,
    /// No worker lives.
    NoWorkers,
    /// No scheduler admits it.
    Unscheduled,
    /// Only `max_in_flight` bounds it, and no request has ended.
    Untimed,
    /// It lacks places of the workers or of its tenant, and nothing has started.
    Crowded,
    /// It gets no access token.
    NoToken,
}

impl Unknown {
    /// In words, to go on after a colon.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Stopped => "it sends nothing until somebody resumes it or raises its limit",
            Self::Breaker => "its breaker is open, and when it closes is up to the receiver",
            Self::NoWorkers => "no worker lives",
            Self::Unscheduled => "no scheduler has admitted it for seconds",
            Self::Untimed => {
                "only max_in_flight bounds it, and no request has ended lately to tell how long \
                 one takes"
            }
            Self::Crowded => {
                "it waits for places that others take, and none of its requests has started \
                 lately"
            }
            Self::NoToken => "it gets no access token, and when it does is up to the token server",
        }
    }
}

/// How long so many attempts take, if nothing else comes and nothing changes.
///
/// It assumes that requests go on taking as long as they did lately, and that a
/// destination that lacks places of the workers or of its tenant goes on getting as
/// many. Where no request has ended, the limits are all that is known: a receiver
/// that is too slow for its limit takes longer.
///
/// # Errors
///
/// Why nobody can say.
///
/// ```
/// use domain::admission::{Backlog, Usage};
/// use domain::destination::DestinationState;
/// use domain::explain::{Circumstances, Measured, drains_in};
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
/// use domain::watch::Around;
/// use std::time::Duration;
///
/// let limits = LimitSettings {
///     per_second: Some(2),
///     per_day: Some(50_000),
///     ..LimitSettings::EXACT
/// };
/// let drain = |max_in_flight, request_time| {
///     let limits = LimitSettings { max_in_flight: Some(max_in_flight), ..limits };
///     let circumstances = Circumstances {
///         state: DestinationState::Active,
///         policy: &limits.policy(),
///         usage: &Usage::default(),
///         backlog: &Backlog { due: 96, urgent: 0, next_due: None },
///         around: Around::default(),
///         no_token: None,
///         workers: 1,
///         now: Timestamp::from_millis(0),
///     };
///     let measured = Measured { request_time: Some(request_time), ..Measured::default() };
///     drains_in(&circumstances, &measured, 96)
/// };
/// assert_eq!(drain(20, Duration::from_secs(1)), Ok(Duration::from_secs(47)));
/// // Four at a time, each of which takes ten seconds.
/// assert_eq!(drain(4, Duration::from_secs(10)), Ok(Duration::from_secs(230)));
/// ```
pub fn drains_in(
    circumstances: &Circumstances<'_>,
    measured: &Measured,
    backlog: u32,
) -> Result<Duration, Unknown> {
    let Some(before_last) = backlog.checked_sub(1) else {
        return Ok(Duration::ZERO);
    };
    let (reason, next_at) = circumstances.reason();
    let rate = match reason {
        Reason::Tenant | Reason::Places if measured.starts_per_second > 0.0 => {
            Some(measured.starts_per_second)
        }
        other => up_to_somebody(other).map_or(Ok(None), Err)?,
    };
    let now = circumstances.now;
    // In back-off, or held.
    let begins = match reason {
        Reason::Backoff => next_at.unwrap_or(now),
        _ => circumstances.admits_from().unwrap_or(now),
    };
    let begins = begins.max(now);
    let limits = Rules::of(circumstances.policy, circumstances.usage, begins);
    let places = Places::of(circumstances, measured);
    let untimed = places.is_none() && (limits.is_none() || reason == Reason::Concurrency);
    if untimed && rate.is_none() {
        return Err(Unknown::Untimed);
    }
    let ends = [
        next_at,
        limits.map(|limits| limits.start(before_last)),
        places.map(|places| begins + places.wait(before_last)),
        rate.map(|rate| begins + seconds(f64::from(backlog) / rate)),
    ];
    let last = ends.into_iter().flatten().max().unwrap_or(now);
    Ok(last.since(now))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Who or what the next start waits for has no time.
const fn up_to_somebody(reason: Reason) -> Option<Unknown> {
    Some(match reason {
        Reason::Paused | Reason::Disabled | Reason::ZeroLimit | Reason::NotAllowed => {
            Unknown::Stopped
        }
        Reason::Breaker | Reason::Probe => Unknown::Breaker,
        Reason::Tenant | Reason::Places => Unknown::Crowded,
        Reason::NoToken => Unknown::NoToken,
        Reason::NoWorkers => Unknown::NoWorkers,
        Reason::Unscheduled => Unknown::Unscheduled,
        Reason::Now
        | Reason::Permitted
        | Reason::NoWork
        | Reason::Backoff
        | Reason::Asked
        | Reason::Refused
        | Reason::Window
        | Reason::Group
        | Reason::Spacing
        | Reason::Smart
        | Reason::Concurrency
        | Reason::Counting => return None,
    })
}

/// What `max_in_flight` leaves, where it is known how long a request takes.
#[derive(Debug, Clone, Copy)]
struct Places {
    all: u32,
    free: u32,
    request_time: Duration,
}

impl Places {
    fn of(circumstances: &Circumstances<'_>, measured: &Measured) -> Option<Self> {
        let all = circumstances.policy.max_in_flight.max(1);
        Some(Self {
            all,
            free: all.saturating_sub(circumstances.under_way()),
            request_time: measured.request_time?,
        })
    }

    /// Until the start before which so many others are made. What is under way has
    /// begun at all times alike, as far as is known, so its places come free one after
    /// the other.
    fn wait(self, others: u32) -> Duration {
        let lacks = (others.saturating_add(1)).saturating_sub(self.free);
        let wait =
            self.request_time.as_micros().saturating_mul(lacks.into()) / u128::from(self.all);
        Duration::from_micros(u64::try_from(wait).unwrap_or(u64::MAX))
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
            Rate::Unlimited if policy.pace.is_none() && usage.group.is_none() => return None,
            Rate::Unlimited => &none,
            Rate::Limited(limited) => limited,
        };
        let window = |limit: &Limit| {
            let (max, period) = (limit.max.get(), policy.stretched(*limit));
            let mut counted = counted(usage, *limit);
            // Answered at once: later ones make it take longer.
            counted.extend([(begins, usage.unanswered(policy))]);
            Window::new(max, period, counted, begins)
        };
        let mut windows: Vec<Window> = limited.windows.iter().map(window).collect();
        windows.extend(policy.pace.map(|pace| {
            let (max, period) = (pace.max(), pace.period());
            Window::new(max, period, exact(usage, &usage.claims), begins)
        }));
        // As if nobody else in its group had anything to send.
        let group = usage.group.iter().flat_map(|group| {
            let counted: Vec<_> = group.counted().map(|at| (at, 1)).collect();
            group.limits.windows().map(move |limit| {
                let period = group.stretched(limit);
                Window::new(limit.max.get(), period, counted.clone(), begins)
            })
        });
        windows.extend(group);
        windows.sort_by_key(|window| window.period);
        let bucket = limited.pacing.map(|pacing| {
            let period = policy.refill_period(pacing);
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
