//! Receivers that ask to be left alone, and receivers that fail for long and
//! come back: the whole engine, with other things going wrong.

use domain::policy::LimitSettings;
use simulation::counts::Counts;
use simulation::scenario::{Behaviour, Fault, Mood, Operation, Process, Scenario, What};
use simulation::world;

const MINUTE: u64 = 60_000;

/// A destination of 20 a second with 1,500 events, whose receiver behaves like
/// this from the tenth second on, and a neighbour.
fn scenario(seed: u64, behaviour: Behaviour, lasts_ms: u64) -> Scenario {
    let limits = LimitSettings {
        per_second: Some(20),
        ..LimitSettings::default()
    };
    let arrivals = |destination| What::Arrivals {
        destination,
        events: 1_500,
        every_ms: 50,
    };
    let receiver = What::Receiver {
        destination: 0,
        behaviour,
        lasts_ms,
    };
    let slow = What::Fault {
        fault: Fault::StoreSlow,
        permille: 50,
        lasts_ms: MINUTE,
    };
    let pause = What::Pause {
        process: Process::Worker(0),
        lasts_ms: 7_000,
    };
    let locked = What::Fault {
        fault: Fault::RowLocked,
        permille: 50,
        lasts_ms: MINUTE,
    };
    let agenda = [
        (0, arrivals(0)),
        (0, arrivals(1)),
        (10_000, receiver),
        (20_000, slow),
        (25_000, locked),
        (40_000, pause),
    ];
    let operations = (agenda.into_iter().zip(0..))
        .map(|((at_ms, what), number)| Operation {
            number,
            at_ms,
            what,
        })
        .collect();
    Scenario {
        seed,
        mood: Mood::Stormy,
        destinations: vec![limits; 2],
        schedulers: 2,
        workers: 2,
        operations,
        lasts_ms: 2 * MINUTE,
    }
}

/// Plays it; how often what happened.
fn play(seed: u64, behaviour: Behaviour, lasts_ms: u64) -> impl Fn(&str) -> u64 {
    let counts = Counts::default();
    let report = world::run_sabotaged(&scenario(seed, behaviour, lasts_ms), None, None, &counts);
    assert_eq!(report.broken, [], "seed {seed}");
    let all = counts.all();
    move |what| all.get(what).copied().unwrap_or(0)
}

#[test]
fn a_receiver_that_asks_is_left_alone_and_its_backlog_drains() {
    for seed in 1..6 {
        let happened = play(seed, Behaviour::Busy, MINUTE);
        assert!(happened("destination held") >= 20, "seed {seed}");
        assert_eq!(happened("breaker opened"), 0, "seed {seed}");
    }
}

#[test]
fn a_receiver_that_fails_for_long_is_probed_and_comes_back() {
    for seed in 1..6 {
        let happened = play(seed, Behaviour::Fails, 5 * MINUTE);
        let opened = happened("breaker opened");
        assert!(opened >= 1, "seed {seed}");
        assert_eq!(happened("breaker closed"), opened, "seed {seed}");
        let failed = happened("receiver failed");
        // Five seconds at 20 a second, what was on its way, and a few probes.
        assert!((20..160).contains(&failed), "seed {seed}: {failed}");
    }
}

#[test]
fn a_receiver_that_fails_for_a_moment_is_not_held() {
    for seed in 1..6 {
        let happened = play(seed, Behaviour::Fails, 3_000);
        assert_eq!(happened("breaker opened"), 0, "seed {seed}");
        // Many more than open a breaker where they go on.
        let failed = happened("receiver failed");
        assert!(failed >= 40, "seed {seed}: {failed}");
    }
}
