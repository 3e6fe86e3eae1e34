//! Whether a destination gets what its limit allows, and why not.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::{Backlog, CoarseStarts, PROGRESS, SLACK, Usage};
use crate::health::{HoldReason, UnknownWord};
use crate::ids::TenantId;
use crate::limit::{EXACT_MAX, Limit};
use crate::policy::{Limited, Pacing, Policy, Rate};
use crate::share::Fleet;
use crate::time::Timestamp;

/// Which part of a limit has to be used at least.
const ENOUGH: f64 = 0.9;

/// A bucket's use is judged over so long at least: fast ones start in batches.
const SPAN: Duration = Duration::from_secs(10);

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
    /// It is let in by an access token, and gets none.
    NoToken,
    /// Smart delivery has lowered its limit, and it gets what that allows.
    Smart,
    /// Permits are out, and no worker claims them in time.
    Unclaimed,
    /// No scheduler admits it.
    Unscheduled,
}

impl Shortfall {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Asked,
        Self::Refused,
        Self::Breaker,
        Self::Concurrency,
        Self::Tenant,
        Self::Places,
        Self::NoToken,
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
            Self::NoToken => "no_token",
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
    /// A worker said lately that it gets no access token, and puts it off until one is
    /// asked for again.
    pub no_token: bool,
    /// Since when the first of what is due waits, if that is known: from then
    /// on it had something to start all the time.
    pub waits_since: Option<Timestamp>,
}

impl Around {
    /// Of a destination of `tenant`, by the fleet as it is: `most` is the tenant's
    /// `max_in_flight`.
    #[must_use]
    pub fn of(
        fleet: &Fleet,
        (held_for, waits_since): (Option<HoldReason>, Option<Timestamp>),
        (tenant, most): (TenantId, Option<u32>),
    ) -> Self {
        let load = fleet.loads.iter().find(|load| load.tenant == tenant);
        let under_way = load.map_or(0, |load| load.outstanding.saturating_add(load.in_flight));
        Self {
            held_for,
            no_places: fleet.places <= fleet.outstanding,
            tenant_is_full: most.is_some_and(|most| under_way >= most),
            no_token: false,
            waits_since,
        }
    }

    /// The same, where it has no access token.
    #[must_use]
    pub const fn without_token(self, no_token: bool) -> Self {
        Self { no_token, ..self }
    }
}

/// Why a destination gets less than its limit allows; `None` if it gets that,
/// or if nothing is due.
///
/// A member of a limit group gets it as well where nine tenths of one of the group's limits
/// are used, whoever of the group did.
///
/// It gets what its limit allows if any of its limits is used to nine tenths:
/// a limit of 100 an hour is used up when 100 have started within the last
/// hour, however long ago. A bucket is judged by what it gives since work
/// began, not by a period in which there was nothing to do. `usage` has to hold the claims that
/// [`crate::admission::newest_claims`] names for a recount. One that is
/// unlimited gets it while anything is under way or has just started: how many
/// permits are out at one instant says nothing.
#[must_use]
pub fn shortfall(
    policy: &Policy,
    usage: &Usage,
    backlog: &Backlog,
    around: Around,
    now: Timestamp,
) -> Option<Shortfall> {
    let is_ahead = |until: Option<Timestamp>| until.is_some_and(|until| until > now);
    let (held, deferred) = (is_ahead(usage.held_until), is_ahead(usage.deferred_until));
    let free = !held && !deferred && !usage.probing;
    let enough = match &policy.rate {
        Rate::Paused => return None,
        Rate::Unlimited => is_full(policy, usage) || free && makes_progress(usage, now),
        Rate::Limited(limited) => is_used(policy, limited, usage, (around.waits_since, now)),
    };
    // What a group has, its members have used up.
    let of_group = (usage.group.as_ref()).is_some_and(|group| group.is_used(ENOUGH, now));
    if backlog.due == 0 || enough || of_group {
        return None;
    }
    // Of what lasts longer.
    let put_off = deferred && usage.deferred_until > usage.held_until;
    Some(match around.held_for {
        _ if put_off && around.no_token => Shortfall::NoToken,
        _ if put_off => Shortfall::Places,
        Some(reason) if held => reason.into(),
        // Somebody holds it by hand.
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
        _ => Shortfall::Unscheduled,
    })
}

