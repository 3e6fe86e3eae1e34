//! A worker that goes down: nothing more is begun, what began is recorded, and
//! retiring is its last word.

use std::time::Duration;

use domain::ids::AttemptId;
use engine::ports::{Settlement, Wake};
use engine::worker::WorkerOptions;
use tokio::time::Instant;

use crate::support::{
    Event, FOREVER, World, destination, in_slot, ms, pass, permit, permit_of, settle, store_away,
};

fn with_grace(grace: Duration) -> WorkerOptions {
    WorkerOptions {
        places: 32,
        grace,
        ..WorkerOptions::default()
    }
}

/// The last thing that the world was asked for is that the worker retires.
fn assert_retired_last(world: &World) {
    let events = world.events();
    let Some(Event::Beaten(last)) = events.last() else {
        panic!("{:?}", events.last());
    };
    assert_eq!(last.places, 0);
    let retirements = world
        .journal
        .times(|e| matches!(e, Event::Heartbeat(beat) if beat.places == 0));
    assert_eq!(retirements.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_ends_at_once() {
    let world = World::new();
    let worker = world.worker().await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn what_has_not_begun_goes_back_to_the_queue() {
    let world = World::new();
    let worker = world.worker().await;
    let later = in_slot(permit(1), ms(500));
    let waiting = world.queue.delivers(&[later, in_slot(permit(2), ms(600))]);
    settle().await;
    world.shutdown.cancel();
    let prefetched = world.queue.delivers(&[permit(3)]);
    worker.await.unwrap();
    let mut settled = world.journal.settled();
    settled.sort_unstable_by_key(|(tag, _)| *tag);
    let back = [waiting, prefetched].map(|tag| (tag, Settlement::Requeue));
    assert_eq!(settled, back);
    assert_eq!(world.journal.claims().len(), 0);
    assert_eq!(world.journal.released(), []);
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_message_that_has_begun_goes_back_to_the_store() {
    let world = World::new();
    let worker = world.worker().await;
    let later = in_slot(permit(2), ms(500));
    let tag = world.queue.delivers(&[permit(1), later]);
    settle().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    assert_eq!(world.journal.released(), [later]);
    assert_eq!(world.journal.woken(), [Wake::unblocked(destination(1))]);
    assert_eq!(world.journal.sent(), [AttemptId(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_several_destinations_goes_back_if_none_of_its_permits_has_begun() {
    let world = World::new();
    let worker = world.worker().await;
    let later = |number: u8| in_slot(permit_of(number.into(), number.into()), ms(500));
    let begun = world.queue.delivers(&[permit_of(1, 1), later(2)]);
    let waiting = world.queue.delivers(&[later(3), later(4)]);
    settle().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    let mut settled = world.journal.settled();
    settled.sort_unstable_by_key(|(tag, _)| *tag);
    let (done, back) = ((begun, Settlement::Done), (waiting, Settlement::Requeue));
    assert_eq!(settled, [done, back]);
    assert_eq!(world.journal.released(), [later(2)]);
    assert_eq!(world.journal.woken(), [Wake::unblocked(destination(2))]);
    assert_eq!(world.journal.sent(), [AttemptId(1)]);
}

#[tokio::test(start_paused = true)]
async fn what_has_started_finishes_and_is_recorded_before_retiring() {
    let world = World::new();
    let worker = world.worker().await;
    world.sender.send.takes(Duration::from_secs(3));
    world.store.record.takes(ms(200));
    world.queue.delivers(&[permit(1)]);
    settle().await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(began.elapsed(), ms(3_200));
    assert_eq!(world.journal.only_outcome().attempt, AttemptId(1));
    // It lived as long as it had something to record.
    let beats = world.journal.times(|e| matches!(e, Event::Beaten(_)));
    assert_eq!(beats.len(), 1 + 3 + 1);
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn a_claim_under_way_is_waited_for_and_sent() {
    let world = World::new();
    let worker = world.worker().await;
    world.store.claim.takes(ms(50));
    world.queue.delivers(&[permit(1)]);
    settle().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(world.journal.sent(), [AttemptId(1)]);
    assert_eq!(world.journal.recorded().len(), 1);
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_bounds_a_send_that_hangs() {
    let world = World::new();
    let worker = world.worker_with(with_grace(Duration::from_secs(5))).await;
    world.sender.send.takes(FOREVER);
    world.queue.delivers(&[permit(1)]);
    settle().await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(5),
        "once, not for each step"
    );
    assert_eq!(world.sender.under_way(), 0, "its connection is closed");
    assert_eq!(world.journal.recorded(), []);
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_bounds_a_store_that_is_away() {
    let world = World::new();
    let worker = world.worker_with(with_grace(Duration::from_secs(5))).await;
    world.store.record.answers(|_| Err(store_away()));
    world.queue.delivers(&[permit(1)]);
    settle().await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_eq!(began.elapsed(), ms(5_000 + 1_500));
    let recorded = world.journal.recorded().len();
    pass(Duration::from_secs(60)).await;
    assert_eq!(world.journal.recorded().len(), recorded, "all has ended");
    assert_retired_last(&world);
}

/// More outcomes than there is room for: deliveries wait to hand theirs in.
#[tokio::test(start_paused = true)]
async fn the_grace_period_bounds_outcomes_that_find_no_room() {
    let world = World::new();
    let worker = world.worker_with(with_grace(Duration::from_secs(5))).await;
    world.store.record.answers(|_| Err(store_away()));
    let permits: Vec<_> = (0..8_000).map(permit).collect();
    for message in permits.chunks(16) {
        world.queue.delivers(message);
        settle().await;
    }
    pass(Duration::from_secs(2)).await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert!(
        began.elapsed() <= Duration::from_secs(7),
        "{:?}",
        began.elapsed()
    );
    assert_retired_last(&world);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_bounds_a_store_that_hangs() {
    let world = World::new();
    let worker = world.worker_with(with_grace(Duration::from_secs(5))).await;
    world.store.claim.takes(FOREVER);
    world.store.heartbeat.takes(FOREVER);
    world.queue.delivers(&[permit(1)]);
    settle().await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert!(began.elapsed() <= Duration::from_secs(7));
    assert_eq!(world.journal.sent(), []);
}

/// A heartbeat that is written after the retirement would revive the worker.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_under_way_does_not_outlive_the_retirement() {
    let world = World::new();
    let worker = world.worker().await;
    world.store.heartbeat.takes(ms(300));
    pass(ms(1_050)).await;
    // The retirement would overtake it.
    world.store.heartbeat.takes(Duration::ZERO);
    world.shutdown.cancel();
    worker.await.unwrap();
    pass(Duration::from_secs(1)).await;
    assert_retired_last(&world);
}

/// A crash, as in a simulation.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_dropped_does_nothing_more() {
    let world = World::new();
    let worker = world.worker().await;
    world.sender.send.takes(ms(500));
    world
        .queue
        .delivers(&[permit(1), in_slot(permit(2), ms(500))]);
    settle().await;
    worker.abort();
    settle().await;
    assert_eq!(world.sender.under_way(), 0);
    let so_far = world.events().len();
    pass(Duration::from_secs(60)).await;
    assert_eq!(world.events().len(), so_far);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_queue_that_is_away() {
    let world = World::new();
    world.queue.subscribe.takes(FOREVER);
    let worker = world.worker().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    assert_retired_last(&world);
}
