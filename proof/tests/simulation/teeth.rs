//! The invariants have teeth: each finds a bug that is planted, and shrinking
//! finds what the bug needs.

use domain::limit_group::GroupLimits;
use domain::policy::LimitSettings;
use simulation::Site;
use simulation::counts::Counts;
use simulation::sabotage::Sabotage;
use simulation::scenario::{Behaviour, Fault, Mood, Operation, Point, Process, Scenario, What};
use simulation::shrink::{minimal, shrink_by};
use simulation::world::{self, Report};

/// So long after the full second each operation comes. Schedulers sweep at
/// full seconds. A sweep that meets the very first run of a destination wakes
/// it under its lease, and its permits are published again: then a permit comes
/// twice without any fault.
const AFTER_THE_SWEEP_MS: u64 = 100;

/// Two destinations with a steady backlog for a minute, and what else happens.
fn scenario(mood: Mood, troubles: Vec<What>) -> Scenario {
    let limits = LimitSettings {
        per_second: Some(4),
        ..LimitSettings::default()
    };
    let arrivals = (0..2).map(|destination| What::Arrivals {
        destination,
        events: 60,
        every_ms: 500,
    });
    let backlog = What::Arrivals {
        destination: 1,
        events: 250,
        every_ms: 0,
    };
    let operations = arrivals
        .chain([backlog])
        .chain(troubles)
        .zip(0..)
        .map(|(what, number)| Operation {
            number,
            at_ms: u64::from(number) * 1_000 + AFTER_THE_SWEEP_MS,
            what,
        });
    Scenario {
        seed: 1,
        mood,
        destinations: vec![limits; 2],
        schedulers: 2,
        workers: 2,
        operations: operations.collect(),
        lasts_ms: 60_000 + AFTER_THE_SWEEP_MS,
    }
}

/// What each bug needs to show.
fn showing(sabotage: Sabotage) -> Scenario {
    let fault = |fault| What::Fault {
        fault,
        permille: 500,
        lasts_ms: 30_000,
    };
    match sabotage {
        Sabotage::ForgetsKeys => scenario(Mood::Stormy, vec![fault(Fault::StoreFailsAfter)]),
        Sabotage::StartsTwice => scenario(Mood::Stormy, vec![fault(Fault::MessageDuplicated)]),
        Sabotage::SweepsMarksOnly => wiped_when_nobody_hands_in(),
        Sabotage::NeverReaps => scenario(Mood::Stormy, vec![fault(Fault::MessageLost)]),
        Sabotage::ShortLeases => scenario(Mood::Stormy, vec![fault(Fault::StoreSlow)]),
        Sabotage::ForgetsHolds => scenario(
            Mood::Stormy,
            vec![What::Receiver {
                destination: 1,
                behaviour: Behaviour::Busy,
                lasts_ms: 30_000,
            }],
        ),
        Sabotage::ForgetsCounts | Sabotage::RefusesForEver | Sabotage::TakesRefused => scenario(
            Mood::Stormy,
            vec![What::Bound {
                destination_most: 40,
                tenant_most: 1_000,
            }],
        ),
        Sabotage::TellsTwice | Sabotage::NeverEndsAlerts => {
            scenario(Mood::Stormy, vec![What::Told { destination: 0 }])
        }
        Sabotage::LiftsGroups => scenario(Mood::Stormy, in_a_group()),
        Sabotage::ForgetsParts => batches_at(Behaviour::AnswersInParts),
        Sabotage::KeepsRawWords => batches_at(Behaviour::AnswersNonsense),
        _ => scenario(Mood::Calm, Vec::new()),
    }
}

/// Both may start two a second together, which is less than either may.
fn in_a_group() -> Vec<What> {
    let limits = GroupLimits {
        per_second: Some(2),
        ..GroupLimits::default()
    };
    let join = (0..2).map(|destination| What::Joins { destination });
    let limits = [What::GroupLimits { limits }];
    limits.into_iter().chain(join).collect()
}

/// All jobs are lost while a backlog waits, and no event comes any more that would wake.
fn wiped_when_nobody_hands_in() -> Scenario {
    let mut wiped = scenario(Mood::Stormy, vec![What::WipeSchedule]);
    if let Some(wipe) = wiped.operations.last_mut() {
        wipe.at_ms = 40_000 + AFTER_THE_SWEEP_MS;
    }
    wiped
}

fn batches_at(behaviour: Behaviour) -> Scenario {
    let batches = What::Batches {
        destination: 1,
        max_events: 10,
        max_bytes: 10_000,
        max_wait_ms: 1_000,
    };
    let receiver = What::Receiver {
        destination: 1,
        behaviour,
        lasts_ms: 20_000,
    };
    scenario(Mood::Stormy, vec![batches, receiver])
}

fn play(scenario: &Scenario, sabotage: Option<Sabotage>) -> Report {
    world::run_sabotaged(scenario, sabotage, None, &Counts::default())
}

#[test]
fn every_planted_bug_breaks_its_promise() {
    for (sabotage, promise) in Sabotage::ALL {
        let report = play(&showing(sabotage), Some(sabotage));
        let first = report.broken.first().map(|broken| broken.promise);
        assert_eq!(first, Some(promise), "{sabotage:?}");
    }
}

#[test]
fn without_a_bug_the_same_scenarios_break_nothing() {
    for (sabotage, _) in Sabotage::ALL {
        assert_eq!(play(&showing(sabotage), None).broken, [], "{sabotage:?}");
    }
}

#[test]
fn shrinking_leaves_what_the_bug_needs() {
    let noise = vec![
        What::WipeSchedule,
        What::Kill {
            process: Process::Scheduler(0),
            point: Point::After(Site::Admit),
            down_ms: 500,
        },
        What::Fault {
            fault: Fault::MessageDuplicated,
            permille: 300,
            lasts_ms: 20_000,
        },
        What::Pause {
            process: Process::Worker(1),
            lasts_ms: 900,
        },
        What::PurgeQueue,
        What::Fault {
            fault: Fault::ScheduleSlow,
            permille: 100,
            lasts_ms: 5_000,
        },
    ];
    let noisy = scenario(Mood::Stormy, noise);
    let play = |scenario: &Scenario| play(scenario, Some(Sabotage::StartsTwice));
    let shrunk = shrink_by(&noisy, play).expect("the bug shows");
    let left = &shrunk.scenario.operations;
    // Somebody who hands in, and messages that come twice.
    assert_eq!(left.len(), 2, "{}", shrunk.scenario.as_rust());
    assert!(matches!(left[0].what, What::Arrivals { .. }));
    assert_eq!(left[1].number, 5, "{}", shrunk.scenario.as_rust());
    assert_eq!(shrunk.promise, "a_permit_starts_once_and_in_time");
    let again = minimal(left.clone(), |operations| {
        !play(&shrunk.scenario.with(operations.to_vec()))
            .broken
            .is_empty()
    });
    assert_eq!(again, *left, "nothing more can go");
}
