//! Admission on garbage: it always answers, and the answer is sane.

use std::time::Duration;

use domain::admission::{
    Backlog, Blocked, Bucket, CROWDED_FLOOR, CoarseStarts, Decision, LOOK_WHEN_NONE_WAKES, Look,
    Meter, Outstanding, Usage, admit,
};
use domain::ids::PermitNumber;
use domain::limit::{Count, MAX_LIMIT, Period, Shape};
use domain::margin::Spread;
use domain::policy::{LimitSettings, Policy};
use domain::smart::Effective;
use domain::time::Timestamp;
use proptest::prelude::*;

use crate::admission::small_policy;

fn any_time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        Just(Timestamp::MIN),
        Just(Timestamp::MAX),
        any::<i64>().prop_map(Timestamp::from_micros),
        (0..10_000_000_i64).prop_map(Timestamp::from_micros),
    ]
}

fn any_number() -> impl Strategy<Value = u32> {
    prop_oneof![0..10_u32, 1_990..2_010_u32, Just(MAX_LIMIT), 0..=MAX_LIMIT]
}

fn any_spread() -> impl Strategy<Value = Spread> {
    (any::<u32>(), any::<u32>()).prop_map(|(least, most)| Spread {
        least: Duration::from_micros(least.into()),
        most: Duration::from_micros(most.into()),
    })
}

prop_compose! {
    fn any_policy()(
        limits in prop::array::uniform4(prop::option::of(any_number())),
        unlimited in prop::bool::weighted(0.1),
        shape in prop_oneof![
            Just(Shape::SlidingWindow), Just(Shape::TokenBucket), Just(Shape::LeakyBucket)
        ],
        burst in prop::option::of(any_number()),
        max_in_flight in prop::option::of(any_number()),
        safety_margin in prop::option::of(0.0..=1.0_f64),
        margin_cap in prop::option::of(0.0..=1.0_f64),
        count in prop::option::of(prop_oneof![Just(Count::Start), Just(Count::Response)]),
        allowed_per_minute in prop::option::of(any_number()),
        spread in prop::option::of(any_spread()),
        slower in prop::option::of(any::<f64>()),
    ) -> Policy {
        let [per_second, per_minute, per_hour, per_day] = limits;
        LimitSettings {
            per_second, per_minute, per_hour, per_day, unlimited, burst,
            shape: Some(shape), max_in_flight, safety_margin, margin_cap, count,
            allowed_per_minute,
        }.policy().measured(spread).slowed(Effective { per_second: slower, max_in_flight: None })
    }
}

fn any_outstanding() -> impl Strategy<Value = Outstanding> {
    (any_time(), any_time()).prop_map(|(not_before, deadline)| Outstanding {
        not_before,
        deadline,
    })
}

fn any_coarse() -> impl Strategy<Value = CoarseStarts> {
    let bucket = (any_time(), any::<u32>().prop_map(|n| n >> (n % 32)))
        .prop_map(|(ends_at, starts)| Bucket { ends_at, starts });
    let buckets = prop::collection::vec(bucket, 0..8);
    let unfolded = prop::collection::vec(any_time(), 0..8);
    (0..4_usize, buckets, unfolded).prop_map(|(period, buckets, unfolded)| CoarseStarts {
        period: Period::ALL[period],
        buckets,
        unfolded,
    })
}

prop_compose! {
    fn any_usage()(
        outstanding in prop::collection::vec(any_outstanding(), 0..12),
        in_flight in any_number(),
        starts in prop::collection::vec(any_time(), 0..20),
        claims in prop::collection::vec(any_time(), 0..20),
        coarse in prop::collection::vec(any_coarse(), 0..4),
        incomplete in prop::bool::weighted(0.1),
        (meter, recount) in ((any::<i64>(), any_time()), any::<bool>()),
        held_until in prop::option::of(any_time()),
        deferred_until in prop::option::of(any_time()),
        (probing, wakes) in any::<(bool, bool)>(),
    ) -> Usage {
        let meter = Meter { missing_micro: meter.0, as_of: meter.1 };
        Usage {
            outstanding,
            in_flight,
            wakes,
            starts,
            claims,
            coarse,
            incomplete,
            meter,
            recount,
            held_until,
            deferred_until,
            probing,
            group: None,
        }
    }
}

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

