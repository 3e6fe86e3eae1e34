//! Who a worker is, and under which name it claims and records.

use std::time::Duration;

use domain::ids::WorkerId;
use engine::ports::{ClaimAnswer, HEARTBEAT_TIMEOUT, Heartbeat};
use engine::worker::WorkerOptions;

use crate::support::{Event, World, ms, pass, permit, settle, store_away};

fn heartbeats(world: &World) -> Vec<Heartbeat> {
    world.journal.pick(|event| match event {
        Event::Heartbeat(heartbeat) => Some(heartbeat),
        _ => None,
    })
}

fn claimers(world: &World) -> Vec<WorkerId> {
    let claims = world.journal.claims();
    claims.into_iter().map(|(worker, _)| worker).collect()
}

#[tokio::test(start_paused = true)]
async fn a_worker_introduces_itself_before_it_subscribes() {
    let world = World::new();
    let mut refusals = 2;
    world.store.heartbeat.answers(move |_| {
        if refusals == 0 {
            return Ok(());
        }
        refusals -= 1;
        Err(store_away())
    });
    let _worker = world.worker().await;
    pass(ms(1_000)).await;
    let beaten = world.journal.position(|e| matches!(e, Event::Beaten(_)));
    let subscribed = world.journal.position(|e| matches!(e, Event::Subscribe(_)));
    assert!(beaten < subscribed);
    assert_eq!(heartbeats(&world)[0].places, 32);
}

/// Its first claims must not be slow ones. But it is introduced before: a run
/// that finds no worker looks again after a second.
#[tokio::test(start_paused = true)]
async fn a_worker_makes_its_statements_ready_before_it_takes_work() {
    let world = World::new();
    let _worker = world.worker().await;
    pass(ms(10)).await;
    let introduced = world.journal.position(|e| matches!(e, Event::Beaten(_)));
    let takes = world.journal.position(|e| matches!(e, Event::Subscribe(_)));
    for statement in ["targets", "claim_starts", "record_outcomes"] {
        let ready = (world.journal).position(|e| *e == Event::Nothing(statement));
        assert!(introduced < ready && ready < takes, "{statement}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_stopped_before_it_is_introduced_takes_nothing() {
    let world = World::new();
    world.store.heartbeat.answers(|_| Err(store_away()));
    let worker = world.worker().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    let subscribed = world.journal.times(|e| matches!(e, Event::Subscribe(_)));
    assert_eq!(subscribed, []);
}

#[tokio::test(start_paused = true)]
async fn it_beats_every_second_under_one_name() {
    let world = World::new();
    let _worker = world.worker().await;
    pass(ms(5_500)).await;
    let beats = heartbeats(&world);
    assert_eq!(beats.len(), 6);
    assert!(beats.iter().all(|beat| beat.worker == beats[0].worker));
}

#[tokio::test(start_paused = true)]
async fn a_new_process_is_another_worker() {
    let names = [1, 2].map(|seed| async move {
        let world = World::new();
        let options = WorkerOptions {
            seed,
            ..WorkerOptions::default()
        };
        let _worker = world.worker_with(options).await;
        heartbeats(&world)[0].worker
    });
    let [first, second] = names;
    assert_ne!(first.await, second.await);
}

#[tokio::test(start_paused = true)]
async fn after_late_heartbeats_it_goes_on_as_another_and_records_as_the_old_one() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.send.takes(ms(4_500));
    world.queue.delivers(&[permit(1)]);
    settle().await;
    world.store.heartbeat.answers(|_| Err(store_away()));
    // Beats at one and two seconds fail; 2.5 s have passed at three.
    pass(ms(2_900)).await;
    let late = crate::support::in_slot(permit(2), ms(2_900));
    world.queue.delivers(&[late]);
    pass(ms(50)).await;
    world.store.heartbeat.answers(|_| Ok(()));
    pass(ms(100)).await;
    let new = crate::support::in_slot(permit(3), ms(3_000));
    world.queue.delivers(&[new]);
    settle().await;
    let claimers = claimers(&world);
    assert_eq!(claimers.len(), 3);
    assert_eq!(claimers[0], claimers[1]);
    assert_ne!(claimers[0], claimers[2]);
    assert_eq!(heartbeats(&world).last().unwrap().worker, claimers[2]);

    pass(Duration::from_secs(5)).await;
    let mut recorded = Vec::new();
    for (worker, outcomes) in world.journal.recorded() {
        recorded.extend(outcomes.iter().map(|one| (one.attempt.0, worker)));
    }
    let expected = [(1, claimers[0]), (2, claimers[0]), (3, claimers[2])];
    assert_eq!(recorded, expected);
}

/// The store refuses what a name claims that it has not seen, and its permits would be
/// admitted again only to come back, as fast as a scheduler goes.
#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_under_a_name_that_the_store_has_not_seen() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.heartbeat.answers(|_| Err(store_away()));
    // At three seconds it takes another name, which cannot be written either.
    pass(ms(3_100)).await;
    for attempt in 1..=20 {
        let slot = ms(3_100 + 4 * attempt);
        let permit = permit(i64::try_from(attempt).unwrap());
        world
            .queue
            .delivers(&[crate::support::in_slot(permit, slot)]);
        pass(ms(4)).await;
    }
    pass(ms(700)).await;
    assert_eq!(world.journal.claims().len(), 0);
    world.store.heartbeat.answers(|_| Ok(()));
    pass(ms(200)).await;
    let new = heartbeats(&world).last().unwrap().worker;
    let claimers = claimers(&world);
    assert!(claimers.iter().all(|one| *one == new), "{claimers:?}");
    assert!(claimers.len() <= 2, "many in one statement");
    assert_eq!(world.journal.sent().len(), 20);
}

