//! Admission: which attempts of one destination may start, and when.
//!
//! The classic formula is `allow = rate_limit − attempts_still_in_queue`. It
//! is not a bound: a burst late in one period and one early in the next put
//! up to 2·L into one second. We keep its shape and count everything that can
//! still fall into the window, `allow = rate_limit − still_in_queue −
//! started_in_window`, and plan ahead by the rule that this illustrates.
//!
//! A start is the instant at which the request's first byte is handed to the
//! network, as its worker measured it: never before its claim, nor by more than
//! [`MAX_CLAIM_TO_SEND`] after it, nor after its deadline.
//!
//! **Rule.** At admission time t, let `end(q)` be the recorded start of permit
//! q; the latest instant at which it may still start, if none is recorded (its
//! `deadline`, and once it is claimed [`latest_start`]); and −∞ only if a
//! committed update has moved its row out of `admitted` without a claim. With a
//! [margin](crate::margin) J ≥ 0, admit p with `not_before ≥ t` only if fewer than L
//! permits have `end(q) > not_before − P − J`.
//!
//! **Theorem.** Every half-open window (w − P − J, w] holds at most L starts.
//! *Proof.* Of the permits that start in the window take p, the one admitted
//! last. Its `not_before ≤ w`. Any other q that starts in the window was
//! admitted earlier and starts after w − P − J ≥ `not_before(p)` − P − J. When p was
//! admitted, q was recorded (its end is its start) or still possible (its end
//! is no earlier than its start), so it was counted. There are at most L − 1
//! such q. ∎ (The same goes for claims: none is later than its start.)
//!
//! **Corollary.** If requests take between d and d + J from their first byte to the
//! receiver's clock, no window of the whole P at the receiver holds more than L.
//!
//! **Where answers count** ([`Count::Response`]), `end(q)` is the end of q's answer, or
//! [`MAX_REQUEST_TIMEOUT`] after its start if it ended without one; until it has ended it
//! counts in every window. If a request arrives between its start and that end, the proof
//! above holds of arrivals as it stands, with J = 0, however long each is on its way: of those that arrive in (w − P, w] take p, the one
//! admitted last; any other q of them has `end(q)` > w − P ≥ `not_before(p)` − P.
//!
//! [`round`] asks the rule for many destinations at once, and shares what the
//! fleet has room for between them.
//!
//! **Limit groups.** What several destinations may start together is the same rule once
//! more, of all their permits ([`Group`]).
//!
//! Buckets are planned by `not_before` instead: the [`Meter`] is charged when
//! a permit is planned, whether or not it starts, so the planned slots of any
//! interval are at most `burst + r·t`; and as every start falls within
//! [`SLACK`] after its slot, at most `burst + r·(t + SLACK)` starts fall into
//! any t. So a bucket never counts a start at the latest that it may be: what
//! lies between a claim and its send is within the slack already. Where its
//! level has to be computed from the past, it is from claims ([`Usage::claims`]),
//! none of which is more than [`MAX_CLAIM_TO_SEND`] before its start.
//!
//! Cost: linear in what is in the window, which the store bounds by
//! [`crate::limit::EXACT_MAX`] starts or 200 buckets a period. Never in the
//! backlog.

mod crowd;
mod decision;
mod group;
mod meter;
mod plan;
mod round;
mod start;
mod usage;
mod window;

use std::time::Duration;

pub use crowd::Crowd;
pub use decision::{Blocked, Decision, Look, Slot};
pub use group::{GROUP_LEAD, Group, Member};
pub use meter::Meter;
use meter::{BUCKET_STARTS_MAX, counted_starts};
pub use plan::{Gate, Opening, openings};
pub use round::{Candidate, Decided, Round, round};
pub use start::{
    LONGEST_ANSWER, MAX_CLAIM_TO_SEND, MAX_REQUEST_TIMEOUT, known_until, latest_start, start_of,
};
pub use usage::{Backlog, Bucket, CoarseStarts, Outstanding, Usage, next_due};

