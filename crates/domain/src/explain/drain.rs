//! How long a backlog takes to drain.

use std::time::Duration;

use crate::admission::Usage;
use crate::policy::{Policy, Rate};
use crate::time::Timestamp;
use crate::watch::tokens;

/// How long so many attempts take, if nothing else comes: what the limits leave
/// now goes at once, the rest at their rate in the long run, and nothing before
/// the end of a hold.
///
/// `None` where nobody can say: while it is paused, and where nothing limits,
/// for then it is up to the receiver. As for a receiver that is too slow for
/// its limit: the limit is all that this knows.
#[must_use]
pub fn drains_in(policy: &Policy, usage: &Usage, backlog: u32, now: Timestamp) -> Option<Duration> {
    if backlog == 0 {
        return Some(Duration::ZERO);
    }
    if policy.rate == Rate::Paused {
        return None;
    }
    let left = tokens(policy, usage, now).unwrap_or(0.0);
    let seconds = drain_seconds(f64::from(backlog), left, policy.starts_per_second()?)?;
    let held = usage
        .admits_from()
        .map_or(Duration::ZERO, |until| until.since(now));
    Duration::try_from_secs_f64(seconds)
        .ok()
        .map(|drain| held.saturating_add(drain))
}

/// How many seconds so many attempts take at `per_second`, where `left` may go
/// at once; `None` at a rate of zero.
#[must_use]
pub fn drain_seconds(backlog: f64, left: f64, per_second: f64) -> Option<f64> {
    (per_second > 0.0).then(|| (backlog - left).max(0.0) / per_second)
}
