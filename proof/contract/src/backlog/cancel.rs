//! Cancelling what has not started.

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, NewEvent};
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;

use super::BacklogWorld;
use engine::ports::{
    CancelFrom, CancelStep, CancelledOne, CatalogError, ClaimAnswer, DEFAULT_TENANT, NextTry, Wake,
};

const CANCELLED: AttemptState = AttemptState::Cancelled;

/// All steps of cancelling: how many rows, in how many steps.
async fn cancel(
    world: &BacklogWorld,
    of: DestinationId,
    event_type: Option<&str>,
    accepted_before: Option<Timestamp>,
    limit: u32,
) -> (u32, u32) {
    let mut step = CancelStep {
        destination: of,
        event_type: event_type.map(str::to_owned),
        accepted_before,
        from: CancelFrom::BEGIN,
        limit,
    };
    let (mut cancelled, mut steps) = (0, 0);
    loop {
        let done = world.backlog.cancel_step(DEFAULT_TENANT, &step);
        let done = done.await.unwrap();
        assert!(done.cancelled <= limit, "a step is bounded");
        cancelled += done.cancelled;
        steps += 1;
        step.accepted_before = Some(done.accepted_before);
        match done.next {
            Some(next) => step.from = next,
            None => return (cancelled, steps),
        }
    }
}

/// Waiting, admitted, waiting for a retry: not what has started.
pub async fn all_that_has_not_started_is_cancelled(world: &BacklogWorld) {
    let of = world.destination().unlimited().max_in_flight(2);
    let of = of.create().await;
    let other = world.destination().unlimited().create().await;
    world.accept(other, 1).await;
    world.accept(of, 6).await;
    let worker = world.worker().await;
    // One waits for a retry, one has started, one is admitted, three wait.
    let permits = world.start_all(worker, of).await;
    let later = NextTry::RetryAfter(Duration::from_secs(60));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, later)
        .await;
    let admitted = world.admit(of).await;
    assert_eq!(admitted.len(), 1);
    world.pass(Duration::from_millis(5)).await;
    assert_eq!(cancel(world, of, None, None, 100).await.0, 5);
    let states = world.states(of).await;
    assert_eq!(states[..2], [AttemptState::Failed, AttemptState::Started]);
    assert_eq!(states[2..], [CANCELLED; 5]);
    assert_eq!(world.states(other).await, [AttemptState::Waiting]);
    // Its permit is worth nothing any more, and what has started ends.
    let claims = world.claim(worker, &admitted).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    world.finish(worker, &permits[1..]).await;
    assert_eq!(world.states(of).await[1], AttemptState::Succeeded);
    assert_eq!(world.admit(of).await, []);
    assert_eq!(world.backlog(of).await, 0);
}

/// However small the step, all is met.
pub async fn cancelling_goes_in_bounded_steps(world: &BacklogWorld) {
    let of = world.destination().unlimited().max_in_flight(3);
    let of = of.create().await;
    world.accept(of, 8).await;
    let worker = world.worker().await;
    for permit in world.start_all(worker, of).await {
        let later = NextTry::RetryAfter(Duration::from_secs(60));
        world
            .record(worker, &permit, OutcomeKind::Failed, later)
            .await;
    }
    world.admit(of).await;
    world.pass(Duration::from_millis(5)).await;
    let (cancelled, steps) = cancel(world, of, None, None, 2).await;
    assert_eq!(cancelled, 8);
    assert!(steps > 4, "{steps} steps");
    assert_eq!(cancel(world, of, None, None, 2).await.0, 0);
}

/// By type and by when the event was accepted.
pub async fn only_what_matches_is_cancelled(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let typed = |event_type: &str| NewEvent {
        event_type: Some(event_type.to_owned()),
        audience: Audience::Destination(of),
        ..world.event(of)
    };
    let events = [typed("a"), typed("b"), typed("a")];
    world.store.accept_events(&events).await.unwrap();
    world.pass(Duration::from_millis(5)).await;
    let between = world.now().await;
    world.pass(Duration::from_millis(5)).await;
    world.store.accept_events(&[typed("a")]).await.unwrap();
    world.pass(Duration::from_millis(5)).await;
    assert_eq!(cancel(world, of, Some("a"), Some(between), 1).await.0, 2);
    let waiting = AttemptState::Waiting;
    let states = [CANCELLED, waiting, CANCELLED, waiting];
    assert_eq!(world.states(of).await, states);
    assert_eq!(cancel(world, of, None, Some(between), 10).await.0, 1);
    assert_eq!(cancel(world, of, None, None, 10).await.0, 1);
}

/// And after that it says what it is.
pub async fn one_is_cancelled_until_it_starts(world: &BacklogWorld) {
    let of = world.destination().unlimited().max_in_flight(1);
    let of = of.create().await;
    world.accept(of, 3).await;
    let worker = world.worker().await;
    world.start_all(worker, of).await;
    let ids: Vec<AttemptId> = (world.attempts(of).await.iter())
        .map(|attempt| attempt.id)
        .collect();
    let cancel = async |id| world.backlog.cancel_attempt(DEFAULT_TENANT, id).await;
    let too_late = CancelledOne::TooLate(AttemptState::Started);
    assert_eq!(cancel(ids[0]).await.unwrap(), too_late);
    let done = CancelledOne::Cancelled(None);
    assert_eq!(cancel(ids[1]).await.unwrap(), done);
    assert_eq!(cancel(ids[1]).await.unwrap(), done);
    let states = [AttemptState::Started, CANCELLED, AttemptState::Waiting];
    assert_eq!(world.states(of).await, states);
    let unknown = cancel(AttemptId(ids[2].0 + 1_000)).await;
    assert!(matches!(unknown, Err(CatalogError::NotFound("attempt"))));
}

/// In the limit as well, and whoever waits for it is woken.
pub async fn a_cancelled_permit_frees_its_place(world: &BacklogWorld) {
    let of = world.destination().per_second(1).create().await;
    world.accept(of, 2).await;
    let permits = world.admit(of).await;
    assert_eq!(permits.len(), 1);
    let cancelled = (world.backlog)
        .cancel_attempt(DEFAULT_TENANT, permits[0].attempt)
        .await;
    let wake = Some(Wake::unblocked(of));
    assert_eq!(cancelled.unwrap(), CancelledOne::Cancelled(wake));
    let next = world.admit(of).await;
    assert_eq!(next.len(), 1, "its place in the window is free");
    assert!(next[0].number > permits[0].number);
}

/// It does not even learn that there is something.
pub async fn another_tenant_cancels_nothing(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 1).await;
    let nobody = TenantId(world.id());
    let step = CancelStep {
        destination: of,
        event_type: None,
        accepted_before: None,
        from: CancelFrom::BEGIN,
        limit: 10,
    };
    let cancelled = world.backlog.cancel_step(nobody, &step).await;
    assert!(matches!(cancelled, Err(CatalogError::NotFound(_))));
    let id = world.attempts(of).await[0].id;
    let cancelled = world.backlog.cancel_attempt(nobody, id).await;
    assert!(matches!(cancelled, Err(CatalogError::NotFound("attempt"))));
    assert_eq!(world.states(of).await, [AttemptState::Waiting]);
}