use plan::Plan;

#[cfg(doc)]
use crate::limit::Count;
use crate::policy::{Policy, Rate};
use crate::time::Timestamp;

/// How long after its slot a permit may still start. Long enough for the
/// queue's 99.9th percentile; an orphaned permit blocks its place until then.
pub const GRACE: Duration = Duration::from_secs(2);

/// The same where slots are planned by `not_before` (buckets and `burst`):
/// it enters their promise, so it is shorter.
pub const SLACK: Duration = Duration::from_millis(500);

/// The most permits of one destination in one run. A run that hits it runs
/// again at once.
pub const MAX_BATCH: u32 = 500;

/// How far ahead slots are planned at most. Longer leads hide more of the
/// queue's latency; they also hold more permits that a change must revoke.
pub const MAX_LEAD: Duration = Duration::from_millis(200);

/// How far ahead slots are planned at least: the scheduler's own latency.
pub const MIN_LEAD: Duration = Duration::from_millis(20);

/// When a destination that concurrency or the fleet's places stopped is looked
/// at again if nobody wakes it; outcomes do ([`Crowd`]).
pub const LOOK_WHEN_CROWDED: Duration = Duration::from_secs(1);

/// The same where the fleet's places stopped it and none of its outcomes will wake it: all
/// that it has was given before, while there was room, or it has nothing. The scheduler may make
/// it sooner, with the next count of the fleet, and later, where many look like this or no
/// worker lives.
pub const LOOK_WHEN_NONE_WAKES: Duration = Duration::from_millis(50);

/// When a destination is looked at again whose oldest attempts have expired and
/// wait to be reaped: others may wait behind them.
pub const LOOK_AFTER_EXPIRED: Duration = Duration::from_millis(100);

/// One that started within it shows that an unlimited destination does not
/// stand still. Longer than a permit waits for its claim ([`GRACE`]) and a
/// crowded destination for its next look.
pub const PROGRESS: Duration = Duration::from_secs(5);

/// How soon, at the earliest, a wake makes a crowded destination run again:
/// arrivals must not cost a run each.
pub const CROWDED_FLOOR: Duration = Duration::from_millis(5);

/// The same where nothing is blocked and somebody is busy: the destination, which had
/// permits queued or in flight and was given more, or its scheduler, whose batch was full.
/// What comes meanwhile is one run at its end. It is half of the shortest lead, so no limit
/// with a backlog waits for it; and nobody waits who comes to a destination that stood idle.
///
/// The theorem does not know of it: a floor makes a look later, and a look admits by the rule.
pub const BUSY_FLOOR: Duration = Duration::from_millis(10);

/// How far ahead this policy's slots are planned: so far that what is planned
/// stays within a quarter of `max_in_flight`.
#[must_use]
pub fn lead(policy: &Policy) -> Duration {
    if policy.rate == Rate::Unlimited && policy.pace.is_none() {
        return MAX_LEAD;
    }
    let quarter = f64::from(policy.max_in_flight.max(4)) / 4.0;
    let seconds = quarter / policy.per_second().max(f64::MIN_POSITIVE);
    Duration::from_secs_f64(seconds.clamp(MIN_LEAD.as_secs_f64(), MAX_LEAD.as_secs_f64()))
}

/// How many waiting attempts a store has to read for one run: one more than
/// the run could admit, so that it knows whether more are left.
#[must_use]
pub fn read_ahead(policy: &Policy) -> u32 {
    let most = match &policy.rate {
        Rate::Paused => 0,
        Rate::Unlimited => MAX_BATCH,
        Rate::Limited(limited) => limited
            .windows
            .iter()
            .map(|limit| limit.max.get())
            .min()
            .unwrap_or(MAX_BATCH),
    };
    most.min(policy.max_in_flight).min(MAX_BATCH) + 1
}

