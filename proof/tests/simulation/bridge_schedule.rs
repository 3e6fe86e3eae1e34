//! The schedules of the drivers against the rules of the one in process, on 1 to 8
//! connections at once; see [`bridge`].
//!
//! Delays and leases are nothing or an hour, so that the real clock decides
//! nothing. Needs `PACELINE_TEST_REDIS_URL`; each case has keys of its own.
#[path = "bridge/schedule.rs"]
mod schedule;

use std::sync::Arc;

use adapters::in_process::InProcessSchedule;
use adapters::redis::RedisSchedule;
use engine::ports::Schedule;
use rand::TryRng as _;
use rand::rngs::SysRng;

use self::schedule::faulty::{Fault, Faulty};
use self::schedule::{Schedules, agree};
use crate::bridge::{CONNECTIONS, repeating, runner};

/// `connections` schedules over the same new keys.
async fn redis(connections: usize) -> Schedules {
    let url = std::env::var("PACELINE_TEST_REDIS_URL")
        .expect("set PACELINE_TEST_REDIS_URL to a redis that tests may write to");
    let mut prefix = [0; 8];
    SysRng.try_fill_bytes(&mut prefix).unwrap();
    let prefix = format!("test-{:016x}", u64::from_be_bytes(prefix));
    let mut schedules: Schedules = Vec::new();
    for _ in 0..connections {
        let schedule = RedisSchedule::connect(&url, &prefix, 1).await.unwrap();
        schedules.push(Arc::new(schedule));
    }
    schedules
}

async fn in_process(connections: usize) -> Schedules {
    let schedule: Arc<dyn Schedule> = Arc::new(InProcessSchedule::new());
    vec![schedule; connections]
}

#[test]
fn redis_answers_one_connection_by_the_rules_in_process() {
    agree(runner(60), 1..=1, &redis).unwrap();
}

#[test]
fn redis_answers_many_connections_by_the_rules_in_process_in_some_order() {
    agree(runner(120), 2..=CONNECTIONS, &redis).unwrap();
}

#[test]
fn in_process_answers_many_callers_by_its_rules_in_some_order() {
    agree(runner(200), 1..=CONNECTIONS, &in_process).unwrap();
}

/// The bridge finds a fault planted in front of Redis.
fn finds(fault: Fault) {
    let make = async |connections| Faulty::wrap(redis(connections).await, fault);
    let found = agree(repeating(300), 1..=CONNECTIONS, &make);
    assert!(found.is_err(), "not found: {fault:?}");
}

#[test]
fn a_finish_that_ignores_the_token_is_found() {
    finds(Fault::FinishIgnoresToken);
}

#[test]
fn a_wake_under_a_lease_that_is_lost_is_found() {
    finds(Fault::WakeUnderLeaseIsLost);
}

#[test]
fn a_job_that_two_take_at_once_is_found() {
    finds(Fault::TakeIsSplit);
}
