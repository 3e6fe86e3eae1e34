//! What stays, because something needs it.

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, NewEvent};
use domain::retention::Retention;

use super::{AGE, KEEP, NOW, RetentionWorld};
use engine::ports::{DEFAULT_TENANT, DestinationChange, NextTry};

/// Everything is old, and nothing that is to be delivered may go.
const ALL_IS_OLD: Retention = Retention {
    payloads: NOW,
    ledger: NOW,
    dead_letters: NOW,
};

/// Waiting, with a permit, in flight: each goes on as if nothing had been.
pub async fn what_is_not_over_stays_however_old_it_is(world: &RetentionWorld) {
    let waits = world.destination().unlimited().create().await;
    let runs = world.destination().unlimited().create().await;
    let pause = DestinationChange {
        state: Some(domain::destination::DestinationState::Paused),
        ..DestinationChange::default()
    };
    let paused = (world.catalog).change_destination(DEFAULT_TENANT, waits, &pause);
    paused.await.unwrap();
    world.accept(waits, 2).await;
    world.accept(runs, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(runs).await;
    world.start(worker, &permits[..1]).await;
    world.retain(ALL_IS_OLD).await;
    let states = [world.states(waits).await, world.states(runs).await].concat();
    let (waiting, admitted) = (AttemptState::Waiting, AttemptState::Admitted);
    assert_eq!(states, [waiting, waiting, AttemptState::Started, admitted]);

    let starts = world.start(worker, &permits[1..]).await;
    assert_eq!(&starts[0].payload[..], b"{\"order\": 1}");
    world.finish(worker, &permits).await;
    world.retain(ALL_IS_OLD).await;
    assert_eq!(world.rows(runs).await, []);
    assert_eq!(world.states(waits).await, [waiting, waiting]);
    for (event, _) in world.rows(waits).await {
        assert!(world.knows(event).await);
    }
}

/// The others have it already.
pub async fn an_event_stays_while_one_destination_needs_it(world: &RetentionWorld) {
    let done = world.destination().event_types(&["paid"]).unlimited();
    let done = done.create().await;
    let waits = world.destination().event_types(&["paid"]).unlimited();
    let waits = waits.create().await;
    let event = NewEvent {
        audience: Audience::Subscribers,
        event_type: Some("paid".to_owned()),
        ..world.event(done)
    };
    let id = event.id;
    world.store.accept_events(&[event]).await.unwrap();
    let worker = world.worker().await;
    let permits = world.start_all(worker, done).await;
    world.finish(worker, &permits).await;
    world.retain(ALL_IS_OLD).await;
    assert_eq!(world.rows(done).await, []);
    assert!(world.knows(id).await);
    let permits = world.start_all(worker, waits).await;
    world.finish(worker, &permits).await;
    world.retain(ALL_IS_OLD).await;
    assert!(!world.knows(id).await);
}

/// However often it is tried, and whatever went before.
pub async fn a_retry_finds_its_event(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    world.accept(of, 1).await;
    let worker = world.worker().await;
    for try_number in 1..4 {
        let permits = world.admit(of).await;
        let starts = world.start(worker, &permits).await;
        assert_eq!(starts[0].try_number, try_number);
        assert_eq!(&starts[0].payload[..], b"{\"order\": 1}");
        let retry = NextTry::RetryAfter(Duration::from_millis(50));
        (world.record(worker, &permits[0], OutcomeKind::Failed, retry)).await;
        world.pass(Duration::from_millis(100)).await;
        world.retain(ALL_IS_OLD).await;
        assert_eq!(world.states(of).await, [AttemptState::Waiting]);
    }
}

/// However long ago it was.
pub async fn nothing_goes_where_all_is_kept_for_ever(world: &RetentionWorld) {
    let of = world.destination().unlimited().create().await;
    let events = world.deliver(of, 2).await;
    world.die(of, 1).await;
    world.pass(AGE).await;
    assert_eq!(world.retain(KEEP).await, 0);
    assert!(world.knows(events[0]).await);
    assert_eq!(world.rows(of).await.len(), 3);
}