/// Whether as much is in flight as may be: permits that nobody claims are not.
fn is_full(policy: &Policy, usage: &Usage) -> bool {
    usage.in_flight > 0 && usage.in_flight + outstanding(usage) >= policy.max_in_flight
}

fn makes_progress(usage: &Usage, now: Timestamp) -> bool {
    usage.in_flight > 0 || exact(&usage.claims, now - PROGRESS) > 0
}

/// Whether it goes at the pace of smart delivery: a window of it was claimed
/// within two, or is about to be.
fn is_as_fast_as_smart(policy: &Policy, usage: &Usage, now: Timestamp) -> bool {
    policy.pace.is_some_and(|pace| {
        let claimed = exact(&usage.claims, now - pace.period() * 2);
        claimed > 0 && claimed + outstanding(usage) >= pace.max()
    })
}

pub(super) fn outstanding(usage: &Usage) -> u32 {
    u32::try_from(usage.outstanding.len()).unwrap_or(u32::MAX)
}

/// Whether any of the limits is used.
fn is_used(
    policy: &Policy,
    limited: &Limited,
    usage: &Usage,
    (waits_since, now): (Option<Timestamp>, Timestamp),
) -> bool {
    let window = |limit: &Limit| {
        let since = now - policy.stretched(*limit);
        let started = started(policy, usage, *limit, since);
        f64::from(started) >= f64::from(limit.max.get()) * ENOUGH
    };
    let paced = limited
        .pacing
        .is_some_and(|pacing| is_paced(policy, pacing, usage, (waits_since, now)));
    paced || limited.windows.iter().any(window)
}

/// How many count in the window of this limit, permits that may still start aside.
pub(super) fn started(policy: &Policy, usage: &Usage, limit: Limit, since: Timestamp) -> u32 {
    match limit.is_coarse() {
        true => coarse(usage, limit, since),
        false => exact(&usage.starts, since).saturating_add(usage.unanswered(policy)),
    }
}

fn exact(times: &[Timestamp], since: Timestamp) -> u32 {
    let after = times.iter().filter(|at| **at > since).count();
    u32::try_from(after).unwrap_or(u32::MAX)
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

/// Whether a bucket's refill is used: over ten refills or [`SPAN`], whichever
/// is longer, but no further back than the claims that are known, and than work
/// began. A bucket that has something to do all the time gives a token each
/// refill, whatever was in it; before the first, there is nothing to judge.
fn is_paced(
    policy: &Policy,
    pacing: Pacing,
    usage: &Usage,
    (waits_since, now): (Option<Timestamp>, Timestamp),
) -> bool {
    let bucket = Refills::of(policy, pacing);
    let known = bucket.known(pacing);
    let span = bucket.take(10).max(SPAN).min(known);
    let [held, deferred] =
        [usage.held_until, usage.deferred_until].map(|until| until.filter(|until| *until <= now));
    let began = [
        waits_since,
        held,
        deferred,
        awoke(usage, (span, known), now),
    ];
    let began = began.into_iter().flatten().chain([now - span]).max();
    let began = began.unwrap_or(now - span);
    let due = bucket.within(now.since(began).saturating_sub(SLACK));
    f64::from(exact(&usage.claims, began)) >= due * ENOUGH
}

/// The first claim after a long silence: nobody knows what was due before it.
/// `None` where the claims that are known do not say so.
fn awoke(usage: &Usage, (span, known): (Duration, Duration), now: Timestamp) -> Option<Timestamp> {
    let since = now - known;
    let first = usage.claims.iter().filter(|claim| **claim > since).min()?;
    (known >= span * 2 && *first > now - span).then_some(*first)
}

/// How fast a bucket fills up.
struct Refills {
    period: Duration,
    max: f64,
}

impl Refills {
    fn of(policy: &Policy, pacing: Pacing) -> Self {
        Self {
            period: policy.refill_period(pacing),
            max: f64::from(pacing.refill.max.get()),
        }
    }

    /// How long so many take.
    fn take(&self, refills: u32) -> Duration {
        self.period.mul_f64(f64::from(refills) / self.max)
    }

    /// How many whole ones come within so long.
    fn within(&self, time: Duration) -> f64 {
        (time.as_secs_f64() / self.period.as_secs_f64() * self.max).floor()
    }

    /// How far back the claims are known.
    fn known(&self, pacing: Pacing) -> Duration {
        let starts = pacing.burst.saturating_add(pacing.refill.max.get());
        self.take(starts.min(EXACT_MAX))
    }
}
