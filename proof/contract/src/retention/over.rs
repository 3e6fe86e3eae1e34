//! What goes.

use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::destination::DestinationState;
use domain::ids::{ReplayId, TenantId};
use domain::replay::ReplayState;
use domain::retention::{Kept, Retention};

use super::{AGE, KEEP, NOW, RetentionWorld, at_once};
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DeadLetterFilter, DestinationChange, NextTry, ReapRules,
    RetainRules, Walk, Which,
};

/// The event is not found; what became of it is.
pub async fn payloads_go_before_the_ledger(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let events = world.deliver(of, 3).await;
    let ledger = world.ledger(of).await;
    let keep = Retention {
        payloads: NOW,
        ..KEEP
    };
    assert_eq!(world.retain(keep).await, 3);
    for event in &events {
        assert!(!world.knows(*event).await);
    }
    let expected: Vec<_> = (events.iter())
        .map(|event| (*event, AttemptState::Succeeded))
        .collect();
    assert_eq!(world.rows(of).await, expected);
    assert_eq!(world.ledger(of).await, ledger, "as the audit reads it");
}

/// Delivered, failed before a retry, cancelled, without an outcome that anybody
/// knows of: all of it is over.
pub async fn the_ledger_goes_whatever_the_end_was(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    world.deliver(of, 1).await;
    world.accept(of, 2).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    let retry = NextTry::RetryAfter(Duration::from_secs(3_600));
    (world.record(worker, &permits[0], OutcomeKind::Failed, retry)).await;
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(86_400),
        start_timeout: Duration::ZERO,
        permit_grace: Duration::from_millis(1),
        everything: true,
    };
    // Until it may have been sent at the latest.
    world.pass(MAX_CLAIM_TO_SEND).await;
    assert_eq!(
        world.store.reap(&rules, 10).await.unwrap().unknown_starts,
        1
    );
    let waiting: Vec<_> = (world.attempts(of).await.into_iter())
        .filter(|row| row.state == AttemptState::Waiting)
        .collect();
    assert_eq!(waiting.len(), 2);
    let cancelled = world.backlog.cancel_attempt(DEFAULT_TENANT, waiting[0].id);
    cancelled.await.unwrap();
    let keep = Retention {
        ledger: NOW,
        ..KEEP
    };
    assert!(world.retain(keep).await >= 4);
    let left: Vec<_> = world.attempts(of).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0].id, waiting[1].id);
    assert!(world.knows(left[0].event).await);
}

/// By when it ended, not by when it began.
pub async fn what_is_young_stays(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let early = world.accept(of, 1).await;
    world.pass(AGE).await;
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    world.finish(worker, &permits).await;
    let late = world.deliver(of, 1).await;
    let keep = Retention {
        payloads: Kept::For(AGE),
        ledger: Kept::For(AGE),
        dead_letters: Kept::For(AGE),
    };
    world.retain(keep).await;
    assert!(!world.knows(early[0]).await, "its payload is old");
    assert!(world.knows(late[0]).await);
    assert_eq!(world.rows(of).await.len(), 2, "both ended just now");
    world.pass(AGE).await;
    world.retain(keep).await;
    assert!(!world.knows(late[0]).await);
    assert_eq!(world.rows(of).await, []);
}

/// What was in force at the cut, and what came after it, is there.
pub async fn what_was_superseded_before_the_cut_goes(world: &RetentionWorld) {
    let of = world.destination().per_second(1).create().await;
    let other = world.destination().per_second(1).create().await;
    let change = async |per_second| {
        let mut limits = world.destination().build().limits;
        limits.per_second = Some(per_second);
        let change = DestinationChange {
            limits: Some(limits),
            ..DestinationChange::default()
        };
        let changed = (world.catalog).change_destination(DEFAULT_TENANT, of, &change);
        changed.await.unwrap();
        world.pass(Duration::from_millis(5)).await;
    };
    for per_second in [2, 3, 4] {
        change(per_second).await;
    }
    world.pass(AGE).await;
    change(5).await;
    let paused = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let paused = (world.catalog).change_destination(DEFAULT_TENANT, of, &paused);
    paused.await.unwrap();
    let before = world.catalog.limit_history(of).await.unwrap();
    assert_eq!(before.len(), 6);
    let keep = Retention {
        ledger: Kept::For(AGE / 2),
        ..KEEP
    };
    assert_eq!(world.retain(keep).await, 3);
    let after = world.catalog.limit_history(of).await.unwrap();
    assert_eq!(after, before[3..]);
    let others = world.catalog.limit_history(other).await.unwrap();
    assert_eq!(others.len(), 1, "it is in force still");
}

