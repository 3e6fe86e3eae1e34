//! Smart delivery on Postgres: its locks, and what is forgotten of its history.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::DestinationId;
use domain::permit::Permit;
use domain::smart::{Reason, SmartDelivery};
use domain::time::Timestamp;
use engine::ports::{DEFAULT_TENANT, NextTry, Outcome, SmartBook, Store};
use sqlx::Connection;

use crate::database::{Database, per_second, run};

async fn smart(database: &Database) -> DestinationId {
    let destination = database.destination(per_second(10)).await;
    let on = (database.store).set_smart_delivery(DEFAULT_TENANT, destination, SmartDelivery::On);
    on.await.unwrap();
    database.accept(destination, 5).await;
    destination
}

pub(crate) fn refused(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        destination: permit.destination,
        number: permit.number,
        kind: OutcomeKind::Failed,
        sent_after: Duration::ZERO,
        elapsed: Duration::from_millis(5),
        status: Some(429),
        error: None,
        response_body: bytes::Bytes::new(),
        response_headers: domain::response_headers::ResponseHeaders::default(),
        next: NextTry::RetryAfter(Duration::from_secs(3_600)),
        signal: domain::health::Signal::default(),
        speaks: engine::ports::Speaks::ForRequest,
        may_arrive: false,
    }
}

/// A change of the URL takes the row of smart delivery, and its owner may leave
/// that transaction open. Outcomes are recorded all the same, and what the first
/// of them says is not judged; the next is.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_do_not_wait_for_a_change_that_stays_open() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = smart(&database).await;
    let permits = database.permits(destination).await;
    assert_eq!(permits.len(), 5);
    let claims = database.store.claim_starts(worker, &permits[..2]).await;
    assert_eq!(claims.unwrap().answers.len(), 2);
    let reason = async || {
        let view = database.store.smart_delivery(DEFAULT_TENANT, destination);
        view.await.unwrap().reason
    };
    let mut change = database.user().await;
    let mut change = change.begin().await.unwrap();
    let row = format!("select from smart_limits where destination_id = '{destination}' for update");
    run(&mut change, row).await;
    let first = [refused(&permits[0])];
    let recording = database.store.record_outcomes(worker, &first);
    // The store gives up a statement that waits for as long as this.
    let recorded = tokio::time::timeout(Duration::from_secs(2), recording).await;
    assert_eq!(recorded.unwrap().unwrap().skipped, []);
    let left = "select count(*) from attempts where state = 'admitted'";
    assert_eq!(database.number(left).await, 0, "the hold returns them");
    assert_eq!(reason().await, Reason::Configured);
    change.rollback().await.unwrap();
    let second = [refused(&permits[1])];
    let recorded = database.store.record_outcomes(worker, &second).await;
    assert_eq!(recorded.unwrap().skipped, []);
    assert_eq!(reason().await, Reason::Refused);
}

#[tokio::test]
async fn history_keeps_what_was_in_force_a_week_ago() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = smart(&database).await;
    let old = format!(
        "insert into smart_history (destination_id, in_force_from, reason)
        values ('{destination}', from_micros(1), 'refused'),
            ('{destination}', from_micros(2), 'slow')"
    );
    database.sql(&old).await;
    let permits = database.permits(destination).await;
    let claims = database.store.claim_starts(worker, &permits[..1]).await;
    assert_eq!(claims.unwrap().answers.len(), 1);
    let refused = [refused(&permits[0])];
    let recorded = database.store.record_outcomes(worker, &refused).await;
    assert_eq!(recorded.unwrap().skipped, []);
    let history = (database.store).smart_history(destination, Timestamp::MAX, 10);
    let reasons: Vec<Reason> = (history.await.unwrap().iter())
        .map(|change| change.reason)
        .collect();
    assert_eq!(reasons, [Reason::Refused, Reason::Configured, Reason::Slow]);
}
