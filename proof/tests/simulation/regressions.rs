//! Bugs that the simulation has found, each as the few operations that showed
//! it.

use domain::limit::Shape;
use domain::policy::LimitSettings;
use domain::smart::SmartDelivery;
use simulation::counts::Counts;
use simulation::model::Condition;
use simulation::scenario::{Behaviour, Fault, Mood, Operation, Process, Scenario, What};
use simulation::world;

fn keeps_every_promise(scenario: &Scenario) {
    let report = world::run(scenario, None, &Counts::default());
    assert_eq!(report.broken, []);
}

/// Seed 154. By a clock that goes forward by four seconds, a worker's last
/// heartbeat is older than five. The store gave it up, and it went on under a
/// name whose claims are refused, until somebody restarted it.
#[test]
fn a_worker_outlives_a_forward_step_of_the_stores_clock() {
    keeps_every_promise(&Scenario {
        seed: 154,
        mood: Mood::Stormy,
        destinations: vec![LimitSettings {
            per_second: Some(6),
            ..LimitSettings::default()
        }],
        schedulers: 1,
        workers: 1,
        operations: vec![
            Operation {
                number: 37,
                at_ms: 8_295,
                what: What::StoreClock { step_ms: 4_535 },
            },
            Operation {
                number: 39,
                at_ms: 10_143,
                what: What::Arrivals {
                    destination: 0,
                    events: 20,
                    every_ms: 20,
                },
            },
        ],
        lasts_ms: 10_144,
    });
}

/// Seed 190. A worker's first heartbeats failed and were committed later, so
/// that its name had lapsed when one of them was answered at last.
#[test]
#[rustfmt::skip]
fn a_worker_outlives_an_introduction_that_takes_long() {
    keeps_every_promise(&Scenario {
        seed: 190,
        mood: Mood::Stormy,
        destinations: vec![
            LimitSettings { per_minute: Some(16), safety_margin: Some(0.1), ..LimitSettings::default() },
            LimitSettings { per_second: Some(2), max_in_flight: Some(2), ..LimitSettings::default() },
            LimitSettings { per_minute: Some(43), safety_margin: Some(0.1), ..LimitSettings::default() },
            LimitSettings { per_second: Some(3), per_minute: Some(100), burst: Some(9), shape: Some(Shape::TokenBucket), ..LimitSettings::default() },
        ],
        schedulers: 1,
        workers: 3,
        operations: vec![
            Operation { number: 13, at_ms: 82144, what: What::Pause { process: Process::Worker(1), lasts_ms: 3679 } },
            Operation { number: 15, at_ms: 91217, what: What::Limits { destination: 0, limits: LimitSettings { max_in_flight: Some(2), unlimited: true, ..LimitSettings::default() } } },
            Operation { number: 17, at_ms: 108423, what: What::Stop { process: Process::Worker(0), down_ms: 2204 } },
            Operation { number: 18, at_ms: 109881, what: What::Fault { fault: Fault::StoreCommitsLate, permille: 1000, lasts_ms: 38547 } },
            Operation { number: 19, at_ms: 110322, what: What::Arrivals { destination: 0, events: 228, every_ms: 20 } },
            Operation { number: 24, at_ms: 125081, what: What::Fault { fault: Fault::StoreFailsAfter, permille: 50, lasts_ms: 15103 } },
        ],
        lasts_ms: 135081,
    });
}

/// Seed 2236. The run ended two seconds into the burst of a minute that
/// `max_in_flight` makes last for three: a perfect sender had started all of it.
#[test]
#[rustfmt::skip]
fn a_burst_takes_the_time_that_concurrency_makes_it_take() {
    keeps_every_promise(&Scenario {
        seed: 2236,
        mood: Mood::Calm,
        destinations: vec![
            LimitSettings { per_second: Some(2), shape: Some(Shape::LeakyBucket), ..LimitSettings::default() },
            LimitSettings { per_second: Some(25), ..LimitSettings::default() },
            LimitSettings { per_second: Some(5), per_minute: Some(119), ..LimitSettings::default() },
            LimitSettings { per_minute: Some(2256), ..LimitSettings::default() },
            LimitSettings { per_second: Some(11), ..LimitSettings::default() },
        ],
        schedulers: 1,
        workers: 1,
        operations: vec![
            Operation { number: 3, at_ms: 100, what: What::Arrivals { destination: 3, events: 9209, every_ms: 0 } },
        ],
        lasts_ms: 182_100,
    });
}

