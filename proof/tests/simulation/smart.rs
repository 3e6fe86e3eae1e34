//! Smart delivery: the whole engine, against receivers whose capacity
//! nobody has told. The law alone is asked for more of them, and faster ones:
//! `cargo test -p tests --test properties smart`.

use domain::policy::LimitSettings;
use domain::smart::SmartDelivery;
use simulation::counts::Counts;
use simulation::scenario::{Behaviour, Mood, Operation, Scenario, What};
use simulation::world;

/// So long it may take, and so long it is watched after that.
const FIND_MS: u64 = 60_000;

/// A destination with smart delivery and a backlog for all the time, at this
/// limit. Its receiver's capacity is hidden.
fn scenario(limit: u32, behaviour: Behaviour, capacity: u32, watched_ms: u64) -> Scenario {
    let lasts_ms = FIND_MS + watched_ms;
    let events = u64::from(capacity) * lasts_ms * 12 / 10_000;
    let agenda = [
        What::Smart {
            destination: 0,
            to: SmartDelivery::On,
        },
        What::Receiver {
            destination: 0,
            behaviour,
            lasts_ms,
        },
        What::Arrivals {
            destination: 0,
            events: u32::try_from(events).unwrap(),
            every_ms: 0,
        },
    ];
    let operations = (agenda.into_iter().zip(0..))
        .map(|(what, number)| Operation {
            number,
            at_ms: 0,
            what,
        })
        .collect();
    Scenario {
        seed: u64::from(capacity + limit),
        mood: Mood::Stormy,
        destinations: vec![LimitSettings {
            per_second: Some(limit),
            ..LimitSettings::default()
        }],
        schedulers: 1,
        workers: 2,
        operations,
        lasts_ms,
    }
}

/// Plays it: which part of the capacity was taken after a minute, and which
/// part of what was asked for was refused.
fn play(limit: u32, behaviour: Behaviour, capacity: u32, watched_ms: u64) -> (f64, f64) {
    let counts = Counts::default();
    let scenario = scenario(limit, behaviour, capacity, watched_ms);
    let report = world::run(&scenario, None, &counts);
    assert_eq!(report.broken, []);
    let all = counts.all();
    let count = |what| all.get(what).copied().unwrap_or(0) as f64;
    let (taken, refused) = (
        count("taken after a minute"),
        count("refused after a minute"),
    );
    let possible = f64::from(capacity) * watched_ms as f64 / 1e3;
    (taken / possible, refused / (taken + refused))
}

fn finds(behaviour: impl Fn(u32) -> Behaviour, cases: &[(u32, u32, u64)]) {
    for (capacity, limit, watched_ms) in cases.iter().copied() {
        let (found, refused) = play(limit, behaviour(capacity), capacity, watched_ms);
        println!("{capacity}/s of {limit}/s: {found:.3} found, {refused:.4} refused");
        assert!(found >= 0.9, "{capacity}/s of {limit}/s: finds {found:.3}");
        assert!(
            refused < 0.01,
            "{capacity}/s of {limit}/s: {refused:.4} refused"
        );
    }
}

#[test]
fn a_hidden_capacity_is_found_within_a_minute_and_seldom_exceeded_after_it() {
    let takes = |per_second| Behaviour::Takes { per_second };
    let cases = [(10, 13, 120_000), (10, 100, 120_000), (100, 1_000, 20_000)];
    finds(takes, &cases);
}

#[test]
fn a_receiver_that_queues_is_found_by_its_latency() {
    let queues = |per_second| Behaviour::Queues { per_second };
    finds(queues, &[(10, 100, 60_000)]);
}
