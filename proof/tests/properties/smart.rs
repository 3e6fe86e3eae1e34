//! What the law of smart delivery promises, whatever is answered and configured.

use std::time::Duration;

use domain::admission::{Backlog, Usage, admit};
use domain::policy::LimitSettings;
use domain::smart::{Answer, Ceiling, Effective, Sample, Smart};
use domain::time::Timestamp;
use proptest::prelude::*;

fn ceiling() -> impl Strategy<Value = Ceiling> {
    let per_second = prop_oneof![1e-5..1.0_f64, 1.0..20_000.0_f64];
    (per_second, 1..100_000_u32).prop_map(|(per_second, max_in_flight)| Ceiling {
        per_second,
        max_in_flight,
    })
}

/// How long ago they started, how long they took, and what they were.
fn answers() -> impl Strategy<Value = Vec<(u64, u64, Answer)>> {
    let answer = prop_oneof![
        Just(Answer::Taken),
        Just(Answer::Refused),
        Just(Answer::Unavailable),
    ];
    prop::collection::vec((0..5_000_000_u64, 0..30_000_000_u64, answer), 0..40)
}

proptest! {
    /// Never above what is configured now, never so slow that nobody asks.
    #[test]
    fn it_stays_at_or_below_what_is_configured(
        first in ceiling(),
        steps in prop::collection::vec(
            (prop::option::weighted(0.1, ceiling()), answers(), 0..20_000_000_u64),
            1..60,
        ),
    ) {
        let mut now = Timestamp::from_millis(1_000_000);
        let mut ceiling = first;
        let mut smart = Smart::new(&ceiling, now);
        for (change, answers, passes) in steps {
            now = now + Duration::from_micros(passes);
            ceiling = change.unwrap_or(ceiling);
            let sample = |(ago, took, answer): &(u64, u64, Answer)| Sample {
                claimed_at: now - Duration::from_micros(*ago),
                latency: Duration::from_micros(*took),
                answer: *answer,
            };
            let samples: Vec<Sample> = answers.iter().map(sample).collect();
            smart = smart.observe(&ceiling, &samples, (now, None)).smart;
            let least = domain::smart::SLOWEST.min(ceiling.per_second);
            prop_assert!((least..=ceiling.per_second).contains(&smart.per_second), "{smart:?}");
            let most = f64::from(ceiling.max_in_flight);
            prop_assert!((1.0..=most).contains(&smart.in_flight), "{smart:?}");
            let effective = smart.effective(&ceiling);
            prop_assert!(effective.per_second.is_none_or(|rate| rate < ceiling.per_second));
            prop_assert!(effective.max_in_flight.is_none_or(|most| most < ceiling.max_in_flight));
        }
    }
}

/// The limit counts a start that is not known yet at the latest that it may be. The
/// pace does not wait for that: it would lose as much at each slot.
#[test]
fn a_pace_is_counted_from_claims() {
    let slowed = Effective {
        per_second: Some(10.0),
        max_in_flight: None,
    };
    let limits = LimitSettings {
        per_second: Some(100),
        ..LimitSettings::EXACT
    };
    let policy = limits.policy().slowed(slowed);
    let at = Timestamp::from_millis;
    let usage = Usage {
        in_flight: 1,
        starts: vec![at(10_490)],
        claims: vec![at(9_990)],
        ..Usage::default()
    };
    let (due, next_due) = (5, None);
    let decision = admit(
        &policy,
        &usage,
        &Backlog {
            due,
            urgent: 0,
            next_due,
        },
        500,
        at(10_000),
    );
    let slots: Vec<_> = (decision.slots.iter())
        .map(|slot| slot.not_before)
        .collect();
    assert_eq!(slots, [at(10_090), at(10_190)]);
}