/// Seed 1270. A worker was stopped for twelve seconds in the middle of sending,
/// and its request arrived after the retry of it.
#[test]
#[rustfmt::skip]
fn a_request_may_arrive_after_its_own_retry() {
    keeps_every_promise(&Scenario {
        seed: 1270,
        mood: Mood::Stormy,
        destinations: vec![
            LimitSettings { per_second: Some(5), per_minute: Some(226), ..LimitSettings::default() },
            LimitSettings { ..LimitSettings::default() },
            LimitSettings { per_second: Some(6), burst: Some(3), max_in_flight: Some(2), ..LimitSettings::default() },
        ],
        schedulers: 3,
        workers: 2,
        operations: vec![
            Operation { number: 1, at_ms: 0, what: What::Arrivals { destination: 2, events: 208, every_ms: 2085 } },
            Operation { number: 23, at_ms: 194_932, what: What::Pause { process: Process::Api, lasts_ms: 6497 } },
            Operation { number: 37, at_ms: 339_313, what: What::Broker { condition: Condition::Blocked, lasts_ms: 15766 } },
            Operation { number: 39, at_ms: 382_944, what: What::Arrivals { destination: 1, events: 226, every_ms: 0 } },
            Operation { number: 40, at_ms: 383_743, what: What::Pause { process: Process::Worker(0), lasts_ms: 11839 } },
        ],
        lasts_ms: 393_743,
    });
}

/// Seed 903. A client was refused while a paused destination's backlog was full,
/// and both destinations were deleted: what it still had to hand in took its
/// time.
#[test]
#[rustfmt::skip]
fn a_client_that_was_refused_goes_on_at_its_own_pace() {
    keeps_every_promise(&Scenario {
        seed: 903,
        mood: Mood::Stormy,
        destinations: vec![
            LimitSettings { per_second: Some(0), ..LimitSettings::default() },
            LimitSettings { per_second: Some(2), burst: Some(3), shape: Some(Shape::TokenBucket), ..LimitSettings::default() },
        ],
        schedulers: 1,
        workers: 3,
        operations: vec![
            Operation { number: 0, at_ms: 0, what: What::Arrivals { destination: 0, events: 244, every_ms: 1108 } },
            Operation { number: 4, at_ms: 0, what: What::Bound { destination_most: 134, tenant_most: 117 } },
            Operation { number: 19, at_ms: 96_473, what: What::Delete { destination: 1 } },
            Operation { number: 40, at_ms: 254_010, what: What::Delete { destination: 0 } },
        ],
        lasts_ms: 254_011,
    });
}

/// Seed 10194. Smart delivery had found three starts in ten seconds, which was no
/// less than the configured limit, until its owner raised that at the end.
#[test]
#[rustfmt::skip]
fn a_limit_that_is_raised_above_what_smart_delivery_found_takes_its_time() {
    keeps_every_promise(&Scenario {
        seed: 10_194,
        mood: Mood::Stormy,
        destinations: vec![
            LimitSettings { per_second: Some(5), per_minute: Some(83), ..LimitSettings::default() },
            LimitSettings { per_second: Some(4), ..LimitSettings::default() },
        ],
        schedulers: 1,
        workers: 3,
        operations: vec![
            Operation { number: 1, at_ms: 0, what: What::Arrivals { destination: 1, events: 136, every_ms: 3395 } },
            Operation { number: 3, at_ms: 0, what: What::Smart { destination: 1, to: SmartDelivery::On } },
            Operation { number: 21, at_ms: 125_768, what: What::Receiver { destination: 1, behaviour: Behaviour::Busy, lasts_ms: 13_869 } },
            Operation { number: 23, at_ms: 140_412, what: What::Limits { destination: 1, limits: LimitSettings { per_second: Some(4), per_minute: Some(100), per_hour: Some(798), ..LimitSettings::default() } } },
            Operation { number: 52, at_ms: 398_603, what: What::Arrivals { destination: 1, events: 239, every_ms: 0 } },
        ],
        lasts_ms: 398_604,
    });
}
