//! A start is the send: what [`Store::report_sends`](engine::ports::Store::report_sends)
//! and [`Store::record_outcomes`](engine::ports::Store::record_outcomes) make of it.

use std::time::Duration;

use domain::admission::{Look, latest_start};
use domain::attempt::OutcomeKind;
use domain::ids::{DestinationId, PermitNumber, WorkerId};
use domain::permit::Permit;
use domain::time::Timestamp;
use engine::ports::{NextTry, Outcome, SendReport, Start};

use super::World;

const SECOND: Duration = Duration::from_secs(1);

/// How long after its claim a request of these tests is sent.
const SENT_AFTER: Duration = Duration::from_millis(300);

/// One attempt that this worker has claimed, of one a second.
async fn one_claim(world: &World) -> (WorkerId, DestinationId, Permit, Start) {
    let destination = world.destination().per_second(1).create().await;
    world.accept(destination, 3).await;
    let worker = world.worker().await;
    let permit = world.admit(destination).await[0];
    let start = world.start(worker, &[permit]).await.remove(0);
    (worker, destination, permit, start)
}

async fn started_at(world: &World, destination: DestinationId) -> Option<Timestamp> {
    world.attempts(destination).await[0].started_at
}

fn report(permit: &Permit, sent_after: Duration) -> SendReport {
    SendReport {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        sent_after,
    }
}

fn answered(world: &World, permit: &Permit, sent_after: Duration) -> Outcome {
    Outcome {
        sent_after,
        ..world.outcome(permit, OutcomeKind::Succeeded, NextTry::None)
    }
}

/// The start is so long after the claim as the worker says, and ends so much later.
pub async fn a_start_is_the_send(world: &World) {
    let (worker, destination, permit, start) = one_claim(world).await;
    let outcome = answered(world, &permit, SENT_AFTER);
    let recorded = world.store.record_outcomes(worker, &[outcome]).await;
    recorded.unwrap();
    let attempt = &world.attempts(destination).await[0];
    let sent_at = start.claimed_at + SENT_AFTER;
    assert_eq!(attempt.started_at, Some(sent_at));
    assert_eq!(
        attempt.finished_at,
        Some(sent_at + Duration::from_millis(40))
    );
    assert_eq!(world.starts(destination).await, [sent_at]);
}

/// A failure says the same, and its retry is due so long after its end.
pub async fn a_failed_start_is_its_send_too(world: &World) {
    let (worker, destination, permit, start) = one_claim(world).await;
    let next = NextTry::RetryAfter(Duration::from_secs(60));
    let failed = Outcome {
        sent_after: SENT_AFTER,
        ..world.outcome(&permit, OutcomeKind::Failed, next)
    };
    world
        .store
        .record_outcomes(worker, &[failed])
        .await
        .unwrap();
    let attempts = world.attempts(destination).await;
    let sent_at = start.claimed_at + SENT_AFTER;
    assert_eq!(attempts[0].started_at, Some(sent_at));
    let ended_at = sent_at + Duration::from_millis(40);
    assert_eq!(attempts[0].finished_at, Some(ended_at));
    assert_eq!(attempts[3].created_at, ended_at);
}

/// As long as nobody has said when it was sent it counts as late as it may be, and
/// what is said cannot make it later than that.
pub async fn until_it_is_known_a_start_is_its_latest(world: &World) {
    let (worker, destination, permit, start) = one_claim(world).await;
    let latest = Some(latest_start(start.claimed_at, permit.deadline));
    assert_eq!(started_at(world, destination).await, latest);
    let late = report(&permit, 5 * SECOND);
    world.store.report_sends(worker, &[late]).await.unwrap();
    assert_eq!(started_at(world, destination).await, latest);
    let late = answered(world, &permit, 5 * SECOND);
    world.store.record_outcomes(worker, &[late]).await.unwrap();
    assert_eq!(started_at(world, destination).await, latest);
}

/// Before its answer; which says the same, and after which a report says nothing.
pub async fn a_reported_send_is_the_start(world: &World) {
    let (worker, destination, permit, start) = one_claim(world).await;
    let sent_at = Some(start.claimed_at + SENT_AFTER);
    let reported = report(&permit, SENT_AFTER);
    world.store.report_sends(worker, &[reported]).await.unwrap();
    assert_eq!(started_at(world, destination).await, sent_at);
    world.store.report_sends(worker, &[reported]).await.unwrap();
    assert_eq!(started_at(world, destination).await, sent_at);
    let outcome = answered(world, &permit, SENT_AFTER);
    let recorded = world.store.record_outcomes(worker, &[outcome]).await;
    recorded.unwrap();
    assert_eq!(started_at(world, destination).await, sent_at);
    let afterwards = report(&permit, Duration::ZERO);
    world
        .store
        .report_sends(worker, &[afterwards])
        .await
        .unwrap();
    assert_eq!(started_at(world, destination).await, sent_at);
}

/// Of another worker, or under another number, it says nothing.
pub async fn a_report_that_is_not_its_own_changes_nothing(world: &World) {
    let (worker, destination, permit, start) = one_claim(world).await;
    let latest = Some(latest_start(start.claimed_at, permit.deadline));
    let other = world.worker().await;
    let reported = report(&permit, SENT_AFTER);
    world.store.report_sends(other, &[reported]).await.unwrap();
    let stale = SendReport {
        number: PermitNumber(permit.number.0 + 7),
        ..reported
    };
    world.store.report_sends(worker, &[stale]).await.unwrap();
    world.store.report_sends(worker, &[]).await.unwrap();
    assert_eq!(started_at(world, destination).await, latest);
}

/// The next slot opens a period after the send; before that is known, a period after
/// the latest that it may be.
pub async fn a_limit_counts_from_the_send(world: &World) {
    let (worker, destination, first, start) = one_claim(world).await;
    let known_at = start.claimed_at + SECOND - Duration::from_millis(50);
    world.pass_until(known_at).await;
    let latest = latest_start(start.claimed_at, first.deadline) + SECOND;
    for permit in world.admit(destination).await {
        assert!(permit.not_before >= latest, "before its start was known");
        world.store.release_permits(&[permit]).await.unwrap();
    }
    let reported = report(&first, SENT_AFTER);
    world.store.report_sends(worker, &[reported]).await.unwrap();
    let sent_at = start.claimed_at + SENT_AFTER;
    // Within a lead of its slot.
    world
        .pass_until(sent_at + SECOND - Duration::from_millis(150))
        .await;
    let next = world.admit(destination).await;
    assert_eq!(next.len(), 1);
    let asked_at = world.now().await;
    assert!(next[0].not_before >= sent_at + SECOND);
    assert!(next[0].not_before <= asked_at.max(sent_at + SECOND));
}

/// A bucket that comes into force counts claims. Its slack covers what lies between them
/// and their sends, so that it does not wait for these to be known.
pub async fn a_bucket_is_recounted_from_claims(world: &World) {
    let destination = world.destination().per_second(4).create().await;
    world.accept(destination, 20).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 4);
    let last = world.start(worker, &permits).await[3].claimed_at;
    let set = "limit_per_second = 2, burst = 2, shape = 'token_bucket'";
    let set = format!("update destinations set {set} where id = '{destination}'");
    world.sql(&set).await;
    let (permits, look, _) = world.decide(destination).await;
    assert_eq!(permits, []);
    // Four are missing of two, and a token comes every half a second.
    let Look::At { at, .. } = look else {
        panic!("{look:?} with a backlog")
    };
    let opens = last + Duration::from_millis(1_500);
    assert!(at <= opens, "{:?} later", at.since(opens));
}
