//! Destinations that hang, beside others that answer.

use std::time::Duration;

use domain::ids::AttemptId;
use engine::ports::{SendError, Settlement};
use engine::worker::WorkerOptions;

use crate::support::{Event, World, destination, ms, pass, permit_of, settle};

/// Attempts from this number on are never answered.
const HANGING: i64 = 1_000;

/// A worker of 64 places, whose hand holds four messages, and which has seen
/// destination 1 answer.
async fn world() -> (World, tokio::task::JoinHandle<()>) {
    let world = World::new();
    world.sender.hangs_from(AttemptId(HANGING));
    let options = WorkerOptions {
        places: 64,
        ..WorkerOptions::default()
    };
    let worker = world.worker_with(options).await;
    world.queue.delivers(&[permit_of(1, 1)]);
    settle().await;
    (world, worker)
}

/// One permit for each of a hundred destinations that hang, for the so many'th
/// time.
async fn flood(world: &World, time: i64) {
    let now = world.store.now();
    for number in 0..100_u8 {
        let attempt = HANGING + time * 100 + i64::from(number);
        let permit = permit_of(100 + u128::from(number), attempt);
        let permit = domain::permit::Permit {
            not_before: now,
            deadline: now + Duration::from_secs(2),
            ..permit
        };
        world.queue.delivers(&[permit]);
    }
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn those_that_nobody_knows_leave_a_quarter_to_the_others() {
    let (world, _worker) = world().await;
    flood(&world, 0).await;
    assert_eq!(world.sender.under_way(), 48);
    let tag = world.queue.delivers(&[permit_of(1, 2)]);
    settle().await;
    assert_eq!(world.journal.sent().last(), Some(&AttemptId(2)), "at once");
    assert!(world.journal.settled().contains(&(tag, Settlement::Done)));
}

#[tokio::test(start_paused = true)]
async fn those_that_hang_leave_half() {
    let (world, _worker) = world().await;
    // Until each of them has had a place, and a timeout in it.
    for time in 0..6 {
        flood(&world, time).await;
        pass(ms(15_100)).await;
    }
    assert_eq!(world.sender.under_way(), 0);
    flood(&world, 6).await;
    pass(ms(100)).await;
    assert_eq!(world.sender.under_way(), 32);
}

/// So does a receiver that lets requests wait, and says then that it has not looked at them.
#[tokio::test(start_paused = true)]
async fn those_that_refuse_late_leave_half() {
    let (world, _worker) = world().await;
    world.sender.hangs_from(AttemptId(i64::MAX));
    world.sender.send.takes(ms(14_900));
    let refused = |_| {
        Err(SendError::Unread {
            why: "the stream was refused".to_owned(),
            may_arrive: false,
        })
    };
    world.sender.send.answers(refused);
    for time in 0..6 {
        flood(&world, time).await;
        pass(ms(15_100)).await;
    }
    assert_eq!(world.sender.under_way(), 0);
    flood(&world, 6).await;
    pass(ms(100)).await;
    assert_eq!(world.sender.under_way(), 32);
}

/// Those that answer wait in line; who has waited for all of its time goes back with the
/// others, and is looked at again at once.
#[tokio::test(start_paused = true)]
async fn who_waited_in_vain_goes_back_with_the_others() {
    let (world, _worker) = world().await;
    world.sender.send.takes(ms(10_000));
    let now = world.store.now();
    // As many as there are places, and one message more.
    let permits: Vec<_> = (10..90)
        .map(|attempt| domain::permit::Permit {
            not_before: now,
            deadline: now + Duration::from_secs(2),
            ..permit_of(1, attempt)
        })
        .collect();
    for message in permits.chunks(16) {
        world.queue.delivers(message);
    }
    settle().await;
    assert_eq!(world.sender.under_way(), 64);
    pass(ms(2_100)).await;
    let statements = world.journal.pick(|event| match event {
        Event::Release(permits) => Some(permits.len()),
        _ => None,
    });
    assert_eq!(statements.iter().sum::<usize>(), 16);
    assert!(statements.len() <= 3, "{statements:?}");
    assert!(world.journal.deferred().is_empty());
    let woken = world.journal.woken();
    assert!(!woken.is_empty() && woken.iter().all(|wake| wake.after.is_zero()));
}

/// What is turned away costs no statement each, and does not come back at
/// once.
#[tokio::test(start_paused = true)]
async fn who_is_turned_away_waits_again_in_the_store() {
    let (world, _worker) = world().await;
    flood(&world, 0).await;
    pass(ms(2_100)).await;
    let released = world.journal.released();
    assert_eq!(released.len(), 52);
    assert!(
        released
            .iter()
            .all(|permit| permit.destination != destination(1))
    );
    // Each of them is settled: the store knows.
    assert_eq!(world.journal.settled().len(), 101);
    let woken = world.journal.woken();
    assert_eq!(woken.len(), 52);
    assert!(
        woken
            .iter()
            .all(|wake| wake.after >= Duration::from_secs(1)),
        "{woken:?}"
    );
    // And nothing is admitted of them until then: said before they wait again.
    let order = world.journal.pick(|event| match event {
        Event::Defer(_) => Some("defer"),
        Event::Release(_) => Some("release"),
        _ => None,
    });
    assert_eq!(order.first(), Some(&"defer"), "{order:?}");
    let deferred = world.journal.deferred();
    assert_eq!(deferred.len(), 52);
    assert!(
        deferred
            .iter()
            .all(|deferral| deferral.lasts >= Duration::from_secs(1)),
        "{deferred:?}"
    );
}
