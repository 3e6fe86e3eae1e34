//! Traces: kept with the event, and told to whom the destination says.

use domain::event::NewEvent;
use domain::trace::TraceContext;

use super::World;
use engine::ports::{ClaimAnswer, DEFAULT_TENANT, DestinationChange, Target};

const STORED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=1,b=2";

/// As it was handed in, with what other systems say of it.
pub async fn a_start_has_its_events_trace(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let trace = TraceContext::from_stored(STORED).expect("it is a good one");
    let event = NewEvent {
        trace: Some(trace.clone()),
        ..world.event(destination)
    };
    world.store.accept_events(&[event]).await.unwrap();
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(starts.len(), 1);
    assert_eq!(starts[0].trace, Some(trace));
}

/// Nothing is made up.
pub async fn an_event_without_a_trace_has_none(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(starts.len(), 1);
    assert_eq!(starts[0].trace, None);
}

async fn target(world: &World, new: &engine::ports::NewDestination) -> Target {
    let targets = world.store.targets(&[new.id]).await.unwrap();
    targets.into_iter().next().expect("it is there")
}

async fn change(world: &World, new: &engine::ports::NewDestination, passes: bool) {
    let change = DestinationChange {
        pass_traceparent: Some(passes),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, new.id, &change);
    assert_eq!(changed.await.unwrap().pass_traceparent, passes);
}

/// Workers keep targets by the epoch: another word is another epoch, and
/// permits that are out are over; the same word changes nothing.
pub async fn who_is_told_is_by_the_epoch(world: &World) {
    let mut new = world.destination().unlimited().build();
    new.pass_traceparent = true;
    let created = world.catalog.create_destination(DEFAULT_TENANT, &new);
    assert!(created.await.unwrap().pass_traceparent);
    let before = target(world, &new).await;
    assert!(before.pass_traceparent);
    change(world, &new, true).await;
    assert_eq!(target(world, &new).await, before, "nothing changed");

    world.accept(new.id, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(new.id).await;
    change(world, &new, false).await;
    let after = target(world, &new).await;
    assert!(!after.pass_traceparent && after.epoch > before.epoch);
    let claims = world.claim(worker, &permits).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
}
