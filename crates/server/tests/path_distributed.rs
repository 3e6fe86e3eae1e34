//! The path of an event over real servers and several processes, in calm and
//! while processes and servers go away.
//!
//! Needs PACELINE_TEST_DATABASE_URL, PACELINE_TEST_REDIS_URL and
//! PACELINE_TEST_AMQP_URL, as `scripts/test` sets them; without them it fails.

use std::path::PathBuf;
use std::time::Duration;

use adapters::shell::{self, QueueCommand};
use server::trial::{Distributed, Plan, Roles, Servers, TrialVerdict, per_second};

mod support;
#[path = "support/used.rs"]
mod used;

use used::limit_is_used;

use support::private::PrivateServers;

/// Long enough for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(180);

const ROLES: Roles = Roles {
    schedulers: 2,
    workers: 3,
};

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_paceline"))
}

fn plans(seconds: u32) -> Vec<Plan> {
    let five = (0..20).map(|n| Plan::flooded(&format!("5/s {n}"), per_second(5), 5, seconds));
    let fifty = (0..3).map(|n| Plan::flooded(&format!("50/s {n}"), per_second(50), 50, seconds));
    let fast = Plan::flooded("200/s", per_second(200), 200, seconds);
    five.chain(fifty).chain([fast]).collect()
}

/// Nothing over, nothing lost, and every extra request explained.
fn assert_kept(verdict: &TrialVerdict) {
    for one in &verdict.destinations {
        assert_eq!(one.early_starts, 0, "{one:?}");
        assert_eq!(one.events_arrived, one.events, "{one:?}");
        assert!(one.arrivals <= one.events + one.unknown, "{one:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_schedulers_and_workers_keep_every_limit_and_deliver_once() {
    let servers = Servers::for_tests().unwrap();
    let mut stage = Distributed::set_up(program(), servers, ROLES, plans(4))
        .await
        .unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    assert_eq!(
        stage.trial.drain(PATIENCE).await.unwrap(),
        0,
        "everything was delivered"
    );
    let until = stage.trial.now().await.unwrap();
    let verdict = stage.trial.judge(until).await.unwrap();
    assert_kept(&verdict);
    // An API beside it would refuse by what this process counts, which has other bounds.
    let as_migrated = "alter table backlog_standings add check (counted_at = '1970-01-01Z')";
    let counted = shell::psql(&stage.shared.database_url, as_migrated).await;
    counted.expect("a trial counts no backlogs");
    stage.strike().await.unwrap();
}

/// A thousand a second from the first one on, to a receiver whose queue of connections
/// is 128 long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_receiver_fails_nothing_from_a_cold_start() {
    let servers = Servers::for_tests().unwrap();
    let plans = vec![Plan::flooded("1,000/s", per_second(1_000), 1_000, 3)];
    let mut stage = Distributed::set_up(program(), servers, ROLES, plans)
        .await
        .unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    let undelivered = stage.trial.drain(PATIENCE).await.unwrap();
    let until = stage.trial.now().await.unwrap();
    let verdict = stage.trial.judge(until).await.unwrap();
    assert_kept(&verdict);
    let one = &verdict.destinations[0];
    assert_eq!(undelivered, 0, "{one:?}");
    let not_failed = one.succeeded + one.unknown + one.not_sent;
    assert_eq!(not_failed, one.starts, "{one:?}");
    limit_is_used(&stage.trial.receiver.record(), one);
    stage.strike().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_a_lost_schedule_and_a_deleted_queue_lose_nothing() {
    let servers = Servers::for_tests().unwrap();
    let mut stage = Distributed::set_up(program(), servers, ROLES, plans(10))
        .await
        .unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    // Each fault when something more has arrived, so that all are in mid-run.
    let arrived = |share: u64, stage: &Distributed| {
        let events: u64 = stage
            .trial
            .placed
            .iter()
            .map(|one| u64::from(one.plan.events))
            .sum();
        events * share / 100
    };
    let (url, queue) = (
        stage.shared.queue_url.clone(),
        stage.shared.queue_name.clone(),
    );

    stage.trial.receiver.wait_for(arrived(10, &stage)).await;
    assert!(stage.children.kill("scheduler").await.unwrap());
    stage.children.add("scheduler").unwrap();
    stage.trial.receiver.wait_for(arrived(20, &stage)).await;
    stage.shared.lose_schedule().await.unwrap();
    stage.trial.receiver.wait_for(arrived(30, &stage)).await;
    assert!(stage.children.kill("worker").await.unwrap());
    stage.children.add("worker").unwrap();
    stage.trial.receiver.wait_for(arrived(40, &stage)).await;
    shell::rabbitmq(&url, &queue, QueueCommand::Purge)
        .await
        .unwrap();
    stage.trial.receiver.wait_for(arrived(50, &stage)).await;
    shell::rabbitmq(&url, &queue, QueueCommand::Delete)
        .await
        .unwrap();

    assert_eq!(
        stage.trial.drain(PATIENCE).await.unwrap(),
        0,
        "no destination is stuck"
    );
    let until = stage.trial.now().await.unwrap();
    let verdict = stage.trial.judge(until).await.unwrap();
    assert_kept(&verdict);
    stage.strike().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_restart_in_mid_run_lose_nothing() {
    let private = PrivateServers::start(&["postgres", "redis", "rabbitmq"]);
    let servers = private.servers();
    let mut stage = Distributed::set_up(program(), servers, ROLES, plans(10))
        .await
        .unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    for (share, name) in [(10, "redis"), (25, "rabbitmq"), (40, "postgres")] {
        let events: u64 = stage
            .trial
            .placed
            .iter()
            .map(|one| u64::from(one.plan.events))
            .sum();
        let arrived = stage.trial.receiver.wait_for(events * share / 100);
        let in_time = tokio::time::timeout(PATIENCE, arrived).await;
        assert!(in_time.is_ok(), "deliveries go on until {name} is killed");
        private.kill(name);
        private.restart(name);
    }
    assert_eq!(
        stage.trial.drain(PATIENCE).await.unwrap(),
        0,
        "no destination is stuck"
    );
    let until = stage.trial.now().await.unwrap();
    let verdict = stage.trial.judge(until).await.unwrap();
    assert_kept(&verdict);
    stage.strike().await.unwrap();
}
