//! Messages in hand: how many, for how long, and how they end.

use std::time::Duration;

use domain::ids::AttemptId;
use engine::ports::{QueueError, Settlement};
use engine::worker::WorkerOptions;
use tokio::time::Instant;

use crate::support::{
    Event, FOREVER, World, destination, in_slot, ms, pass, permit, permit_of, settle,
};

#[tokio::test(start_paused = true)]
async fn a_message_is_settled_once_when_each_of_its_permits_is_known() {
    let world = World::new();
    let _worker = world.worker().await;
    let slots = [
        permit(1),
        in_slot(permit(2), ms(100)),
        in_slot(permit(3), ms(200)),
    ];
    let tag = world.queue.delivers(&slots);
    pass(ms(199)).await;
    assert_eq!(world.journal.sent().len(), 2);
    assert_eq!(world.journal.settled(), []);
    pass(ms(2)).await;
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
}

/// The store knows of the start: the message need not wait for the receiver.
#[tokio::test(start_paused = true)]
async fn a_message_does_not_wait_for_responses() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.send.takes(Duration::from_secs(10));
    let tag = world.queue.delivers(&[permit(1)]);
    settle().await;
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    assert_eq!(world.journal.recorded(), []);
}

/// All places are for those that are known to answer.
async fn answered_once(world: &World, by: u8) {
    world
        .queue
        .delivers(&[permit_of(by.into(), 1_000 + i64::from(by))]);
    settle().await;
}

fn fills_all_places(world: &World) {
    for group in 0..2 {
        let permits: Vec<_> = (0..16).map(|n| permit(group * 16 + n)).collect();
        world.queue.delivers(&permits);
    }
}

#[tokio::test(start_paused = true)]
async fn the_places_bound_what_is_sent_at_once() {
    let world = World::new();
    let _worker = world.worker().await;
    answered_once(&world, 1).await;
    answered_once(&world, 2).await;
    world.sender.send.takes(ms(300));
    fills_all_places(&world);
    settle().await;
    let late: Vec<_> = (0..16).map(|n| permit_of(2, 100 + n)).collect();
    world.queue.delivers(&late);
    pass(ms(299)).await;
    // One is in a place that is set aside for who has nothing in flight.
    assert_eq!(world.journal.sent().len(), 2 + 32 + 1);
    pass(ms(2)).await;
    assert_eq!(world.journal.sent().len(), 2 + 48);
    assert_eq!(world.sender.most_at_once(), 33);
}

