//! [`Store::record_outcomes`](engine::ports::Store::record_outcomes).

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::ids::{DestinationId, PermitNumber, WorkerId};
use domain::permit::Permit;

use super::World;
use engine::ports::{NextTry, Outcome, ReapRules, Recorded, Wake};

const FAILED: OutcomeKind = OutcomeKind::Failed;
const SUCCEEDED: OutcomeKind = OutcomeKind::Succeeded;

/// One attempt that this worker has started.
async fn one_start(world: &World) -> (WorkerId, DestinationId, Permit) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    (worker, destination, permits[0])
}

/// One attempt that has been given up as `unknown`, with its retry waiting.
async fn one_unknown(world: &World) -> (WorkerId, DestinationId, Permit) {
    let (worker, destination, permit) = one_start(world).await;
    world.pass(Duration::from_millis(50)).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_millis(20),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    assert_eq!(
        world.store.reap(&rules, 100).await.unwrap().unknown_starts,
        1
    );
    let states = [AttemptState::Unknown, AttemptState::Waiting];
    assert_eq!(world.states(destination).await, states);
    (worker, destination, permit)
}

/// It has an end, a status, a body, and nothing follows.
pub async fn a_success_is_final(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let recorded = world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    assert_eq!(recorded, Recorded::default());
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 1);
    let attempt = &attempts[0];
    assert_eq!(attempt.state, AttemptState::Succeeded);
    let started_at = attempt.started_at.unwrap();
    assert_eq!(
        attempt.finished_at,
        Some(started_at + Duration::from_millis(40))
    );
    assert_eq!(
        (attempt.status, attempt.error.as_deref()),
        (Some(200), None)
    );
    assert_eq!(attempt.response_body.as_deref(), Some("ok"));
    assert_eq!(attempt.response_headers.as_text(), Some("retry-after: 3\n"));
    assert!(!attempt.dead_letter);
    assert_eq!(world.store.fleet().await.unwrap().outstanding, 0);
}

/// A thousand attempts are read at once, and each may have 16 KiB.
pub async fn a_list_shows_the_beginning_of_a_body(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let long = Outcome {
        response_body: "0123456789abcdef".repeat(1_024).into(),
        ..world.outcome(&permit, FAILED, NextTry::None)
    };
    let recorded = world.store.record_outcomes(worker, &[long]).await;
    recorded.unwrap();
    let attempts = world.attempts(destination).await;
    let shown = attempts[0].response_body.as_deref();
    assert_eq!(shown, Some("0123456789abcdef".repeat(64).as_str()));
}

/// The next try of the same event, due so long after the end, and a wake for
/// then.
pub async fn a_failure_adds_a_retry_that_is_due_later(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let delay = Duration::from_secs(30);
    let recorded = world
        .record(worker, &permit, FAILED, NextTry::RetryAfter(delay))
        .await;
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 2);
    let (failed, retry) = (&attempts[0], &attempts[1]);
    assert_eq!(
        (failed.state, failed.status),
        (AttemptState::Failed, Some(503))
    );
    assert_eq!(failed.error.as_deref(), Some("the receiver answered 503"));
    assert_eq!((retry.state, retry.try_number), (AttemptState::Waiting, 2));
    assert_eq!(retry.event, failed.event);
    let finished_at = failed.finished_at.unwrap();
    assert_eq!(retry.created_at, finished_at);
    let waiting = world.ledger(destination).await[1];
    assert_eq!(
        (waiting.attempt, waiting.due_at),
        (retry.id, finished_at + delay)
    );
    assert_eq!(recorded.wakes.len(), 1);
    let wake = recorded.wakes[0];
    assert_eq!(wake.destination, destination);
    // From now to when it is due; the clock may have moved on since.
    assert!(
        wake.after <= delay + Duration::from_millis(40),
        "wakes after {:?}",
        wake.after
    );
    assert!(
        wake.after > Duration::from_secs(20),
        "wakes after {:?}",
        wake.after
    );
}

/// The tries are used up.
pub async fn a_dead_letter_adds_nothing(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let recorded = world
        .record(worker, &permit, FAILED, NextTry::DeadLetter)
        .await;
    assert_eq!(recorded, Recorded::default());
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (attempts[0].state, attempts[0].dead_letter),
        (AttemptState::Failed, true)
    );
}

