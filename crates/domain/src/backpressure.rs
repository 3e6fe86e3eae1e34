//! Backpressure: when a backlog is too long to take more, and for how long.
//!
//! Pure: what was known, a count and a bound come in, what is known goes out.
//! Above [`HIGH_PERCENT`] of the bound events are refused, until the backlog is
//! below [`LOW_PERCENT`]. Between the two it stays as it was, so that a backlog
//! at the mark does not take and refuse by turns. A refusal says when to come
//! back: when the low mark will be reached at the rate at which the backlog
//! really drains. How often is counted is decided here, too.
//!
//! The bound of all together is no tenant's own: above its mark those are refused
//! who have filled it, and the others only above [`FULL_PERCENT`].

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::ids::{DestinationId, TenantId};
use crate::time::Timestamp;

/// Above so many per cent of the bound events are refused.
pub const HIGH_PERCENT: u64 = 80;

/// Below so many per cent they are taken again.
pub const LOW_PERCENT: u64 = 50;

/// Above so many per cent of the bound of all, everybody's events are refused; from
/// its high mark on those of tenants alone that have a long backlog themselves.
pub const FULL_PERCENT: u64 = 95;

/// A backlog of so many per cent of its tenant's bound is long where that of all is just
/// above its high mark.
pub const LONG_PERCENT: u64 = 10;

/// Backlogs below so many per cent of their bound are not told of: whoever
/// counts on takes them for this long.
pub const NOTED_PERCENT: u64 = 2;

/// The longest time that a refused client is told to wait: a backlog that does
/// not drain at all is looked at again.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The shortest.
pub const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a client is told while nothing is known of how fast the backlog drains:
/// by then more is.
pub const FIRST_RETRY_AFTER: Duration = Duration::from_secs(10);

/// How long events must have been refused before what is fewer by then says how
/// fast the backlog drains; and for a start every so often, at least for one.
const MEASURED_FOR: Duration = Duration::from_secs(10);

/// Whose backlog it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backlogged {
    /// One destination's, with whose that is: to another tenant it says nothing.
    Destination(TenantId, DestinationId),
    /// One tenant's.
    Tenant(TenantId),
    /// All together.
    All,
}

impl fmt::Display for Backlogged {
    /// Without the id: for people who know whom they asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Destination(..) => "for this destination",
            Self::Tenant(_) => "for this tenant",
            Self::All => "in all",
        })
    }
}

/// The most attempts that may be pending: waiting, admitted or started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacklogBounds {
    /// Of one destination.
    pub destination: NonZeroU64,
    /// Of one tenant.
    pub tenant: NonZeroU64,
    /// Of all together.
    pub all: NonZeroU64,
}

impl Default for BacklogBounds {
    /// Two, ten and twenty million.
    fn default() -> Self {
        let millions = |count: u64| NonZeroU64::MIN.saturating_add(count * 1_000_000 - 1);
        Self {
            destination: millions(2),
            tenant: millions(10),
            all: millions(20),
        }
    }
}

impl BacklogBounds {
    /// No bound above the one that it is a part of: what a tenant may have pending is at
    /// most what all may have, and by that it is told who has a long backlog.
    ///
    /// ```
    /// use domain::backpressure::{BacklogBounds, is_meant_by_all};
    /// use std::num::NonZeroU64;
    ///
    /// let all = NonZeroU64::new(2_000_000).unwrap();
    /// let set = BacklogBounds { all, ..BacklogBounds::default() };
    /// let bounds = set.nested();
    /// assert_eq!((bounds.tenant, bounds.destination), (all, all));
    /// // Three quarters of a million are many where all may have two.
    /// assert!(is_meant_by_all(&bounds, 1_600_000, 750_000));
    /// assert!(!is_meant_by_all(&bounds, 1_600_000, 100));
    /// assert!(!is_meant_by_all(&set, 1_600_000, 750_000), "and few where it is ten");
    /// ```
    #[must_use]
    pub fn nested(self) -> Self {
        let tenant = self.tenant.min(self.all);
        Self {
            destination: self.destination.min(tenant),
            tenant,
            all: self.all,
        }
    }

    /// The bound of one of them.
    #[must_use]
    pub const fn of(&self, whose: Backlogged) -> u64 {
        match whose {
            Backlogged::Destination(..) => self.destination.get(),
            Backlogged::Tenant(_) => self.tenant.get(),
            Backlogged::All => self.all.get(),
        }
    }
}

/// How often backlogs are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountPace {
    /// From one count to the next, while they are quick.
    pub every: Duration,
    /// A count takes at most one part in so many of the time: the next one
    /// begins so many times as long after it as it took.
    pub one_part_in: u32,
    /// But no later than this.
    pub at_most: Duration,
}

impl Default for CountPace {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            one_part_in: 20,
            at_most: Duration::from_secs(1_200),
        }
    }
}

/// The last count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCount {
    /// When it began: what was committed before is in it.
    pub at: Timestamp,
    /// How long it took.
    pub took: Duration,
}

impl CountPace {
    /// From the begin of that count to the next.
    #[must_use]
    pub fn wait(&self, took: Duration) -> Duration {
        let rest = took.saturating_mul(self.one_part_in);
        rest.clamp(self.every, self.at_most.max(self.every))
    }

    /// Whether it is time for the next. A count in the future is of a clock
    /// that was set back.
    #[must_use]
    pub fn is_due(&self, last: &LastCount, now: Timestamp) -> bool {
        now < last.at || now.since(last.at) >= self.wait(last.took)
    }
}

/// A backlog, counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Count {
    /// Whose.
    pub whose: Backlogged,
    /// Attempts.
    pub pending: u64,
    /// Starts a second that its limit allows; `None` if nothing limits, or for
    /// more than one destination.
    pub limit_per_second: Option<f64>,
}