fn starts_of(decision: &Decision) -> Vec<Timestamp> {
    decision.slots.iter().map(|slot| slot.not_before).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn anything_is_answered(
        policy in any_policy(),
        usage in any_usage(),
        backlog in (any::<u32>(), prop::option::of(any_time())),
        places in any_number(),
        now in any_time(),
    ) {
        let backlog = Backlog { due: backlog.0, urgent: 0, next_due: backlog.1 };
        let decision = admit(&policy, &usage, &backlog, places, now);
        prop_assert!(decision.slots.len() as u64 <= u64::from(backlog.due.min(places)));
        prop_assert!(decision.slots.is_sorted_by_key(|slot| slot.not_before));
        for slot in &decision.slots {
            prop_assert!(slot.not_before >= now && slot.deadline >= slot.not_before);
        }
        let full = decision.slots.len() == 500;
        if let Look::At { at, .. } = decision.look {
            prop_assert!(at > now || full || now == Timestamp::MAX, "{:?}", decision);
        }
        prop_assert_eq!(admit(&policy, &usage, &backlog, places, now), decision);
    }

    /// A larger limit gives every k-th slot no later.
    #[test]
    fn a_larger_limit_is_never_slower(
        (second, minute) in (1..20_u32, 1..60_u32),
        (more_a_second, more_a_minute) in (0..20_u32, 0..60_u32),
        ages in prop::collection::vec(0..70_000_000_u64, 0..60),
        queued in prop::collection::vec(0..3_000_000_u64, 0..10),
        due in 1..100_u32,
    ) {
        let now = Timestamp::from_millis(1_000_000);
        let limits = |second, minute| LimitSettings {
            per_second: Some(second),
            per_minute: Some(minute),
            max_in_flight: Some(1_000),
            ..LimitSettings::EXACT
        }.policy();
        let (small, large) = (limits(second, minute), limits(
            second + more_a_second, minute + more_a_minute,
        ));
        let mut starts: Vec<_> = ages.iter().map(|age| now - micros(*age)).collect();
        starts.sort_by_key(|at| std::cmp::Reverse(*at));
        let outstanding = queued.iter().map(|ahead| {
            let deadline = now + micros(*ahead);
            Outstanding { not_before: deadline - Duration::from_secs(2), deadline }
        });
        let usage = Usage { outstanding: outstanding.collect(), starts, ..Usage::default() };
        let backlog = Backlog { due, urgent: 0, next_due: None };
        let slower = starts_of(&admit(&small, &usage, &backlog, 1_000, now));
        let faster = starts_of(&admit(&large, &usage, &backlog, 1_000, now));
        // The larger limit may have the smaller horizon.
        let horizon = now + domain::admission::lead(&large);
        let within = slower.iter().filter(|slot| **slot <= horizon).count();
        prop_assert!(faster.len() >= within, "{:?} {:?}", slower, faster);
        for (slow, fast) in slower.iter().zip(&faster) {
            prop_assert!(fast <= slow, "{:?} {:?}", slower, faster);
        }
    }

    /// Whatever it had before, marked or not, and however little it is given.
    #[test]
    fn whoever_is_short_of_places_is_woken_by_what_is_out_or_looks_soon(
        (queued, in_flight, marked) in (0..40_u32, 0..40_u32, any::<bool>()),
        places in 0..40_u32,
        before in 0..1_000_000_i64,
    ) {
        let now = Timestamp::from_millis(1_000_000);
        let unlimited = LimitSettings {
            unlimited: true,
            max_in_flight: Some(10_000),
            ..LimitSettings::EXACT
        };
        let permit = Outstanding { not_before: now, deadline: now + Duration::from_secs(2) };
        let usage = Usage {
            outstanding: vec![permit; queued as usize],
            in_flight,
            wakes: marked && queued + in_flight > 0,
            ..Usage::default()
        };
        let backlog = Backlog { due: 400, urgent: 0, next_due: None };
        let decision = admit(&unlimited.policy(), &usage, &backlog, places, now);
        prop_assert_eq!(decision.blocked, Some(Blocked::Places));
        prop_assert_eq!(decision.slots.len(), places as usize);
        let last = PermitNumber(before + i64::from(places));
        let mut given = (before + 1..=last.0).map(PermitNumber);
        let one_wakes = usage.wakes || given.any(|number| decision.wakes(number, last));
        let soon = Look::At {
            at: now + LOOK_WHEN_NONE_WAKES,
            floor: Some(now + CROWDED_FLOOR),
        };
        prop_assert_eq!(decision.look == soon, !one_wakes);
    }

    /// Looks never make a busy loop, even where nobody reaps and nobody works.
    #[test]
    fn looks_are_spaced_when_nothing_happens(
        policy in small_policy(),
        ages in prop::collection::vec(0..70_000_000_u64, 0..60),
        queued in prop::collection::vec((0..6_000_000_u64, 0..2_000_000_u64), 0..10),
        in_flight in 0..30_u32,
        due in 0..3_u32,
        missing_micro in 0..20_000_000_i64,
        hold in prop::option::of(0..3_000_000_u64),
        places in 0..3_u32,
    ) {
        let mut now = Timestamp::from_millis(1_000_000);
        let mut starts: Vec<_> = ages.iter().map(|age| now - micros(*age)).collect();
        starts.sort_by_key(|at| std::cmp::Reverse(*at));
        let queued = queued.iter().map(|(age, patience)| {
            let not_before = now - micros(*age) + micros(200_000);
            Outstanding { not_before, deadline: not_before + micros(*patience) }
        });
        let mut usage = Usage {
            outstanding: queued.collect(),
            in_flight,
            starts,
            meter: Meter { missing_micro, as_of: now },
            held_until: hold.map(|hold| now + micros(hold)),
            ..Usage::default()
        };
        let until = now + Duration::from_secs(5);
        let (mut runs, mut given) = (0_usize, 0_usize);
        while now < until {
            runs += 1;
            let backlog = Backlog { due, urgent: 0, next_due: None };
            let decision = admit(&policy, &usage, &backlog, places, now);
            given += decision.slots.len();
            usage.meter = decision.meter;
            // Nobody claims, expires or reaps them.
            usage.outstanding.extend(decision.slots.iter().map(|slot| Outstanding {
                not_before: slot.not_before,
                deadline: slot.deadline,
            }));
            let Look::At { at, floor } = decision.look else { break };
            prop_assert!(at > now, "{:?}", decision);
            if decision.blocked.is_some_and(|why| why != Blocked::Paused) {
                prop_assert!(floor.is_some_and(|floor| floor > now), "{:?}", decision);
            }
            now = at;
        }
        prop_assert!(runs <= given + 5 * 25, "{} runs for {} slots", runs, given);
    }
}

