//! Dead letters have an age of their own.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::ids::ReplayId;
use domain::replay::ReplayState;
use domain::retention::{Kept, Retention};

use super::{AGE, KEEP, NOW, RetentionWorld};
use engine::ports::{CatalogError, DEFAULT_TENANT, DeadLetterFilter, NewReplay, Which};

async fn open(world: &RetentionWorld) -> usize {
    world.dead_letters(&DeadLetterFilter::default()).await.len()
}

/// Past the ages of ledger and payloads, it can be replayed and delivered.
pub async fn a_dead_letter_keeps_its_row_and_its_event(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 2).await;
    let keep = Retention {
        payloads: NOW,
        ledger: NOW,
        ..KEEP
    };
    assert_eq!(world.retain(keep).await, 0);
    assert_eq!(open(world).await, 2);
    world.replay_of(Which::One(died[0]), 0.5).await;
    assert_eq!(world.advance().await, 1);
    world.retain(keep).await;
    let worker = world.worker().await;
    let permits = world.admit(of).await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(&starts[0].payload[..], b"{\"order\": 1}");
    assert_eq!((starts[0].try_number, starts[0].tries_before), (2, 1));
    world.finish(worker, &permits).await;
    world.retain(keep).await;
    assert_eq!(open(world).await, 1);
    assert_eq!(world.attempts(of).await.len(), 1);
}

/// It is in the ledger, and can be replayed no more.
pub async fn a_dead_letter_that_is_too_old_is_a_failed_attempt(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 1).await;
    world.pass(AGE).await;
    let young = world.die(of, 1).await;
    let keep = Retention {
        payloads: NOW,
        dead_letters: Kept::For(AGE),
        ..KEEP
    };
    assert_eq!(world.retain(keep).await, 2, "the dead letter and the event");
    let attempts = world.attempts(of).await;
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0].state, AttemptState::Failed);
    assert!(!attempts[0].dead_letter);
    assert!(!world.knows(attempts[0].event).await);
    assert!(attempts[1].dead_letter);
    assert!(world.knows(attempts[1].event).await);
    let left = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].attempt.id, young[0]);
    let new = NewReplay {
        id: ReplayId(world.id()),
        which: Which::One(died[0]),
        share: 0.5,
    };
    let refused = world.backlog.create_replay(DEFAULT_TENANT, &new).await;
    assert!(matches!(
        refused,
        Err(CatalogError::NotFound("dead letter"))
    ));
}

/// Nothing needs it any more.
pub async fn a_dead_letter_that_is_older_than_the_ledger_goes(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    world.die(of, 3).await;
    let keep = Retention {
        payloads: NOW,
        ledger: NOW,
        dead_letters: NOW,
    };
    assert_eq!(world.retain(keep).await, 6);
    assert_eq!(world.rows(of).await, []);
    assert_eq!(open(world).await, 0);
}

/// What was replayed is an attempt like others; it is shown while it is there,
/// without its payload too.
pub async fn a_replayed_dead_letter_goes_with_the_ledger(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 1).await;
    world.replay_of(Which::One(died[0]), 0.5).await;
    assert_eq!(world.advance().await, 1);
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    world.finish(worker, &permits).await;
    let keep = Retention {
        payloads: NOW,
        ..KEEP
    };
    world.retain(keep).await;
    assert!(!world.knows(world.rows(of).await[0].0).await);
    let shown = world.backlog.dead_letter(DEFAULT_TENANT, died[0]).await;
    assert!(shown.unwrap().replayed_at.is_some());
    let keep = Retention {
        ledger: NOW,
        ..KEEP
    };
    world.retain(keep).await;
    assert_eq!(world.rows(of).await, []);
}

/// A replay was promised them: it takes as long as it takes.
pub async fn what_a_running_replay_awaits_stays(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let other = world.destination().unlimited().create().await;
    world.die(of, 3).await;
    world.die(other, 1).await;
    let all = Which::Matching(of, DeadLetterFilter::default());
    let replay = world.replay_of(all, 0.5).await;
    world.die(of, 1).await;
    let keep = Retention {
        payloads: NOW,
        ledger: NOW,
        dead_letters: NOW,
    };
    assert_eq!(
        world.retain(keep).await,
        4,
        "another destination's, and one of later"
    );
    assert_eq!(open(world).await, 3);
    while world.replay(replay).await.state == ReplayState::Running {
        let worker = world.worker().await;
        world.advance().await;
        let permits = world.start_all(worker, of).await;
        world.finish(worker, &permits).await;
        world.pass(Duration::from_millis(60)).await;
    }
    assert_eq!(world.replay(replay).await.done, 3);
    world.retain(keep).await;
    assert_eq!(world.rows(of).await, []);
}
