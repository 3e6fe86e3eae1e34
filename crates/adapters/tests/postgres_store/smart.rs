//! Smart delivery on Postgres: its locks, and what is forgotten of its history.

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

fn refused(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        destination: permit.destination,
        number: permit.number,
        kind: OutcomeKind::Failed,
        elapsed: std::time::Duration::from_millis(5),
        status: Some(429),
        error: None,
        response_body: bytes::Bytes::new(),
        next: NextTry::RetryAfter(std::time::Duration::from_secs(3_600)),
        signal: domain::health::Signal::default(),
    }
}

/// A change of the URL takes the row of smart delivery, and then the admitted
/// attempts. Outcomes wait for the row before they take those.
#[tokio::test(flavor = "multi_thread")]
async fn outcomes_wait_for_a_change_with_no_attempt_in_their_hands() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = smart(&database).await;
    let permits = database.permits(destination).await;
    assert_eq!(permits.len(), 5);
    let claims = database.store.claim_starts(worker, &permits[..1]).await;
    assert_eq!(claims.unwrap().answers.len(), 1);
    let mut change = database.user().await;
    let mut change = change.begin().await.unwrap();
    let row = format!("select from smart_limits where destination_id = '{destination}' for update");
    run(&mut change, row).await;
    let (store, outcome) = (database.store.clone(), refused(&permits[0]));
    let recording = tokio::spawn(async move { store.record_outcomes(worker, &[outcome]).await });
    database.until_somebody_waits().await;
    let admitted = "select from attempts where state = 'admitted' for update nowait";
    run(&mut change, admitted.to_owned()).await;
    change.rollback().await.unwrap();
    let recorded = recording.await.unwrap().unwrap();
    assert_eq!(recorded.skipped, []);
    let left = "select count(*) from attempts where state = 'admitted'";
    assert_eq!(database.number(left).await, 0, "the hold returns them");
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