/// Where a backlog stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Whose.
    pub whose: Backlogged,
    /// Attempts, as counted.
    pub pending: u64,
    /// Since when events are refused, and how many were pending then; `None`:
    /// they are taken.
    pub refused: Option<(Timestamp, u64)>,
    /// What refused clients are told; zero while nobody is refused.
    pub retry_after: Duration,
}

/// Where backlogs stand after a count at `now`: those that refuse or are long
/// enough to be told of, at most `most` and the longest of them, and always the
/// whole. Those of `passed` are taken for such as refused before.
#[must_use]
pub fn stand(
    (before, passed): (&[Standing], &[Backlogged]),
    counts: &[Count],
    (now, bounds): (Timestamp, &BacklogBounds),
    most: usize,
) -> Vec<Standing> {
    let before: HashMap<_, _> = before.iter().map(|one| (one.whose, one.refused)).collect();
    let mut after: Vec<Standing> = (counts.iter())
        .map(|count| {
            let refused = before.get(&count.whose).copied().flatten();
            let passed = passed.contains(&count.whose);
            let refused = refused.or(passed.then_some((now, count.pending)));
            Standing::after(refused, count, (now, bounds.of(count.whose)))
        })
        .filter(|one| {
            one.whose == Backlogged::All
                || one.is_refusing()
                || one.pending >= noted_mark(bounds.of(one.whose))
        })
        .collect();
    after.sort_unstable_by_key(|one| {
        let whole = one.whose == Backlogged::All;
        (Reverse((whole, one.is_refusing(), one.pending)), one.whose)
    });
    after.truncate(most.max(1));
    after
}

impl Standing {
    /// Events are refused.
    #[must_use]
    pub const fn is_refusing(&self) -> bool {
        self.refused.is_some()
    }

    fn after(
        refused: Option<(Timestamp, u64)>,
        count: &Count,
        (now, bound): (Timestamp, u64),
    ) -> Self {
        let refusing = refuses(bound, refused.is_some(), count.pending);
        let refused = refusing.then(|| refused.unwrap_or((now, count.pending)));
        Self {
            whose: count.whose,
            pending: count.pending,
            refused,
            retry_after: refused.map_or(Duration::ZERO, |refused| {
                retry_after(count, bound, drained_per_second(refused, count, now))
            }),
        }
    }
}

/// How many attempts fewer a second, since events are refused; `None` if that
/// is too short to say.
fn drained_per_second(
    (since, pending): (Timestamp, u64),
    count: &Count,
    now: Timestamp,
) -> Option<f64> {
    let elapsed = now.since(since).as_secs_f64();
    let one_start = (count.limit_per_second).map_or(0.0, |limit| 1.0 / limit);
    // No number, or not for ever: a limit of zero does not ask to be measured.
    let enough = one_start.max(MEASURED_FOR.as_secs_f64());
    (elapsed >= enough).then(|| pending.saturating_sub(count.pending) as f64 / elapsed)
}

/// When the low mark will be reached: at the limit in force, but no faster than
/// it really drains.
fn retry_after(count: &Count, bound: u64, measured: Option<f64>) -> Duration {
    let rate = (count.limit_per_second).into_iter().chain(measured);
    let Some(rate) = rate.reduce(f64::min) else {
        return FIRST_RETRY_AFTER;
    };
    let above = count.pending.saturating_sub(low_mark(bound)).max(1) as f64;
    let seconds = (above / rate).ceil();
    // Not so: a backlog that does not drain, and what is no number.
    if rate > 0.0 && seconds < MAX_RETRY_AFTER.as_secs_f64() {
        Duration::from_secs_f64(seconds).max(MIN_RETRY_AFTER)
    } else {
        MAX_RETRY_AFTER
    }
}

/// Whether a backlog of so many refuses, given whether it did.
#[must_use]
pub fn refuses(bound: u64, refusing: bool, pending: u64) -> bool {
    if refusing {
        pending >= low_mark(bound)
    } else {
        pending > high_mark(bound)
    }
}

/// Whether what all have pending together refuses this tenant, once it is above its
/// high mark: who has a long backlog goes first, and nobody comes above the last mark.
///
/// The less room there is up to that, the shorter is long. So those that come when others
/// have filled it leave some room as well: at 80 % a tenth of a tenant's bound is long, at
/// 90 % a thirtieth.
#[must_use]
pub const fn is_meant_by_all(bounds: &BacklogBounds, all: u64, tenant: u64) -> bool {
    let (high, full) = (
        high_mark(bounds.all.get()),
        percent(bounds.all.get(), FULL_PERCENT),
    );
    if all > full {
        return true;
    }
    let above = all.saturating_sub(high);
    let (room, left) = (
        (full - high) as u128,
        (full - high).saturating_sub(above) as u128,
    );
    let long = percent(bounds.tenant.get(), LONG_PERCENT) as u128;
    let long = match room {
        0 => long,
        _ => long * left / room,
    };
    // Who has nothing is never meant.
    tenant as u128 >= if long == 0 { 1 } else { long }
}

/// Above it, events are refused.
#[must_use]
pub const fn high_mark(bound: u64) -> u64 {
    percent(bound, HIGH_PERCENT)
}

/// Below it, they are taken again. At least 1, so that an empty backlog takes.
#[must_use]
pub const fn low_mark(bound: u64) -> u64 {
    let mark = percent(bound, LOW_PERCENT);
    if mark == 0 { 1 } else { mark }
}

/// From it on, a backlog is told of.
#[must_use]
pub const fn noted_mark(bound: u64) -> u64 {
    percent(bound, NOTED_PERCENT)
}

const fn percent(bound: u64, percent: u64) -> u64 {
    bound / 100 * percent + bound % 100 * percent / 100
}