/// A store may well hand in a bucket that nothing fell into.
#[test]
fn an_empty_bucket_counts_nothing() {
    let limit = LimitSettings {
        per_second: Some(2_001),
        ..LimitSettings::EXACT
    };
    let now = Timestamp::from_millis(1_000_000);
    let ago = |ms| now - Duration::from_millis(ms);
    let buckets = vec![
        Bucket {
            ends_at: ago(100),
            starts: 2_000,
        },
        Bucket {
            ends_at: ago(995),
            starts: 0,
        },
        Bucket {
            ends_at: ago(996),
            starts: 0,
        },
        Bucket {
            ends_at: ago(997),
            starts: 1,
        },
    ];
    let coarse = CoarseStarts {
        period: Period::Second,
        buckets,
        unfolded: Vec::new(),
    };
    let usage = Usage {
        coarse: vec![coarse],
        ..Usage::default()
    };
    let backlog = Backlog {
        due: 5,
        urgent: 0,
        next_due: None,
    };
    let decision = admit(&limit.policy(), &usage, &backlog, 1_000, now);
    assert_eq!(starts_of(&decision), [now + Duration::from_millis(3)]);
}

/// Cost: a run looks at the permits, at the newest L starts or at 200 buckets a
/// period (and what is not folded yet), and at nothing of the backlog, of which
/// it is given two numbers. Here the largest of limits are decided with the few
/// elements that a store hands in for them.
#[test]
fn a_huge_limit_is_decided_from_two_hundred_buckets() {
    let limits = [
        (
            LimitSettings {
                per_second: Some(10_000),
                ..LimitSettings::EXACT
            },
            Period::Second,
        ),
        (
            LimitSettings {
                per_day: Some(1_000_000),
                ..LimitSettings::EXACT
            },
            Period::Day,
        ),
    ];
    let now = Timestamp::from_millis(1_000_000_000);
    for (settings, period) in limits {
        let max = settings
            .limits()
            .into_iter()
            .find_map(|(_, max)| max)
            .unwrap();
        let bucket = |index: u32| Bucket {
            ends_at: now - period.bucket() * index,
            starts: max / 200,
        };
        let buckets: Vec<Bucket> = (0..200).map(bucket).collect();
        let coarse = CoarseStarts {
            period,
            buckets,
            unfolded: Vec::new(),
        };
        let usage = Usage {
            coarse: vec![coarse],
            ..Usage::default()
        };
        let backlog = Backlog {
            due: u32::MAX,
            urgent: 0,
            next_due: None,
        };
        let decision = admit(&settings.policy(), &usage, &backlog, u32::MAX, now);
        // The oldest bucket leaves the window at the end of its two-hundredth.
        let first = decision.slots.first().map(|slot| slot.not_before);
        match period {
            Period::Second => assert_eq!(first, Some(now + period.bucket())),
            _ => assert_eq!((first, decision.blocked), (None, Some(Blocked::Limit))),
        }
        assert!(domain::admission::read_ahead(&settings.policy()) <= 501);
    }
}