/// A heartbeat hangs, and the name that it is of is given up meanwhile.
#[tokio::test(start_paused = true)]
async fn a_name_that_may_have_lapsed_claims_once_in_a_permits_time() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.heartbeat.takes(Duration::from_secs(60));
    pass(HEARTBEAT_TIMEOUT + ms(100)).await;
    world
        .store
        .claim
        .answers(|_| Some(Ok(ClaimAnswer::Refused)));
    for attempt in 1..=1_000 {
        let slot = HEARTBEAT_TIMEOUT + ms(4 * attempt);
        let permit = permit(i64::try_from(attempt).unwrap());
        world
            .queue
            .delivers(&[crate::support::in_slot(permit, slot)]);
        pass(ms(4)).await;
    }
    let claims = world.journal.claims().len();
    assert!(claims <= 2, "{claims} in four seconds");
}

#[tokio::test(start_paused = true)]
async fn after_a_step_of_the_stores_clock_it_goes_on_as_another() {
    let world = World::new();
    let _worker = world.worker().await;
    pass(ms(1_500)).await;
    // By the store's clock the last heartbeat is five seconds old now.
    world.store.steps_by(ms(4_500));
    pass(ms(600)).await;
    let beats = heartbeats(&world);
    assert_eq!(beats[0].worker, beats[1].worker);
    assert_ne!(beats[0].worker, beats.last().unwrap().worker);
    let in_time = crate::support::in_slot(permit(1), ms(6_600));
    world.queue.delivers(&[in_time]);
    settle().await;
    assert_eq!(claimers(&world), [beats.last().unwrap().worker]);
    pass(ms(5_000)).await;
    let later = heartbeats(&world);
    assert_eq!(later.last(), beats.last(), "one step, one new name");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_shows_the_step_is_enough() {
    let world = World::new();
    let _worker = world.worker().await;
    pass(ms(1_100)).await;
    world.store.steps_by(ms(4_500));
    world.queue.delivers(&[permit(1)]);
    settle().await;
    let beats = heartbeats(&world);
    assert_eq!(claimers(&world), [beats[0].worker]);
    assert_ne!(beats.last().unwrap().worker, beats[0].worker);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_introduction_takes_long_is_another_by_then() {
    let world = World::new();
    // Each of these may have been written, and is too old by the end.
    world.store.heartbeat.answers(|_| Err(store_away()));
    let _worker = world.worker().await;
    pass(ms(6_000)).await;
    world.store.heartbeat.answers(|_| Ok(()));
    pass(ms(2_500)).await;
    let beats = heartbeats(&world);
    assert_ne!(beats[0].worker, beats.last().unwrap().worker);
    let beaten = world.journal.times(|e| matches!(e, Event::Subscribe(_)));
    assert_eq!(beaten.len(), 1);
}
