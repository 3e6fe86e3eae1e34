//! The two clocks, with random latencies, drift and steps.

use std::time::Duration;

use domain::clock::{ClockWatch, DRIFT_PPM, MAX_FREEZE, STEP, Step, StoreClock, freeze_for};
use domain::policy::LimitSettings;
use domain::time::Timestamp;
use proptest::prelude::*;

/// One question to the store, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Question {
    /// How long after the last one.
    pause: i64,
    /// On the way there, and on the way back.
    there: i64,
    back: i64,
}

fn latency() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 50..3_000_i64, 2 => 50..80_000_i64, 1 => 50..5_000_000_i64]
}

fn question() -> impl Strategy<Value = Question> {
    let pause = prop_oneof![0..100_000_i64, 0..2_000_000_i64, 0..120_000_000_i64];
    (pause, latency(), latency()).prop_map(|(pause, there, back)| Question { pause, there, back })
}

/// A store's clock that drifts against the local one.
#[derive(Debug, Clone, Copy)]
struct Truth {
    offset: i64,
    drift_ppm: i64,
    local: i64,
}

impl Truth {
    fn store_at(&self, local: i64) -> Timestamp {
        let drift = i128::from(local) * i128::from(self.drift_ppm) / 1_000_000;
        Timestamp::from_micros(local + self.offset + i64::try_from(drift).unwrap())
    }

    fn ask(&mut self, question: Question) -> (i64, i64, Timestamp) {
        let before = self.local + question.pause;
        let read = before + question.there;
        self.local = read + question.back;
        (before, self.local, self.store_at(read))
    }
}

fn truth() -> impl Strategy<Value = Truth> {
    // Rounding to whole microseconds needs a little of the tolerance.
    let drift = -(DRIFT_PPM - 1)..DRIFT_PPM;
    (
        -1_000_000_000_000_i64..1_000_000_000_000,
        drift,
        0..1_000_000_000_i64,
    )
        .prop_map(|(offset, drift_ppm, local)| Truth {
            offset,
            drift_ppm,
            local,
        })
}

fn micros_apart(a: Timestamp, b: Timestamp) -> Duration {
    a.since(b).max(b.since(a))
}

