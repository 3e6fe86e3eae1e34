//! How much of its limit a destination has left.

use super::shortfall::{outstanding, started};
use crate::admission::Usage;
use crate::limit::Limit;
use crate::policy::{Pacing, Policy, Rate};
use crate::time::Timestamp;

/// How many more could start at `now`, as far as its limits go: the fewest that
/// a window or a bucket leaves, where permits that may still start have theirs
/// already. `None` where nothing limits.
///
/// `usage` has to hold what [`crate::admission::admit`] is decided from. A
/// bucket that came into force since the last run counts as the one before it.
#[must_use]
pub fn tokens(policy: &Policy, usage: &Usage, now: Timestamp) -> Option<f64> {
    let limited = match &policy.rate {
        Rate::Paused => return Some(0.0),
        Rate::Unlimited => return None,
        Rate::Limited(limited) => limited,
    };
    let window = |limit: &Limit| {
        let since = now - policy.stretched(*limit);
        let used = started(policy, usage, *limit, since).saturating_add(outstanding(usage));
        f64::from(limit.max.get().saturating_sub(used))
    };
    let bucket = |pacing: Pacing| {
        let period = policy.refill_period(pacing);
        let level = (usage.meter).refilled(pacing, crate::time::micros(period), now);
        let missing = level.missing_micro as f64 / 1e6;
        (f64::from(pacing.burst) - missing).max(0.0)
    };
    let windows = limited.windows.iter().map(window);
    windows.chain(limited.pacing.map(bucket)).reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::{Meter, Outstanding};
    use crate::limit::Shape;
    use crate::policy::LimitSettings;

    const NOW: Timestamp = Timestamp::from_millis(100_000);

    fn ago(ms: i64) -> Timestamp {
        Timestamp::from_millis(100_000 - ms)
    }

    fn limits(per_second: u32, per_minute: Option<u32>) -> LimitSettings {
        LimitSettings {
            per_second: Some(per_second),
            per_minute,
            ..LimitSettings::EXACT
        }
    }

    #[test]
    fn a_window_leaves_what_neither_started_nor_may_start() {
        let usage = Usage {
            starts: vec![ago(100), ago(900), ago(1_100)],
            outstanding: vec![Outstanding {
                not_before: NOW,
                deadline: NOW,
            }],
            ..Usage::default()
        };
        assert_eq!(tokens(&limits(5, None).policy(), &usage, NOW), Some(2.0));
        // The minute leaves less: three have started in it, one may.
        assert_eq!(tokens(&limits(5, Some(5)).policy(), &usage, NOW), Some(1.0));
        assert_eq!(tokens(&limits(2, None).policy(), &usage, NOW), Some(0.0));
    }

    #[test]
    fn a_bucket_leaves_what_has_been_refilled() {
        let settings = LimitSettings {
            shape: Some(Shape::TokenBucket),
            burst: Some(10),
            ..limits(4, None)
        };
        let usage = Usage {
            meter: Meter {
                missing_micro: 8_000_000,
                as_of: ago(500),
            },
            ..Usage::default()
        };
        assert_eq!(tokens(&settings.policy(), &usage, NOW), Some(4.0));
        let full = Usage::default();
        assert_eq!(tokens(&settings.policy(), &full, NOW), Some(10.0));
    }

    #[test]
    fn paused_is_none_left_and_unlimited_is_no_number() {
        let usage = Usage::default();
        assert_eq!(tokens(&limits(0, None).policy(), &usage, NOW), Some(0.0));
        assert_eq!(tokens(&LimitSettings::EXACT.policy(), &usage, NOW), None);
    }
}