/// The audit judges what is left by the limits that it was started under.
pub async fn what_a_start_that_is_left_was_made_under_stays(world: &RetentionWorld) {
    let of = world.destination().per_second(3).create().await;
    world.die(of, 2).await;
    world.pass(Duration::from_millis(5)).await;
    let paused = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let paused = (world.catalog).change_destination(DEFAULT_TENANT, of, &paused);
    paused.await.unwrap();
    let before = world.catalog.limit_history(of).await.unwrap();
    assert_eq!(before.len(), 2);
    let keep = Retention {
        ledger: NOW,
        ..KEEP
    };
    world.retain(keep).await;
    assert_eq!(world.rows(of).await.len(), 2, "dead letters");
    assert_eq!(world.catalog.limit_history(of).await.unwrap(), before);
    let keep = Retention {
        dead_letters: NOW,
        ..keep
    };
    world.retain(keep).await;
    assert_eq!(world.rows(of).await, []);
    let after = world.catalog.limit_history(of).await.unwrap();
    assert_eq!(after, before[1..]);
}

/// One that runs is not over.
pub async fn replays_that_are_over_go(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let paused = world.destination().unlimited().create().await;
    let (died, died_too) = (world.die(of, 1).await, world.die(paused, 1).await);
    let pause = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let changed = (world.catalog).change_destination(DEFAULT_TENANT, paused, &pause);
    changed.await.unwrap();
    let over = world.replay_of(Which::One(died[0]), 0.5).await;
    let runs = world.replay_of(Which::One(died_too[0]), 0.5).await;
    for _ in 0..3 {
        world.advance().await;
    }
    assert_eq!(world.replay(over).await.state, ReplayState::Completed);
    let keep = Retention {
        ledger: NOW,
        ..KEEP
    };
    world.retain(keep).await;
    let gone = world.backlog.replay(DEFAULT_TENANT, over).await;
    assert!(matches!(gone, Err(CatalogError::NotFound(_))));
    assert_eq!(world.replay(runs).await.state, ReplayState::Running);
    let dead = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(dead.len(), 1, "it is still to be moved");
    let listed = world.backlog.replays(DEFAULT_TENANT, None, 10).await;
    let listed: Vec<ReplayId> = listed.unwrap().iter().map(|one| one.id).collect();
    assert_eq!(listed, [runs]);
}

/// With its limit history, and not before its last attempt.
pub async fn a_deleted_destination_goes_once_nothing_of_it_is_left(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let unused = world.destination().unlimited().create().await;
    let living = world.destination().unlimited().create().await;
    world.deliver(of, 2).await;
    for gone in [of, unused] {
        let deleted = world.catalog.delete_destination(DEFAULT_TENANT, gone);
        deleted.await.unwrap();
    }
    let is_known = async |id| !world.catalog.limit_history(id).await.unwrap().is_empty();
    world.retain(KEEP).await;
    assert!(is_known(of).await, "the audit reads it");
    assert!(!is_known(unused).await, "nothing was ever sent there");
    let keep = Retention {
        ledger: NOW,
        ..KEEP
    };
    world.retain(keep).await;
    world.retain(keep).await;
    assert!(!is_known(of).await);
    assert!(is_known(living).await, "nobody has deleted it");
}

/// With the last of its destinations, and not before.
pub async fn a_deleted_tenant_goes_with_its_last_destination(world: &RetentionWorld) {
    let id = world.id();
    let insert = format!("insert into tenants (id, name, tier) values ('{id}', 'Acme', 'free')");
    world.sql(&insert).await;
    let tenant = TenantId(id);
    let first = world.destination().create_for(tenant).await;
    let last = world.destination().create_for(tenant).await;
    let set = "deleted_at = created_at, emptied_at = created_at";
    let empty = format!("update tenants set {set} where id = '{id}'");
    world.sql(&empty).await;
    let delete = async |destination| {
        let deleted = world.catalog.delete_destination(tenant, destination);
        deleted.await.unwrap();
        world.retain(KEEP).await;
    };
    delete(first).await;
    world.refused_sql(&insert).await;
    delete(last).await;
    // There is none of this id any more.
    world.sql(&insert).await;
}

/// Whatever read it before is over by then.
pub async fn a_destination_that_was_deleted_just_now_stays(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, of);
    deleted.await.unwrap();
    let rules = RetainRules {
        deleted_for: Duration::from_secs(60),
        ..at_once(KEEP, 100)
    };
    for _ in 0..3 * Walk::ALL.len() {
        world.pass(Duration::from_millis(2)).await;
        assert_eq!(world.step(&rules).await.removed, 0);
    }
    assert_eq!(world.catalog.limit_history(of).await.unwrap().len(), 2);
}