/// Which starts a store has to read one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// How far back.
    pub period: Duration,
    /// How many at most, the newest.
    pub count: u32,
}

impl Newest {
    /// What all of these ask for; `None` if nobody asks.
    fn of(asked: impl Iterator<Item = (Duration, u32)>) -> Option<Self> {
        let (period, count) = asked.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))?;
        Some(Self { period, count })
    }
}

/// Which starts [`Usage::starts`] must hold for this policy, by their starts;
/// `None` for none: those in the windows that are counted one by one.
#[must_use]
pub fn newest_starts(policy: &Policy) -> Option<Newest> {
    let Rate::Limited(limited) = &policy.rate else {
        return None;
    };
    let exact = limited.windows.iter().filter(|limit| !limit.is_coarse());
    Newest::of(exact.map(|limit| (policy.stretched(*limit), limit.max.get())))
}

/// Of which starts [`Usage::claims`] must hold the claims for this policy, by
/// their starts; `None` for none.
///
/// Those in the pace of smart delivery and, after a change ([`Usage::recount`]),
/// those that a bucket's level has to be computed from; of what is unlimited,
/// whether one was claimed lately. And as many more as may be in flight: until
/// their starts are known, they are before others that were claimed later.
#[must_use]
pub fn newest_claims(policy: &Policy, recount: bool) -> Option<Newest> {
    let limited = match &policy.rate {
        Rate::Paused => return None,
        Rate::Unlimited => None,
        Rate::Limited(limited) => Some(limited),
    };
    let pace = policy.pace.map(|pace| (pace.period(), pace.max()));
    let latest = (limited.is_none() && recount).then_some((PROGRESS, 1));
    let pacing = limited.and_then(|limited| limited.pacing);
    let bucket = pacing.filter(|_| recount).map(|pacing| {
        let refill = pacing.refill.max.get();
        let count = counted_starts(pacing).min(i64::from(BUCKET_STARTS_MAX)) as u32;
        let period = policy.refill_period(pacing);
        (period.mul_f64(f64::from(count) / f64::from(refill)), count)
    });
    let newest = Newest::of(bucket.into_iter().chain(pace).chain(latest))?;
    Some(Newest {
        count: newest.count.saturating_add(policy.max_in_flight),
        ..newest
    })
}

/// Decides one run of one destination at `now`.
///
/// `places` bounds the permits by what the fleet's workers have room for.
/// Pure and total: the same arguments give the same decision, and none panics.
///
/// ```
/// use domain::admission::{admit, Backlog, Usage};
/// use domain::policy::LimitSettings;
/// use domain::time::Timestamp;
///
/// let policy = LimitSettings { per_second: Some(3), ..LimitSettings::EXACT }.policy();
/// let now = Timestamp::from_millis(10_000);
/// let started = |ms| Timestamp::from_millis(ms);
/// // Two of three have started within the last second, five wait.
/// let usage = Usage { starts: vec![started(9_700), started(9_100)], ..Usage::default() };
/// let backlog = Backlog { due: 5, urgent: 0, next_due: None };
/// let decision = admit(&policy, &usage, &backlog, 1_000, now);
/// let slots: Vec<_> = decision.slots.iter().map(|slot| slot.not_before).collect();
/// // One at once; the next when the start of 9.1 s leaves the window.
/// assert_eq!(slots, [now, started(10_100)]);
/// ```
pub fn admit(
    policy: &Policy,
    usage: &Usage,
    backlog: &Backlog,
    places: u32,
    now: Timestamp,
) -> Decision {
    admit_share(policy, usage, backlog, (places, u32::MAX), now)
}

/// The same, and no more than a share of what its group has room for.
fn admit_share(
    policy: &Policy,
    usage: &Usage,
    backlog: &Backlog,
    (places, of_group): (u32, u32),
    now: Timestamp,
) -> Decision {
    Plan::new(policy, usage, now).decide(backlog, (places, of_group))
}
