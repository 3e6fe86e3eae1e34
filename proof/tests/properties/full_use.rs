//! No slower than the limit while there is work, and without running all the
//! time. Workers claim 2 ms after the slot; runs come when the looks say.

use std::time::Duration;

use domain::compliance::{Share, ideal_starts, judge};
use domain::limit::Shape;
use domain::policy::LimitSettings;

use crate::world::{Fate, World};

/// Runs a second that one destination may cost: two a lead, and the lead of a
/// large limit with the default `max_in_flight` is 62.5 ms.
const MAX_RUNS: f64 = 33.0;

struct Use {
    name: &'static str,
    share: Share,
    runs_per_second: f64,
}

const NONE: LimitSettings = LimitSettings::EXACT;

fn second(max: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(max),
        ..NONE
    }
}

fn minute(max: u32) -> LimitSettings {
    LimitSettings {
        per_minute: Some(max),
        ..NONE
    }
}

fn shaped(shape: Shape, burst: Option<u32>, limits: LimitSettings) -> LimitSettings {
    LimitSettings {
        shape: Some(shape),
        burst,
        ..limits
    }
}

/// The name, the settings, and for how many virtual seconds.
fn cases() -> Vec<(&'static str, LimitSettings, u64)> {
    let (token, leaky) = (Shape::TokenBucket, Shape::LeakyBucket);
    let both = LimitSettings {
        per_minute: Some(100),
        ..second(10)
    };
    vec![
        ("1/s", second(1), 600),
        ("5/s", second(5), 300),
        ("10/s", second(10), 300),
        ("100/s", second(100), 60),
        ("1,000/s", second(1_000), 12),
        ("100/min", minute(100), 1_800),
        ("300/min", minute(300), 1_800),
        ("10/s and 100/min", both, 1_800),
        (
            "token bucket 10/s, 50",
            shaped(token, Some(50), second(10)),
            300,
        ),
        ("leaky bucket 100/s", shaped(leaky, None, second(100)), 60),
        (
            "10/s, burst 3",
            LimitSettings {
                burst: Some(3),
                ..second(10)
            },
            300,
        ),
        ("5,000/s, coarse", second(5_000), 4),
    ]
}

/// The limit as a burst leaves it, or as even traffic does: the first has its
/// slots in clumps for ever, the second opens one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Traffic {
    Burst,
    Even,
}

fn measure(name: &'static str, settings: &LimitSettings, seconds: u64, traffic: Traffic) -> Use {
    let mut world = World::new(settings.policy());
    let (period, max) = settings
        .limits()
        .into_iter()
        .find(|(_, max)| max.is_some())
        .unwrap();
    if traffic == Traffic::Even {
        world = world.started_before(max.unwrap(), period.duration());
    }
    let before = world.starts.len();
    let since = world.now;
    let until = since + Duration::from_secs(seconds);
    world.follow_looks(u32::MAX, until);
    let verdict = judge(&world.history, &world.starts);
    assert!(
        verdict.is_kept(),
        "{name}: {:?}",
        verdict.violations().next()
    );
    let mut due: Vec<_> = world.starts[..before].iter().map(|(at, _)| *at).collect();
    due.resize(world.starts.len() * 2 + 100, since);
    let share = Share {
        started: (world.starts.len() - before) as u64,
        allowed: ideal_starts(&world.history, &due, since, until),
    };
    assert!(share.allowed < due.len() as u64);
    Use {
        name,
        share,
        runs_per_second: world.runs as f64 / seconds as f64,
    }
}

#[test]
fn a_limit_is_used_and_runs_are_few() {
    for traffic in [Traffic::Burst, Traffic::Even] {
        for (name, settings, seconds) in cases() {
            let used = measure(name, &settings, seconds, traffic);
            let Share { started, allowed } = used.share;
            let percent = started as f64 * 100.0 / allowed as f64;
            let (name, runs) = (used.name, used.runs_per_second);
            println!("{traffic:?} {name:23} {started:6} of {allowed:6} {percent:7.2} % {runs:5.1}");
            assert!(used.share.percent() >= 99, "{name}: {percent} %");
            assert!(runs <= MAX_RUNS, "{name}: {runs} runs a second");
        }
    }
}

