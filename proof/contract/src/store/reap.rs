//! [`Store::reap`](engine::ports::Store::reap).

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::retry::DEFAULT_MAX_TRIES;

use super::World;
use engine::ports::{
    DEFAULT_TENANT, HEARTBEAT_TIMEOUT, NO_OUTCOME_IN_TIME, NextTry, ReapRules, Reaped,
    WORKER_IS_GONE, Wake,
};

const RULES: ReapRules = ReapRules {
    heartbeat_timeout: HEARTBEAT_TIMEOUT,
    start_timeout: Duration::from_secs(60),
    permit_grace: Duration::from_millis(200),
    everything: true,
};

/// Gives up a start at once, though its worker lives.
const AT_ONCE: ReapRules = ReapRules {
    start_timeout: Duration::from_millis(1),
    ..RULES
};

async fn reap(world: &World, rules: &ReapRules) -> Reaped {
    world.store.reap(rules, 100).await.unwrap()
}

/// Past its deadline and the grace; not before.
pub async fn an_expired_permit_waits_again(world: &World) {
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 2).await;
    let permits = world.admit(destination).await;
    world.pass_until(permits[1].deadline).await;
    let patient = ReapRules {
        permit_grace: Duration::from_secs(30),
        ..RULES
    };
    assert_eq!(reap(world, &patient).await, Reaped::default());
    world
        .pass(RULES.permit_grace + Duration::from_millis(1))
        .await;
    let reaped = reap(world, &RULES).await;
    assert_eq!(reaped.expired_permits, 2);
    assert_eq!(reaped.wakes, [Wake::now(destination)]);
    assert_eq!(world.states(destination).await, [AttemptState::Waiting; 2]);
    assert_eq!(reap(world, &RULES).await, Reaped::default());
    // It gets another number, in the same order.
    let again = world.admit(destination).await;
    assert_eq!(again[0].attempt, permits[0].attempt);
    assert!(again[0].number > permits[1].number);
}

/// Nobody knows what became of it; the event is tried again.
pub async fn a_lapsed_workers_start_becomes_unknown_with_a_retry(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let (lapsed, alive) = (world.worker().await, world.worker().await);
    let permits = world.admit(destination).await;
    world.start(lapsed, &permits).await;
    world.pass(Duration::from_secs(2)).await;
    world.beat(alive).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_millis(1_500),
        ..RULES
    };
    let reaped = reap(world, &rules).await;
    assert_eq!((reaped.unknown_starts, reaped.expired_permits), (1, 0));
    assert_eq!(reaped.wakes, [Wake::now(destination)]);
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].state, AttemptState::Unknown);
    assert!(attempts[0].started_at.is_some());
    assert_eq!(
        (attempts[1].state, attempts[1].try_number),
        (AttemptState::Waiting, 2)
    );
    assert_eq!(attempts[1].event, attempts[0].event);
    assert_eq!(reap(world, &rules).await, Reaped::default());
    // Due now.
    assert_eq!(world.admit(destination).await[0].attempt, attempts[1].id);
}

/// Though its worker lives.
pub async fn a_start_that_is_too_old_becomes_unknown(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.pass(Duration::from_millis(20)).await;
    assert_eq!(reap(world, &AT_ONCE).await.unknown_starts, 1);
    assert_eq!(world.states(destination).await[0], AttemptState::Unknown);
}

/// In words, for people: the worker is gone, or lives and was too slow.
pub async fn what_is_given_up_says_why(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 2).await;
    let permits = world.admit(destination).await;
    let (lapsed, alive) = (world.worker().await, world.worker().await);
    world.start(lapsed, &permits[..1]).await;
    world.start(alive, &permits[1..]).await;
    world.pass(Duration::from_secs(2)).await;
    world.beat(alive).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_millis(1_500),
        ..AT_ONCE
    };
    assert_eq!(reap(world, &rules).await.unknown_starts, 2);
    let attempts = world.attempts(destination).await;
    let errors = attempts[..2].iter().map(|row| row.error.as_deref());
    assert_eq!(
        errors.collect::<Vec<_>>(),
        [Some(WORKER_IS_GONE), Some(NO_OUTCOME_IN_TIME)]
    );
}

