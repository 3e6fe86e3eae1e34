//! Whether a destination gets what its limit allows, and why not.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::{Backlog, CoarseStarts, Usage};
use crate::health::{HoldReason, UnknownWord};
use crate::limit::Limit;
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::time::Timestamp;

/// Which part of a limit has to be used at least.
const ENOUGH: f64 = 0.9;

/// Why a destination with a backlog gets less than its limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shortfall {
    /// The receiver named a time before which it wants nothing.
    Asked,
    /// The receiver answered 429.
    Refused,
    /// The breaker is open.
    Breaker,
    /// Its `max_in_flight` are under way: the receiver answers slowly.
    Concurrency,
    /// Its tenant's `max_in_flight` are under way.
    Tenant,
    /// The workers have no room, or there is no worker.
    Places,
    /// Smart delivery has lowered its limit, and it gets what that allows.
    Smart,
    /// Permits are out, and no worker claims them in time.
    Unclaimed,
    /// No scheduler admits it.
    Unscheduled,
}

impl Shortfall {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Asked,
        Self::Refused,
        Self::Breaker,
        Self::Concurrency,
        Self::Tenant,
        Self::Places,
        Self::Smart,
        Self::Unclaimed,
        Self::Unscheduled,
    ];

    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Refused => "refused",
            Self::Breaker => "breaker",
            Self::Concurrency => "concurrency",
            Self::Tenant => "tenant",
            Self::Places => "places",
            Self::Smart => "smart",
            Self::Unclaimed => "unclaimed",
            Self::Unscheduled => "unscheduled",
        }
    }
}

impl FromStr for Shortfall {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        (Self::ALL.into_iter())
            .find(|one| one.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

impl From<HoldReason> for Shortfall {
    fn from(reason: HoldReason) -> Self {
        match reason {
            HoldReason::Asked => Self::Asked,
            HoldReason::Refused => Self::Refused,
            HoldReason::Breaker => Self::Breaker,
        }
    }
}

/// What binds beside the destination's own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Around {
    /// The reason of its last hold.
    pub held_for: Option<HoldReason>,
    /// The workers have no room, or there is no worker.
    pub no_places: bool,
    /// Its tenant's `max_in_flight` are under way.
    pub tenant_is_full: bool,
}

/// Why a destination gets less than its limit allows; `None` if it gets that,
/// or if nothing is due.
///
/// It gets what its limit allows if any of its limits is used to nine tenths:
/// a limit of 100 an hour is used up when 100 have started within the last
/// hour, however long ago. `usage` has to hold the starts that
/// [`crate::admission::newest_starts`] names for a recount.
#[must_use]
pub fn shortfall(
    policy: &Policy,
    usage: &Usage,
    backlog: &Backlog,
    around: Around,
    now: Timestamp,
) -> Option<Shortfall> {
    let enough = match &policy.rate {
        Rate::Paused => return None,
        Rate::Unlimited => usage.in_flight + outstanding(usage) >= policy.max_in_flight,
        Rate::Limited(limited) => is_used(policy, limited, usage, now),
    };
    if backlog.due == 0 || enough {
        return None;
    }
    let held = usage.held_until.is_some_and(|until| until > now);
    Some(match around.held_for {
        Some(reason) if held => reason.into(),
        None if held => Shortfall::Asked,
        _ if usage.probing => Shortfall::Breaker,
        _ if usage.in_flight + outstanding(usage) >= policy.max_in_flight => {
            match usage.in_flight {
                0 => Shortfall::Unclaimed,
                _ => Shortfall::Concurrency,
            }
        }
        _ if around.tenant_is_full => Shortfall::Tenant,
        _ if around.no_places => Shortfall::Places,
        _ if is_as_fast_as_smart(policy, usage, now) => match policy.rate {
            Rate::Unlimited => return None,
            _ => Shortfall::Smart,
        },
        _ if outstanding(usage) > 0 => Shortfall::Unclaimed,
        _ if usage.in_flight > 0 && policy.rate == Rate::Unlimited => return None,
        _ => Shortfall::Unscheduled,
    })
}

/// Whether it goes at the pace of smart delivery: a window of it has started
/// within two, or is about to.
fn is_as_fast_as_smart(policy: &Policy, usage: &Usage, now: Timestamp) -> bool {
    policy.pace.is_some_and(|pace| {
        let started = exact(usage, now - pace.period() * 2);
        started > 0 && started + outstanding(usage) >= pace.max()
    })
}

fn outstanding(usage: &Usage) -> u32 {
    u32::try_from(usage.outstanding.len()).unwrap_or(u32::MAX)
}

/// Whether any of the limits is used.
fn is_used(policy: &Policy, limited: &Limited, usage: &Usage, now: Timestamp) -> bool {
    let window = |limit: &Limit| {
        let since = now - policy.stretched(limit.period);
        let started = match limit.is_coarse() {
            true => coarse(usage, *limit, since),
            false => exact(usage, since),
        };
        f64::from(started) >= f64::from(limit.max.get()) * ENOUGH
    };
    let paced = limited
        .pacing
        .is_some_and(|pacing| is_paced(policy, pacing, usage, now));
    paced || limited.windows.iter().any(window)
}

fn exact(usage: &Usage, since: Timestamp) -> u32 {
    let started = usage.starts.iter().filter(|start| **start > since).count();
    u32::try_from(started).unwrap_or(u32::MAX)
}

fn coarse(usage: &Usage, limit: Limit, since: Timestamp) -> u32 {
    let of_period = |one: &&CoarseStarts| one.period == limit.period;
    let Some(counted) = usage.coarse.iter().find(of_period) else {
        return 0;
    };
    let buckets = counted
        .buckets
        .iter()
        .filter(|bucket| bucket.ends_at > since);
    let folded = buckets.fold(0_u32, |sum, bucket| sum.saturating_add(bucket.starts));
    let unfolded = counted
        .unfolded
        .iter()
        .filter(|start| **start > since)
        .count();
    folded.saturating_add(u32::try_from(unfolded).unwrap_or(u32::MAX))
}

/// Whether a bucket's refill is used: over ten refills or a period, whichever
/// is longer, but no further back than the starts that are known. What lies
/// between two slots of a slow bucket is no shortfall.
fn is_paced(policy: &Policy, pacing: Pacing, usage: &Usage, now: Timestamp) -> bool {
    let period = policy.stretched(pacing.refill.period);
    let refill = f64::from(pacing.refill.max.get());
    let known = (f64::from(pacing.burst) + refill).min(f64::from(crate::limit::EXACT_MAX));
    let of = |starts: f64| period.mul_f64(starts / refill);
    let span = of(known.min(refill.max(10.0)));
    let expected = span.as_secs_f64() / of(1.0).as_secs_f64().max(f64::MIN_POSITIVE);
    let slot = of(1.0).min(Duration::from_secs(3_600));
    f64::from(exact(usage, now - span - slot)) >= expected * ENOUGH
}