/// Four full messages are all that the hand holds, and there is a place for each of
/// their permits.
#[tokio::test(start_paused = true)]
async fn permits_of_sixty_four_destinations_in_four_messages_all_begin() {
    let world = World::new();
    let options = WorkerOptions {
        places: 64,
        ..WorkerOptions::default()
    };
    let _worker = world.worker_with(options).await;
    for one in 1..=64 {
        answered_once(&world, one).await;
    }
    world.sender.send.takes(FOREVER);
    let permits: Vec<_> = (1..=64_u8).map(|n| permit_of(n.into(), n.into())).collect();
    for message in permits.chunks(16) {
        world.queue.delivers(message);
    }
    settle().await;
    assert_eq!(world.sender.under_way(), 64);
    assert_eq!(world.journal.settled().len(), 64 + 4);
    let prepared = world.journal.pick(|event| match event {
        Event::Prepare(destination) => Some(destination),
        _ => None,
    });
    let mut of_messages = prepared[64..].to_vec();
    of_messages.sort_unstable();
    let each: Vec<_> = (1..=64).map(destination).collect();
    assert_eq!(
        of_messages, each,
        "each permit went where its destination is"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_is_not_dialled_in_time_holds_up_no_other_of_its_message() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.never_reaches(destination(2));
    let permits = [
        permit_of(1, 1),
        permit_of(2, 2),
        in_slot(permit_of(3, 3), ms(100)),
    ];
    let tag = world.queue.delivers(&permits);
    pass(ms(99)).await;
    assert_eq!(world.journal.sent(), [AttemptId(1)]);
    pass(ms(2)).await;
    assert_eq!(world.journal.sent(), [AttemptId(1), AttemptId(3)]);
    assert_eq!(world.journal.settled(), []);
    pass(ms(150)).await;
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    assert_eq!(world.journal.released(), [], "it still may be dialled");
    pass(Duration::from_secs(2)).await;
    assert_eq!(world.journal.released(), [permits[1]]);
}

/// So the drain ends with what it waits for, and not with its time.
#[tokio::test(start_paused = true)]
async fn what_is_dialled_late_is_sent_and_a_worker_that_ends_waits_for_it() {
    let world = World::new();
    let worker = world.worker().await;
    world.sender.prepare.takes(ms(300));
    world.store.claim.takes(ms(50));
    let tag = world.queue.delivers(&[permit(1)]);
    pass(ms(260)).await;
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    pass(ms(60)).await;
    let began = Instant::now();
    world.shutdown.cancel();
    worker.await.unwrap();
    assert!(began.elapsed() < ms(100), "{:?}", began.elapsed());
    assert_eq!(world.journal.sent(), [AttemptId(1)]);
    assert_eq!(world.journal.released(), []);
    assert_eq!(world.journal.only_outcome().attempt, AttemptId(1));
}

/// One that answers is not turned away for want of leave: its messages wait.
#[tokio::test(start_paused = true)]
async fn who_answers_keeps_its_message_where_too_many_wait_for_dials() {
    let world = World::new();
    let _worker = world.worker().await;
    answered_once(&world, 1).await;
    world.sender.never_reaches(destination(1));
    for group in 0..2 {
        let permits: Vec<_> = (0..16).map(|n| permit(group * 16 + n)).collect();
        world.queue.delivers(&permits);
    }
    pass(ms(300)).await;
    assert_eq!(world.journal.released(), []);
    // Half of the leaves are one destination's.
    assert_eq!(world.journal.settled().len(), 1 + 1);
    pass(Duration::from_secs(2)).await;
    assert_eq!(world.journal.released().len(), 32);
    assert_eq!(world.journal.settled().len(), 1 + 2);
}

/// It answered before, has a permit in each message, and keeps none of them.
#[tokio::test(start_paused = true)]
async fn one_that_nobody_reaches_any_more_keeps_no_others_from_the_hand() {
    let world = World::new();
    let worker = world.worker().await;
    answered_once(&world, 1).await;
    answered_once(&world, 2).await;
    world.sender.never_reaches(destination(2));
    for number in 0..4 {
        (world.queue).delivers(&[permit_of(2, number), permit_of(1, 100 + number)]);
    }
    pass(ms(240)).await;
    assert_eq!(world.journal.sent().len(), 2 + 4);
    assert_eq!(world.journal.settled().len(), 2);
    pass(ms(20)).await;
    assert_eq!(world.journal.settled().len(), 2 + 4);
    assert_eq!(world.journal.released(), [], "each still may be dialled");
    // What waits goes back to the store, and not to the queue, which has let go of it.
    world.shutdown.cancel();
    worker.await.unwrap();
    let mut released = world.journal.released();
    released.sort_unstable_by_key(|permit| permit.attempt);
    let waited: Vec<_> = (0..4).map(|number| permit_of(2, number)).collect();
    assert_eq!(released, waited);
    let settled = world.journal.settled();
    assert!(settled.iter().all(|(_, how)| *how == Settlement::Done));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_finds_no_place_by_its_deadline_is_given_back() {
    let world = World::new();
    let _worker = world.worker().await;
    answered_once(&world, 1).await;
    world.sender.send.takes(FOREVER);
    fills_all_places(&world);
    settle().await;
    let tag = world.queue.delivers(&[permit(99)]);
    pass(ms(1_990)).await;
    assert_eq!(world.journal.released(), []);
    pass(ms(20)).await;
    assert_eq!(world.journal.released(), [permit(99)]);
    assert!(world.journal.settled().contains(&(tag, Settlement::Done)));
    assert!(world.journal.woken()[0].clear_floor);
    let claimed = world.journal.claims();
    let mut claimed = claimed.iter().flat_map(|(_, permits)| permits);
    assert!(!claimed.any(|claimed| claimed.attempt == AttemptId(99)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_received_from_again() {
    let world = World::new();
    let _worker = world.worker().await;
    for number in 0..3 {
        world.queue.drops_connection();
        world.queue.delivers(&[permit(number)]);
        pass(ms(25)).await;
    }
    let subscribed = world.journal.times(|e| matches!(e, Event::Subscribe(_)));
    assert_eq!(subscribed.len(), 1, "the subscription redials by itself");
    assert_eq!(world.journal.sent().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_worker_subscribes_until_it_can() {
    let world = World::new();
    let mut refusals = 3;
    world.queue.subscribe.answers(move |()| {
        if refusals == 0 {
            return Ok(());
        }
        refusals -= 1;
        Err(QueueError::Unavailable("away".to_owned()))
    });
    let _worker = world.worker().await;
    world.queue.delivers(&[permit(1)]);
    pass(Duration::from_secs(1)).await;
    let times = world.journal.times(|e| matches!(e, Event::Subscribe(_)));
    assert_eq!(times, [ms(0), ms(100), ms(300), ms(700)]);
    assert_eq!(world.journal.sent().len(), 1);
}
