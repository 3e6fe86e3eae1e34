//! A bucket that gives all that it has is not called short, whenever somebody
//! looks, and whatever was before.

use std::time::Duration;

use domain::admission::Backlog;
use domain::limit::{Period, Shape};
use domain::policy::LimitSettings;
use domain::watch::{Around, shortfall};
use proptest::prelude::*;

use crate::world::{ENDLESS, World};

/// Buckets, and windows with a `burst`, so slow that nothing else binds.
fn settings() -> impl Strategy<Value = LimitSettings> {
    let limit = prop_oneof![
        (Just(Period::Second), 1..10_u32),
        (Just(Period::Minute), 1..600_u32),
        (Just(Period::Hour), 1..3_000_u32),
        (Just(Period::Day), 1..3_000_u32),
    ];
    let shape = prop_oneof![
        Just((Some(Shape::LeakyBucket), None)),
        (1..40_u32).prop_map(|burst| (Some(Shape::TokenBucket), Some(burst))),
        (1..40_u32).prop_map(|burst| (None, Some(burst))),
    ];
    (limit, shape, 0.0..0.5_f64).prop_map(|((period, max), (shape, burst), safety_margin)| {
        // With a burst of nearly its size it is the window that binds, whose
        // starts stay in clumps.
        let max = match shape {
            None => max.max(burst.unwrap_or(0) * 4),
            Some(_) => max,
        };
        let of = |one| (one == period).then_some(max);
        LimitSettings {
            per_second: of(Period::Second),
            per_minute: of(Period::Minute),
            per_hour: of(Period::Hour),
            per_day: of(Period::Day),
            shape,
            burst,
            safety_margin: Some(safety_margin),
            max_in_flight: Some(5_000),
            ..LimitSettings::EXACT
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Some events, a pause of whatever length, and then a backlog. The first
    /// that waits has waited since then, or for less long.
    #[test]
    fn work_after_a_pause_is_not_short(
        settings in settings(),
        events in 0..50_u64,
        pause in 0.0..3.0_f64,
        looks in prop::collection::vec((0.0..0.2_f64, 0.0..1.0_f64), 1..20),
    ) {
        let policy = settings.policy();
        let rate = policy.per_second();
        // As long as 100 starts take.
        let unit = 100.0 / rate;
        let mut world = World::new(policy.clone());
        world.waiting = events;
        world.follow_looks(u32::MAX, world.now + Duration::from_secs_f64(unit * pause));
        // What is left of them waits, and goes on being due.
        world.arrive(ENDLESS / 2);
        let began = world.now;
        for (passes, waits) in looks {
            // Its slots are planned, and nobody has had the time to claim them.
            let passes = Duration::from_secs_f64(0.5 + unit * passes);
            world.follow_looks(u32::MAX, world.now + passes);
            let around = Around {
                waits_since: Some(began + world.now.since(began).mul_f64(waits)),
                ..Around::default()
            };
            let backlog = Backlog { due: 10, urgent: 0, next_due: None };
            let found = shortfall(&policy, &world.usage_for(true), &backlog, around, world.now);
            prop_assert_eq!(found, None, "{:?} after the beginning", world.now.since(began));
        }
    }
}