/// Concurrency binds, and every outcome wakes: the floor bounds the runs.
#[test]
fn a_crowded_destination_runs_no_more_often_than_its_floor() {
    for (max_in_flight, takes) in [(1, 500), (2, 1_000), (10, 3_000), (50, 15_000_000)] {
        let settings = LimitSettings {
            max_in_flight: Some(max_in_flight),
            ..second(2_000)
        };
        let fates = vec![
            Fate::Start {
                late: 200,
                sent: 100,
                takes,
            },
            Fate::Start {
                late: 700,
                sent: 100,
                takes: 2 * takes,
            },
        ];
        let mut world = World::new(settings.policy()).fates(fates);
        world.follow_looks(u32::MAX, world.now + Duration::from_secs(10));
        assert!(world.starts.len() >= 50.min(max_in_flight as usize));
        assert!(
            world.runs <= 10 * 201,
            "{max_in_flight}: {} runs",
            world.runs
        );
    }
}

/// How long places are used.
const LASTS: Duration = Duration::from_secs(120);

/// A name, so many places, and what becomes of the permits that have them: also of a
/// receiver that takes ten seconds, of one where some requests hang, and of as many as make a
/// row the largest part of them. Those are 64 and 128 where its own concurrency binds, with
/// rows of 8 and 16, and 193 where places do, with rows of 16.
fn crowds() -> Vec<(&'static str, u32, Vec<Fate>)> {
    let takes = |takes| Fate::Start {
        late: 500,
        sent: 100,
        takes,
    };
    // Always the same of as many as those of which one wakes.
    let mut some_hang = vec![takes(20_000); 15];
    some_hang.push(takes(10_000_000));
    vec![
        ("prompt", 64, vec![takes(20_000)]),
        (
            "uneven",
            64,
            vec![takes(30_000), takes(200_000), takes(55_000)],
        ),
        (
            "cut badly",
            193,
            vec![takes(30_000), takes(200_000), takes(55_000)],
        ),
        ("slow", 256, vec![takes(10_000_000)]),
        ("slow, a few", 20, vec![takes(10_000_000), takes(7_000_000)]),
        ("some hang", 128, some_hang.clone()),
        ("cut and hang", 193, some_hang),
    ]
}

/// An unlimited destination with this concurrency.
fn unlimited(max_in_flight: u32, fates: Vec<Fate>) -> World {
    let settings = LimitSettings {
        unlimited: true,
        max_in_flight: Some(max_in_flight),
        ..LimitSettings::EXACT
    };
    World::new(settings.policy()).fates(fates)
}

/// Few outcomes wake, one of each `row`, and few of its places were ever empty. The figures.
fn assert_used(name: &str, world: &World, places: u32, row: u32) -> String {
    let starts = world.starts.len() as f64;
    let wakes = world.woken as f64 / starts;
    let used = world.in_use.as_secs_f64() / (LASTS.as_secs_f64() * f64::from(places));
    assert!(
        wakes <= 1.1 / f64::from(row),
        "{name}: {wakes} wakes a start"
    );
    assert!(used >= 0.8, "{name}: {used} of its places");
    format!("{name:12} {starts:8} starts, {wakes:.3} wakes each, {used:.3} of the places")
}

/// Concurrency binds.
#[test]
fn a_crowded_destination_is_woken_when_a_good_part_of_its_places_is_free() {
    for (name, max_in_flight, fates) in crowds() {
        let mut world = unlimited(max_in_flight, fates);
        world.follow_looks(u32::MAX, world.now + LASTS);
        let row = 1 << (max_in_flight / 8).ilog2();
        println!("{}", assert_used(name, &world, max_in_flight, row));
    }
}