/// Nothing was sent: the row keeps its start for ever, and a new one has the
/// same try number and is due now.
pub async fn not_sent_again_keeps_the_try_number(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let recorded = world
        .record(worker, &permit, OutcomeKind::NotSent, NextTry::Again)
        .await;
    assert_eq!(recorded.wakes, [Wake::now(destination)]);
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].state, AttemptState::NotSent);
    assert!(attempts[0].started_at.is_some());
    assert_eq!(
        (attempts[1].state, attempts[1].try_number),
        (AttemptState::Waiting, 1)
    );
    let again = world.admit(destination).await;
    assert_eq!(again[0].attempt, attempts[1].id);
}

/// A repeated outcome finds a final row.
pub async fn recording_again_changes_nothing(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let delay = NextTry::RetryAfter(Duration::from_secs(5));
    world.record(worker, &permit, FAILED, delay).await;
    let before = world.attempts(destination).await;
    let recorded = world.record(worker, &permit, FAILED, delay).await;
    assert_eq!(recorded.skipped, []);
    world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    assert_eq!(world.attempts(destination).await, before);
    // Twice in one batch as well.
    let (worker, destination, permit) = one_start(world).await;
    let twice: Vec<Outcome> = vec![world.outcome(&permit, FAILED, delay); 2];
    world.store.record_outcomes(worker, &twice).await.unwrap();
    assert_eq!(world.attempts(destination).await.len(), 2);
}

/// Only who claimed it, under the number that it was claimed under.
pub async fn a_wrong_worker_or_number_changes_nothing(world: &World) {
    let (worker, destination, permit) = one_start(world).await;
    let other = world.worker().await;
    world.record(other, &permit, SUCCEEDED, NextTry::None).await;
    let wrong = Permit {
        number: PermitNumber(permit.number.0 + 1),
        ..permit
    };
    world.record(worker, &wrong, SUCCEEDED, NextTry::None).await;
    assert_eq!(world.states(destination).await, [AttemptState::Started]);
    world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    assert_eq!(world.states(destination).await, [AttemptState::Succeeded]);
}

/// It was delivered after all: the retry is not needed, admitted or not.
pub async fn a_late_success_overwrites_unknown_and_cancels_the_retry(world: &World) {
    let (worker, destination, permit) = one_unknown(world).await;
    world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    let cancelled = [AttemptState::Succeeded, AttemptState::Cancelled];
    assert_eq!(world.states(destination).await, cancelled);
    let learned = &world.attempts(destination).await[0];
    assert_eq!(learned.response_headers.as_text(), Some("retry-after: 3\n"));
    assert_eq!(world.admit(destination).await, []);

    let (worker, destination, permit) = one_unknown(world).await;
    let retry = world.admit(destination).await;
    world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    assert_eq!(world.states(destination).await, cancelled);
    let claims = world.claim(worker, &retry).await;
    assert_eq!(claims.answers, [engine::ports::ClaimAnswer::Refused]);
    assert_eq!(world.states(destination).await, cancelled);
}

/// Also the retry that a failure in the same batch adds, in either order.
pub async fn a_late_success_cancels_what_its_batch_adds(world: &World) {
    for reversed in [false, true] {
        let (worker, destination, permit) = one_unknown(world).await;
        let retry = world.admit(destination).await;
        world.start(worker, &retry).await;
        let later = NextTry::RetryAfter(Duration::from_secs(60));
        let mut outcomes = [
            world.outcome(&permit, SUCCEEDED, NextTry::None),
            world.outcome(&retry[0], FAILED, later),
        ];
        if reversed {
            outcomes.reverse();
        }
        let recorded = world.store.record_outcomes(worker, &outcomes).await;
        recorded.unwrap();
        let states = [
            AttemptState::Succeeded,
            AttemptState::Failed,
            AttemptState::Cancelled,
        ];
        assert_eq!(world.states(destination).await, states);
    }
}

/// What has started has started.
pub async fn a_late_success_leaves_a_started_retry_alone(world: &World) {
    let (worker, destination, permit) = one_unknown(world).await;
    let retry = world.admit(destination).await;
    world.start(worker, &retry).await;
    world
        .record(worker, &permit, SUCCEEDED, NextTry::None)
        .await;
    let states = [AttemptState::Succeeded, AttemptState::Started];
    assert_eq!(world.states(destination).await, states);
}

/// The reaper has added the retry already.
pub async fn a_late_failure_adds_no_second_retry(world: &World) {
    let delay = NextTry::RetryAfter(Duration::from_secs(5));
    for (kind, next) in [(FAILED, delay), (OutcomeKind::NotSent, NextTry::Again)] {
        let (worker, destination, permit) = one_unknown(world).await;
        world.record(worker, &permit, kind, next).await;
        let states = [kind.state(), AttemptState::Waiting];
        assert_eq!(world.states(destination).await, states);
    }
}
