//! The path of an event in one process, whole: from ingest to the receiver.

use std::time::Duration;

use domain::limit::Shape;
use domain::policy::LimitSettings;
use server::trial::{Embedded, Plan, per_second};

#[path = "support/used.rs"]
mod used;

use used::limit_is_used;

/// Long enough for a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_delivered_once_and_no_window_is_over() {
    let bucket = LimitSettings {
        shape: Some(Shape::TokenBucket),
        burst: Some(20),
        ..per_second(20)
    };
    let unlimited = LimitSettings {
        unlimited: true,
        ..LimitSettings::default()
    };
    let plans = vec![
        Plan::flooded("5/s", per_second(5), 5, 3),
        Plan::flooded("100/s", per_second(100), 100, 3),
        Plan::flooded("bucket", bucket, 20, 3),
        Plan::flooded("unlimited", unlimited, 400, 2),
    ];
    let mut stage = Embedded::set_up(plans).await.unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    assert_eq!(
        stage.trial.drain(PATIENCE).await.unwrap(),
        0,
        "everything was delivered"
    );

    let until = stage.trial.now().await.unwrap();
    let verdict = stage.trial.judge(until).await.unwrap();
    for one in &verdict.destinations {
        assert_eq!(one.early_starts, 0, "{one:?}");
        assert_eq!(one.events_arrived, one.events, "{one:?}");
        // A machine that stalls lets a start come too late to be sent.
        assert!(one.succeeded >= one.events, "{one:?}");
        assert_eq!(
            one.succeeded + one.unknown + one.not_sent,
            one.starts,
            "{one:?}"
        );
        assert!(one.arrivals <= one.succeeded + one.unknown, "{one:?}");
    }
    stage.strike().await.unwrap();
}

/// A thousand a second from the first one on, to a receiver whose queue of connections
/// is 128 long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_receiver_fails_nothing_from_a_cold_start() {
    let plans = vec![Plan::flooded("1,000/s", per_second(1_000), 1_000, 3)];
    let mut stage = Embedded::set_up(plans).await.unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    let undelivered = stage.trial.drain(PATIENCE).await.unwrap();
    let until = stage.trial.now().await.unwrap();
    let verdict = &stage.trial.judge(until).await.unwrap().destinations[0];
    assert_eq!(undelivered, 0, "{verdict:?}");
    assert_eq!(verdict.early_starts, 0, "{verdict:?}");
    let not_failed = verdict.succeeded + verdict.unknown + verdict.not_sent;
    assert_eq!(not_failed, verdict.starts, "{verdict:?}");
    limit_is_used(&stage.trial.receiver.record(), verdict);
    stage.strike().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_cut_by_sql_in_another_process_holds_from_its_time_in_history() {
    let plans = vec![Plan::flooded("200/s, then 10/s", per_second(200), 200, 2)];
    let mut stage = Embedded::set_up(plans).await.unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    stage.trial.receiver.wait_for(150).await;
    let id = stage.trial.placed[0].id;
    let sql = format!("update destinations set limit_per_second = 10 where id = '{id}'");
    adapters::shell::sqlite3(&stage.file, &sql).unwrap();
    stage.trial.receiver.wait_for(250).await;
    let cut = stage.trial.history(id).await.unwrap()[1].from;

    let until = stage.trial.now().await.unwrap();
    let verdict = &stage.trial.judge(until).await.unwrap().destinations[0];
    assert_eq!(verdict.early_starts, 0, "{verdict:?}");
    let ledger = stage.trial.ledger(id, until).await.unwrap();
    let later = ledger
        .rows
        .iter()
        .filter_map(|row| row.started_at)
        .filter(|at| *at > cut);
    assert!(later.count() >= 10, "starts go on under the new limit");
    stage.strike().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_by_sql_is_used_although_the_destination_was_blocked_for_an_hour() {
    let hourly = LimitSettings {
        per_hour: Some(3),
        ..LimitSettings::default()
    };
    let plans = vec![Plan::flooded("3/h", hourly, 10, 5)];
    let mut stage = Embedded::set_up(plans).await.unwrap();
    stage.trial.flood(&stage.ingest).await.unwrap();
    stage.trial.receiver.wait_for(3).await;
    let id = stage.trial.placed[0].id;
    let sql = format!("update destinations set limit_per_hour = 30 where id = '{id}'");
    adapters::shell::sqlite3(&stage.file, &sql).unwrap();
    let raised = tokio::time::timeout(PATIENCE, stage.trial.receiver.wait_for(30)).await;
    assert!(raised.is_ok(), "the sweep wakes a raised destination");
    // Until its outcome is recorded, a start may lie ahead of the clock.
    let waiting = u64::from(stage.trial.placed[0].plan.events) - 30;
    assert_eq!(stage.trial.settle(PATIENCE).await.unwrap(), waiting);
    let until = stage.trial.now().await.unwrap();
    let verdict = &stage.trial.judge(until).await.unwrap().destinations[0];
    assert_eq!(
        (verdict.early_starts, verdict.starts),
        (0, 30),
        "{verdict:?}"
    );
    stage.strike().await.unwrap();
}
