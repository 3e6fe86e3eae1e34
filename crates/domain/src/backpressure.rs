//! Backpressure: when a backlog is too long to take more, and for how long.
//!
//! Pure: what was known, a count and a bound come in, what is known goes out.
//! Above [`HIGH_PERCENT`] of the bound events are refused, until the backlog is
//! below [`LOW_PERCENT`]. Between the two it stays as it was, so that a backlog
//! at the mark does not take and refuse by turns. A refusal says when to come
//! back: when the low mark will be reached at the rate at which the backlog
//! really drains.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use uuid::Uuid;

use crate::time::Timestamp;

/// Above so many per cent of the bound events are refused.
pub const HIGH_PERCENT: u64 = 80;

/// Below so many per cent they are taken again.
pub const LOW_PERCENT: u64 = 50;

/// Backlogs below so many per cent of their bound are not told of: whoever
/// counts on takes them for this long.
pub const NOTED_PERCENT: u64 = 10;

/// The longest time that a refused client is told to wait: a backlog that does
/// not drain at all is looked at again.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// The shortest.
pub const MIN_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What a client is told while nothing is known of how fast the backlog drains:
/// by then it has been counted again.
pub const FIRST_RETRY_AFTER: Duration = Duration::from_secs(10);

/// Whose backlog it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backlogged {
    /// One destination's.
    Destination(Uuid),
    /// One tenant's.
    Tenant(Uuid),
    /// All together.
    All,
}

impl fmt::Display for Backlogged {
    /// Without the id: for people who know whom they asked for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Destination(_) => "for this destination",
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
    /// Two, twenty and fifty million.
    fn default() -> Self {
        let millions = |count: u64| NonZeroU64::MIN.saturating_add(count * 1_000_000 - 1);
        Self {
            destination: millions(2),
            tenant: millions(20),
            all: millions(50),
        }
    }
}

impl BacklogBounds {
    /// The bound of one of them.
    #[must_use]
    pub const fn of(&self, whose: Backlogged) -> u64 {
        match whose {
            Backlogged::Destination(_) => self.destination.get(),
            Backlogged::Tenant(_) => self.tenant.get(),
            Backlogged::All => self.all.get(),
        }
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Whose.
    pub whose: Backlogged,
    /// Attempts, as counted.
    pub pending: u64,
    /// When.
    pub counted_at: Timestamp,
    /// Events are refused.
    pub refusing: bool,
    /// How many attempts fewer a second, while nothing was taken; `None` if
    /// that is not known.
    pub drained_per_second: Option<f64>,
    /// What refused clients are told; zero while nobody is refused.
    pub retry_after: Duration,
}

/// Where backlogs stand after a count: those that refuse or are long enough to
/// be told of, at most `most` and the longest of them, and always the whole.
/// Those of `passed` are taken for such as refused before.
#[must_use]
pub fn stand(
    (before, passed): (&[Standing], &[Backlogged]),
    counts: &[Count],
    (now, bounds): (Timestamp, &BacklogBounds),
    most: usize,
) -> Vec<Standing> {
    let before: HashMap<_, _> = before.iter().map(|one| (one.whose, one)).collect();
    let mut after: Vec<Standing> = (counts.iter())
        .map(|count| {
            let before = before.get(&count.whose).copied();
            let refused = before.is_some_and(|before| before.refusing);
            let refused = refused || passed.contains(&count.whose);
            Standing::after(before, refused, count, (now, bounds.of(count.whose)))
        })
        .filter(|one| {
            one.whose == Backlogged::All
                || one.refusing
                || one.pending >= noted_mark(bounds.of(one.whose))
        })
        .collect();
    after.sort_unstable_by_key(|one| {
        let whole = one.whose == Backlogged::All;
        (Reverse((whole, one.refusing, one.pending)), one.whose)
    });
    after.truncate(most.max(1));
    after
}

impl Standing {
    /// After a count, under a bound.
    fn after(
        before: Option<&Self>,
        refused: bool,
        count: &Count,
        (now, bound): (Timestamp, u64),
    ) -> Self {
        let refusing = refuses(bound, refused, count.pending);
        // Only while events were refused: else what came in hides it.
        let measured = (before.filter(|before| before.refusing))
            .and_then(|before| before.drained(count.pending, now));
        let drained_per_second = measured.filter(|_| refusing);
        let retry_after = match refusing {
            true => retry_after(count, bound, drained_per_second),
            false => Duration::ZERO,
        };
        Self {
            whose: count.whose,
            pending: count.pending,
            counted_at: now,
            refusing,
            drained_per_second,
            retry_after,
        }
    }

    /// The rate since, weighed equally with the one before.
    fn drained(&self, pending: u64, now: Timestamp) -> Option<f64> {
        let elapsed = now.since(self.counted_at).as_secs_f64();
        if elapsed <= 0.0 {
            return self.drained_per_second;
        }
        let rate = self.pending.saturating_sub(pending) as f64 / elapsed;
        Some((self.drained_per_second).map_or(rate, |before| f64::midpoint(before, rate)))
    }
}

/// When the low mark will be reached: at the limit in force, but no faster than
/// it really drains.
fn retry_after(count: &Count, bound: u64, measured: Option<f64>) -> Duration {
    let rate = match (count.limit_per_second, measured) {
        (Some(limit), Some(measured)) => limit.min(measured),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return FIRST_RETRY_AFTER,
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
pub const fn refuses(bound: u64, refusing: bool, pending: u64) -> bool {
    if refusing {
        pending >= low_mark(bound)
    } else {
        pending > high_mark(bound)
    }
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