/// Its tenant's places bind, or the fleet's.
#[test]
fn who_is_short_of_places_is_woken_when_a_good_part_of_them_is_free() {
    for (name, places, fates) in crowds() {
        let mut world = unlimited(10_000, fates);
        world.follow_looks_within(places, world.now + LASTS);
        let row = places.div_ceil(24).next_power_of_two();
        println!("{}", assert_used(name, &world, places, row));
    }
}

/// What it has was given while there was room, and none of it was to wake. Then places bind:
/// it does not stand still until it is looked at.
#[test]
fn who_becomes_short_of_places_is_woken_by_the_first_that_come_free() {
    let takes = Fate::Start {
        late: 500,
        sent: 100,
        takes: 100_000,
    };
    for (earlier, places) in (1..60_u32).flat_map(|earlier| [(earlier, 0), (earlier, 2)]) {
        let mut world = unlimited(10_000, vec![takes]);
        world.waiting = u64::from(earlier);
        world.follow_looks(u32::MAX, world.now + Duration::from_millis(20));
        assert_eq!(world.starts.len(), earlier as usize, "there was room");

        world.arrive(1_000);
        let stopped = world.now;
        world.follow_looks_within(earlier + places, stopped + Duration::from_millis(1));
        assert_eq!(world.starts.len(), earlier as usize + places as usize);
        world.follow_looks_within(earlier + places, stopped + Duration::from_millis(300));
        let starts = world.starts.len() as u32;
        assert!(starts >= 2 * earlier, "{starts} of {earlier} and {places}");
        assert!(world.runs <= 10, "{} runs", world.runs);
    }
}

/// Not one run for each that comes: one each ten milliseconds, for which nobody waits longer.
#[test]
fn arrivals_at_a_busy_destination_cost_no_run_each() {
    const MOST_LATE: Duration = Duration::from_millis(11);
    let slow = Fate::Start {
        late: 500,
        sent: 100,
        takes: 50_000,
    };
    let mut world = unlimited(1_000, vec![slow]);
    world.waiting = 0;
    let mut arrived = Vec::new();
    for _ in 0..1_000 {
        world.follow_looks(u32::MAX, world.now + Duration::from_millis(1));
        world.arrive(1);
        arrived.push(world.now);
    }
    world.follow_looks(u32::MAX, world.now + Duration::from_secs(1));
    assert_eq!(world.starts.len(), arrived.len());
    assert!(world.runs <= 110, "{} runs in a second", world.runs);
    for ((start, _), arrived) in world.starts.iter().zip(arrived) {
        let late = start.since(arrived);
        assert!(late <= MOST_LATE, "{late:?}");
    }
}

/// Whether the first is still under way or over.
#[test]
fn a_lone_event_and_the_one_behind_it_wait_for_nobody() {
    let quick = Fate::Start {
        late: 0,
        sent: 100,
        takes: 2_000,
    };
    let mut world = unlimited(50, vec![quick]);
    world.waiting = 0;
    for pause in [1_000, 0, 1_000, 3] {
        world.follow_looks(u32::MAX, world.now + Duration::from_millis(pause));
        world.arrive(1);
        let arrived = world.now;
        world.follow_looks(u32::MAX, arrived + Duration::from_millis(1));
        let start = world.starts.last().map(|(at, _)| *at);
        assert_eq!(start, Some(arrived), "{pause} ms after the one before");
    }
}

/// Nobody claims, and the reaper takes its time: permits past their deadline
/// must not make the destination run all the time.
#[test]
fn orphans_cost_no_runs() {
    for settings in cases().into_iter().map(|(_, settings, _)| settings) {
        let fates = vec![Fate::Orphan {
            reaped_after: 1_500_000,
        }];
        let mut world = World::new(settings.policy()).fates(fates);
        world.follow_looks(u32::MAX, world.now + Duration::from_secs(20));
        assert!(world.runs <= 20 * 33, "{settings:?}: {} runs", world.runs);
    }
}
