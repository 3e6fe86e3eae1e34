//! What a receiver says, in every dialect.

use std::time::Duration;

use domain::signals::{MAX_WAIT, RawSignals};
use proptest::prelude::*;

/// Sat, 21 Nov 2026 10:00:00 GMT.
const NOW: i64 = 1_795_255_200;

fn text(number: impl ToString) -> Option<String> {
    Some(number.to_string())
}

/// The same in each of them: so many of a quota are left, for so many seconds.
fn dialects(quota: u32, left: u32, seconds: u32) -> [RawSignals; 5] {
    let none = RawSignals::default;
    [
        RawSignals {
            rate_limit_limit: text(quota),
            rate_limit_remaining: text(left),
            rate_limit_reset: text(seconds),
            ..none()
        },
        RawSignals {
            rate_limit: Some(format!("limit={quota}, remaining={left}, reset={seconds}")),
            ..none()
        },
        RawSignals {
            rate_limit: Some(format!("\"default\";r={left};t={seconds}")),
            rate_limit_policy: Some(format!("\"default\";q={quota};w=86400")),
            ..none()
        },
        RawSignals {
            remaining: text(left),
            reset: text(seconds),
            ..none()
        },
        RawSignals {
            remaining: text(left),
            reset: text(NOW + i64::from(seconds)),
            ..none()
        },
    ]
}

/// Any text at all, and text that is nearly right.
fn header() -> impl Strategy<Value = Option<String>> {
    let nearly = "(limit=|remaining=|reset=|\"a\";r=|;t=|;w=|[0-9]{1,17}|[-, ();.]){0,8}";
    prop::option::of(prop_oneof!["[0-9]{1,15}", nearly, ".{0,40}"])
}

proptest! {
    #[test]
    fn all_dialects_come_to_one_answer(
        quota in 1..1_000_u32, left in 0..3_u32, seconds in 0..5_000_u32, failed in any::<bool>()
    ) {
        let wait = Duration::from_secs(seconds.into()).min(MAX_WAIT);
        let expected = (left == 0 && seconds > 0).then_some(wait);
        for signals in dialects(quota, left, seconds) {
            let status = if failed { 429 } else { 204 };
            prop_assert_eq!(signals.wait(status, NOW), expected, "{:?}", signals);
        }
    }

    #[test]
    fn whatever_is_said_comes_to_a_bounded_wait(
        texts in prop::array::uniform10(header()), status in 100..600_u16, now in any::<i64>()
    ) {
        let [retry_after, date, rate_limit, rate_limit_policy, rate_limit_limit,
            rate_limit_remaining, rate_limit_reset, remaining, reset, delivery] = texts;
        let signals = RawSignals {
            retry_after, date, rate_limit, rate_limit_policy, rate_limit_limit,
            rate_limit_remaining, rate_limit_reset, remaining, reset, delivery,
        };
        let wait = signals.wait(status, now);
        prop_assert!(wait.is_none_or(|wait| wait > Duration::ZERO && wait <= MAX_WAIT));
        prop_assert_eq!(wait, signals.wait(status, now));
    }
}
