//! The bounds again, slow and obvious: every window, every pair, no pointers
//! that move, no meters.

use domain::admission::SLACK;
use domain::compliance::{InForce, Start};
use domain::limit::Period;
use domain::policy::{Pacing, Policy, Rate};
use domain::time::Timestamp;

/// The starts whose window holds more than any policy in it allows.
pub(crate) fn windows_over(history: &[InForce], starts: &[Start], period: Period) -> Vec<usize> {
    let length = period.duration();
    let over = |last: usize| {
        let ends_at = starts[last].0;
        let within = |at: Timestamp| at > ends_at - length && at <= ends_at;
        let count = starts[..=last].iter().filter(|(at, _)| within(*at)).count() as u64;
        let within = (0..history.len()).filter(|entry| {
            let begins = *entry == 0 || history[*entry].from <= ends_at;
            let next = history.get(entry + 1);
            begins && next.is_none_or(|next| next.from > ends_at - length)
        });
        let policies: Vec<&Policy> = within.map(|entry| &history[entry].policy).collect();
        bound(&policies, period).is_some_and(|bound| count > bound)
    };
    (0..starts.len()).filter(|last| over(*last)).collect()
}

/// The largest bound of a window: of the windows in force, and of a bucket of
/// the largest burst and the largest refill in force.
fn bound(policies: &[&Policy], period: Period) -> Option<u64> {
    let mut largest = 0;
    let mut bucket: Option<Pacing> = None;
    for policy in policies {
        let limited = match &policy.rate {
            Rate::Paused => continue,
            Rate::Unlimited => return None,
            Rate::Limited(limited) => limited,
        };
        if let Some(limit) = limited.windows.iter().find(|limit| limit.period == period) {
            largest = largest.max(u64::from(limit.max.get()));
        } else if let Some(mut pacing) = limited.pacing.filter(|p| p.refill.period == period) {
            if let Some(other) = bucket {
                pacing.burst = pacing.burst.max(other.burst);
                pacing.refill.max = pacing.refill.max.max(other.refill.max);
            }
            bucket = Some(pacing);
        } else {
            return None;
        }
    }
    let bucket = bucket.map(|pacing| within_bucket(pacing, period.duration().as_micros()));
    Some(largest.max(bucket.unwrap_or(0)))
}

/// The most starts of a bucket in so many microseconds.
fn within_bucket(pacing: Pacing, micros: u128) -> u64 {
    let time = micros + SLACK.as_micros();
    let refill = u128::from(pacing.refill.max.get()) * time;
    let refill = refill / pacing.refill.period.duration().as_micros();
    u64::from(pacing.burst) + u64::try_from(refill).unwrap()
}

/// The starts that end an interval with more than `burst + r·(t + SLACK)`.
pub(crate) fn bucket_over(pacing: Pacing, starts: &[Start]) -> Vec<usize> {
    let over = |last: usize| {
        (0..=last).any(|first| {
            let time = starts[last].0.since(starts[first].0).as_micros();
            (last - first + 1) as u64 > within_bucket(pacing, time)
        })
    };
    (0..starts.len()).filter(|last| over(*last)).collect()
}

/// The same across changes: an interval is allowed the largest burst and the
/// largest refill in force in it. One that an entry without bucket touches is
/// not judged, and pauses do not count.
pub(crate) fn buckets_over(history: &[InForce], starts: &[Start]) -> Vec<usize> {
    let per_day = |pacing: &Pacing| {
        let period = pacing.refill.period.duration().as_micros();
        u128::from(pacing.refill.max.get()) * (Period::Day.duration().as_micros() / period)
    };
    let is_over = |first: usize, last: usize| {
        let (begins_at, ends_at) = (starts[first].0, starts[last].0);
        let in_force = (0..history.len()).filter(|entry| {
            let begins = *entry == 0 || history[*entry].from <= ends_at;
            let next = history.get(entry + 1);
            begins && next.is_none_or(|next| next.from > begins_at)
        });
        let mut pacings = Vec::new();
        for entry in in_force {
            match (&history[entry].policy.rate, pacing(&history[entry].policy)) {
                (Rate::Paused, _) => {}
                (_, Some(pacing)) => pacings.push(pacing),
                (_, None) => return false,
            }
        }
        let Some(fastest) = pacings.iter().max_by_key(|pacing| per_day(pacing)) else {
            return false;
        };
        let burst = pacings.iter().map(|pacing| pacing.burst).max().unwrap();
        let most = Pacing { burst, ..*fastest };
        let time = ends_at.since(begins_at).as_micros();
        (last - first + 1) as u64 > within_bucket(most, time)
    };
    let over = |last: usize| (0..=last).any(|first| is_over(first, last));
    (0..starts.len()).filter(|last| over(*last)).collect()
}

/// The spacing of a policy.
pub(crate) fn pacing(policy: &Policy) -> Option<Pacing> {
    match &policy.rate {
        Rate::Limited(limited) => limited.pacing,
        Rate::Paused | Rate::Unlimited => None,
    }
}
