//! Batches: the whole engine, with receivers that refuse, fail and lose
//! their answers, and processes that are killed.

use domain::policy::LimitSettings;
use simulation::Site;
use simulation::counts::Counts;
use simulation::scenario::{Behaviour, Fault, Mood, Operation, Point, Process, Scenario, What};
use simulation::world;

const MINUTE: u64 = 60_000;

/// Two destinations of 5 requests a second that get 40 events a second each, the
/// first of them in batches. Without batches that backlog would last for
/// minutes.
fn scenario(seed: u64, behaviour: Behaviour) -> Scenario {
    let limits = LimitSettings {
        per_second: Some(5),
        ..LimitSettings::default()
    };
    let batches = |max_events| What::Batches {
        destination: 0,
        max_events,
        max_bytes: 1_000_000,
        max_wait_ms: 800,
    };
    let arrivals = |destination, events| What::Arrivals {
        destination,
        events,
        every_ms: 25,
    };
    let fault = |fault| What::Fault {
        fault,
        permille: 40,
        lasts_ms: 2 * MINUTE,
    };
    let kill = |point| What::Kill {
        process: Process::Worker(0),
        point,
        down_ms: 1_000,
    };
    let agenda = [
        (0, batches(20)),
        (0, arrivals(0, 2_000)),
        (0, arrivals(1, 100)),
        (
            10_000,
            What::Receiver {
                destination: 0,
                behaviour,
                lasts_ms: 15_000,
            },
        ),
        (12_000, fault(Fault::StoreFailsAfter)),
        (12_000, fault(Fault::RowLocked)),
        (12_000, fault(Fault::MessageLost)),
        (20_000, kill(Point::After(Site::ClaimStarts))),
        (30_000, kill(Point::Before(Site::RecordOutcomes))),
        (40_000, batches(0)),
        (45_000, batches(50)),
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
        lasts_ms: 3 * MINUTE,
    }
}

#[test]
fn batches_lose_nothing_and_stay_within_the_limit_whatever_fails() {
    let behaviours = [
        Behaviour::Fails,
        Behaviour::Rejects,
        Behaviour::Busy,
        Behaviour::Hangs,
        Behaviour::LosesResponses,
        Behaviour::Slow { millis: 2_000 },
        Behaviour::AnswersNonsense,
    ];
    for (behaviour, seed) in behaviours.into_iter().zip(1..) {
        let counts = Counts::default();
        let report = world::run(&scenario(seed, behaviour), None, &counts);
        assert_eq!(report.broken, [], "{behaviour:?}");
        let all = counts.all();
        let several = all.get("a batch of several started").copied();
        assert!(several > Some(50), "{behaviour:?}: {several:?}");
    }
}
