//! Retention beside everything else: what is over and old goes, while limits
//! hold, receivers fail and come back, and processes die.

use domain::policy::LimitSettings;
use simulation::Site;
use simulation::counts::Counts;
use simulation::scenario::{Behaviour, Fault, Mood, Operation, Point, Process, Scenario, What};
use simulation::world;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;

fn scenario(seed: u64, agenda: Vec<(u64, What)>) -> Scenario {
    let limits = |per_second, per_minute| LimitSettings {
        per_second,
        per_minute,
        ..LimitSettings::default()
    };
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
        destinations: vec![limits(Some(20), None), limits(Some(5), Some(100))],
        schedulers: 2,
        workers: 2,
        operations,
        lasts_ms: 6 * MINUTE,
    }
}

/// Plays it; how often what happened.
fn play(scenario: &Scenario) -> impl Fn(&str) -> u64 + use<> {
    let counts = Counts::default();
    let report = world::run(scenario, None, &counts);
    assert_eq!(report.broken, [], "seed {}", scenario.seed);
    let all = counts.all();
    move |what| all.get(what).copied().unwrap_or(0)
}

/// Work all the time, a receiver that rejects for a while, and trouble.
fn agenda(keep: What) -> Vec<(u64, What)> {
    let arrivals = |destination, every_ms| What::Arrivals {
        destination,
        events: 1_200,
        every_ms,
    };
    let receiver = |destination, behaviour, lasts_ms| What::Receiver {
        destination,
        behaviour,
        lasts_ms,
    };
    let fault = |fault, permille| What::Fault {
        fault,
        permille,
        lasts_ms: 2 * MINUTE,
    };
    let kill = What::Kill {
        process: Process::Scheduler(0),
        point: Point::After(Site::Retain),
        down_ms: 5 * SECOND,
    };
    vec![
        (0, keep),
        (0, arrivals(0, 100)),
        (0, arrivals(1, 200)),
        (20 * SECOND, receiver(0, Behaviour::Rejects, 20 * SECOND)),
        (30 * SECOND, receiver(1, Behaviour::Fails, 40 * SECOND)),
        (40 * SECOND, fault(Fault::StoreFailsAfter, 50)),
        (60 * SECOND, fault(Fault::StoreCommitsLate, 30)),
        (70 * SECOND, fault(Fault::RowLocked, 100)),
        (90 * SECOND, kill),
    ]
}

/// The ledger is kept for longer than its windows reach back, and no longer.
#[test]
fn a_short_ledger_breaks_no_limit_and_loses_no_event() {
    for seed in 1..4 {
        let keep = What::Keep {
            payloads_ms: 10 * SECOND,
            ledger_ms: 130 * SECOND,
            dead_letters_ms: 0,
        };
        let happened = play(&scenario(seed, agenda(keep)));
        assert!(happened("event forgotten") > 1_000, "seed {seed}");
        assert!(happened("attempt forgotten") > 1_000, "seed {seed}");
        assert_eq!(happened("dead letter forgotten"), 0, "seed {seed}");
        assert!(happened("process killed") >= 1, "seed {seed}");
    }
}

/// Payloads have long gone when dead letters are replayed; theirs are there.
#[test]
fn dead_letters_are_replayed_with_payloads_that_others_have_lost() {
    for seed in 1..4 {
        let keep = What::Keep {
            payloads_ms: SECOND,
            ledger_ms: 0,
            dead_letters_ms: 0,
        };
        let mut agenda = agenda(keep);
        let replay = What::Replay {
            destination: 0,
            share_percent: 50,
        };
        agenda.push((150 * SECOND, replay));
        let happened = play(&scenario(seed, agenda));
        assert!(happened("event forgotten") > 1_000, "seed {seed}");
        assert!(happened("dead letter replayed") >= 10, "seed {seed}");
        assert_eq!(happened("attempt forgotten"), 0, "seed {seed}");
    }
}