proptest! {
    #[test]
    fn latency_and_drift_are_no_steps(
        mut truth in truth(),
        questions in prop::collection::vec(question(), 1..60),
    ) {
        let mut watch = ClockWatch::default();
        for question in questions {
            let (before, after, store) = truth.ask(question);
            prop_assert_eq!(watch.observe(before, after, store), None);
        }
    }

    #[test]
    fn the_estimate_is_as_good_as_it_says(
        mut truth in truth(),
        questions in prop::collection::vec(question(), 1..60),
        later in 0..5_000_000_i64,
    ) {
        let mut clock = StoreClock::default();
        prop_assert_eq!(clock.estimate(truth.local), None);
        for question in questions {
            let (before, after, store) = truth.ask(question);
            clock.observe(before, after, store);
            let local = after + later;
            let estimate = clock.estimate(local).unwrap();
            let wrong_by = micros_apart(estimate, truth.store_at(local));
            let uncertainty = clock.uncertainty(local).unwrap() + Duration::from_micros(2);
            prop_assert!(wrong_by <= uncertainty, "{:?} > {:?}", wrong_by, uncertainty);
            // Never worse than the latest answer alone (and the drift since).
            let alone = Duration::from_micros((question.there + question.back) as u64);
            let drift = (later + question.there + question.back) / 500;
            prop_assert!(uncertainty <= alone + Duration::from_micros(drift as u64 + 10));
            prop_assert_eq!(clock.local_for(estimate), Some(local));
        }
    }

    #[test]
    fn what_is_surely_over_is_over(
        mut truth in truth(),
        questions in prop::collection::vec(question(), 1..60),
        ahead in 0..60_000_000_i64,
    ) {
        let mut clock = StoreClock::default();
        prop_assert_eq!(clock.surely_by(truth.store_at(truth.local)), None);
        for question in questions {
            let (before, after, store) = truth.ask(question);
            clock.observe(before, after, store);
            let at = truth.store_at(after + ahead);
            let by = clock.surely_by(at).unwrap();
            prop_assert!(truth.store_at(by) >= at, "{:?} < {at:?}", truth.store_at(by));
            // No later than by the latest answer alone, and the drift since.
            let alone = store.as_micros() - after;
            let latest = at.as_micros() - alone;
            let drift = (latest.max(after) - before) / 1_000 + 10;
            prop_assert!(by <= latest + drift, "{by} > {latest} + {drift}");
        }
    }

    #[test]
    fn a_real_step_is_found_at_once(
        mut truth in truth(),
        before_it in prop::collection::vec(question(), 1..30),
        size in 0..10_000_000_i64,
        forward in any::<bool>(),
        pause in 0..2_000_000_i64,
        rtt in 100..20_000_i64,
    ) {
        let mut watch = ClockWatch::default();
        // The last answer before it was a quick one.
        let quick = Question { pause: 0, there: 200, back: 200 };
        for question in before_it.into_iter().chain([quick]) {
            let (before, after, store) = truth.ask(question);
            prop_assert_eq!(watch.observe(before, after, store), None);
        }
        let uncertainty = 400 + rtt + (pause + rtt) / 500 + 10;
        let size = micros_of(STEP) + uncertainty + size;
        truth.offset += if forward { size } else { -size };
        let (before, after, store) = truth.ask(Question { pause, there: rtt / 2, back: rtt / 2 });
        let (found, by) = match watch.observe(before, after, store) {
            Some(Step::Forward(by)) => (true, by),
            Some(Step::Backward(by)) => (false, by),
            None => return Err(TestCaseError::fail("not found")),
        };
        prop_assert_eq!(found, forward);
        prop_assert!(by > STEP && by <= Duration::from_micros(size as u64 + (uncertainty as u64)));
        // It is reported once.
        let (before, after, store) = truth.ask(quick);
        prop_assert_eq!(watch.observe(before, after, store), None);
    }

    #[test]
    fn any_sample_is_taken(samples in prop::collection::vec(any::<(i64, i64, i64)>(), 1..20)) {
        let (mut clock, mut watch) = (StoreClock::default(), ClockWatch::default());
        for (before, after, store) in samples {
            clock.observe(before, after, Timestamp::from_micros(store));
            let _ = watch.observe(before, after, Timestamp::from_micros(store));
            let _ = (clock.estimate(store), clock.uncertainty(after));
            let _ = clock.local_for(Timestamp::from_micros(before));
        }
    }
}

fn micros_of(duration: Duration) -> i64 {
    domain::time::micros(duration)
}

#[test]
fn small_steps_add_up() {
    let mut watch = ClockWatch::default();
    let ask = |watch: &mut ClockWatch, local: i64, offset: i64| {
        watch.observe(
            local,
            local + 1_000,
            Timestamp::from_micros(local + 500 + offset),
        )
    };
    assert_eq!(ask(&mut watch, 0, 0), None);
    assert_eq!(ask(&mut watch, 100_000, 30_000), None);
    assert!(matches!(
        ask(&mut watch, 200_000, 60_000),
        Some(Step::Forward(_))
    ));
}

#[test]
fn a_step_freezes_for_the_longest_period_but_not_for_ever() {
    let freeze = |settings: LimitSettings| freeze_for(&settings.policy());
    let base = LimitSettings::EXACT;
    let second = LimitSettings {
        per_second: Some(1),
        ..base
    };
    assert_eq!(freeze(second), Duration::from_secs(1));
    assert_eq!(
        freeze(LimitSettings {
            per_hour: Some(1),
            ..second
        }),
        MAX_FREEZE
    );
    assert_eq!(
        freeze(LimitSettings {
            unlimited: true,
            ..base
        }),
        Duration::ZERO
    );
}