/// Their retries have ids, and turns, in the order in which they had started.
pub async fn what_is_given_up_together_is_tried_again_in_the_order_of_its_starts(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 5).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    // The first two start later, the others at one time.
    let (later, together) = permits.split_at(2);
    assert_eq!(world.start(worker, together).await.len(), 3);
    world.pass(Duration::from_millis(2)).await;
    for permit in later.iter().rev() {
        world.start(worker, &[*permit]).await;
        world.pass(Duration::from_millis(2)).await;
    }
    assert_eq!(reap(world, &AT_ONCE).await.unknown_starts, 5);
    let attempts = world.attempts(destination).await;
    let event = |place: usize| attempts[place].event;
    let retried: Vec<_> = attempts[5..].iter().map(|row| row.event).collect();
    assert_eq!(retried, [2, 3, 4, 1, 0].map(event));
}

/// Its owner has taken the event back: nothing follows.
pub async fn a_deleted_destinations_start_is_not_tried_again(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    let deletion = (world.catalog).delete_destination(DEFAULT_TENANT, destination);
    deletion.await.unwrap();
    world.pass(Duration::from_millis(20)).await;
    let reaped = reap(world, &AT_ONCE).await;
    assert_eq!((reaped.unknown_starts, reaped.cancelled), (1, 0));
    assert_eq!(world.states(destination).await, [AttemptState::Unknown]);
}

/// The last try has no retry.
pub async fn an_unknown_last_try_is_a_dead_letter(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    for _ in 1..DEFAULT_MAX_TRIES {
        world.pass(Duration::from_millis(50)).await;
        let permits = world.admit(destination).await;
        world.start(worker, &permits).await;
        let at_once = NextTry::RetryAfter(Duration::ZERO);
        world
            .record(worker, &permits[0], OutcomeKind::Failed, at_once)
            .await;
    }
    world.pass(Duration::from_millis(50)).await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.pass(Duration::from_millis(20)).await;
    assert_eq!(reap(world, &AT_ONCE).await.unknown_starts, 1);
    let last = async |state| {
        let attempts = world.attempts(destination).await;
        assert_eq!(attempts.len(), DEFAULT_MAX_TRIES as usize);
        let last = attempts.last().unwrap();
        assert_eq!((last.state, last.dead_letter), (state, true));
        assert_eq!(world.backlog(destination).await, 0);
    };
    last(AttemptState::Unknown).await;
    // It stays one when it turns out that nothing was sent: no other try
    // follows any more.
    let (kind, next) = (OutcomeKind::NotSent, NextTry::Again);
    world.record(worker, &permits[0], kind, next).await;
    last(AttemptState::NotSent).await;
}

/// At most `limit` rows a step; the started ones go on.
pub async fn a_deleted_destinations_backlog_is_cancelled_in_steps(world: &World) {
    let deleted = world
        .destination()
        .unlimited()
        .max_in_flight(2)
        .create()
        .await;
    let kept = world.destination().unlimited().create().await;
    world.accept(deleted, 7).await;
    world.accept(kept, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(deleted).await;
    world.start(worker, &permits[..1]).await;
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, deleted)
        .await
        .unwrap();
    assert_eq!(world.states(deleted).await[1], AttemptState::Cancelled);
    let mut steps = Vec::new();
    for _ in 0..3 {
        steps.push(world.store.reap(&RULES, 3).await.unwrap().cancelled);
    }
    assert_eq!(steps, [3, 2, 0]);
    assert_eq!(world.backlog(deleted).await, 0);
    assert_eq!(world.backlog(kept).await, 1);
    world
        .record(worker, &permits[0], OutcomeKind::Succeeded, NextTry::None)
        .await;
    assert_eq!(world.states(deleted).await[0], AttemptState::Succeeded);
}

/// What nobody waits for is left to a reap of everything.
pub async fn permits_and_starts_that_are_over_can_be_looked_for_alone(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let deleted = world.destination().unlimited().create().await;
    world.accept(deleted, 3).await;
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, deleted)
        .await
        .unwrap();
    world.pass_until(permits[1].deadline).await;
    let rules = ReapRules {
        permit_grace: Duration::ZERO,
        everything: false,
        ..AT_ONCE
    };
    world.pass(Duration::from_millis(1)).await;
    let reaped = reap(world, &rules).await;
    assert_eq!((reaped.expired_permits, reaped.unknown_starts), (1, 1));
    assert_eq!((reaped.cancelled, world.backlog(deleted).await), (0, 3));
    assert_eq!(reap(world, &AT_ONCE).await.cancelled, 3);
}

/// Permits with time left and starts of live workers.
pub async fn what_is_fresh_is_left_alone(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 3).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    assert_eq!(reap(world, &RULES).await, Reaped::default());
    assert_eq!(world.readmit(destination).await, permits[1..]);
}
