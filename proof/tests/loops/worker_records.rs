//! Outcomes are recorded until they are.

use std::sync::atomic::Ordering;
use std::time::Duration;

use domain::ids::AttemptId;
use engine::ports::{Outcome, Recorded, StoreError, Wake};

use crate::support::{
    Event, World, answer, corrupt, destination, ms, pass, permit, permit_of, settle, store_away,
};

/// The attempts of each call.
fn calls(world: &World) -> Vec<Vec<i64>> {
    let recorded = world.journal.recorded().into_iter();
    let attempts = recorded.map(|(_, outcomes)| {
        let attempts = outcomes.iter().map(|outcome| outcome.attempt.0);
        attempts.collect()
    });
    attempts.collect()
}

fn recorded_at(world: &World) -> Vec<u128> {
    let times = world.journal.times(|e| matches!(e, Event::Record(..)));
    times.iter().map(Duration::as_millis).collect()
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_recorded_is_recorded_again_unchanged() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.record.answers(|_| Err(store_away()));
    world.queue.delivers(&[permit(7)]);
    pass(ms(75)).await;
    world.store.record.answers(|_| Ok(Recorded::default()));
    pass(Duration::from_secs(5)).await;
    assert_eq!(recorded_at(&world), [0, 10, 30, 70, 150]);
    let recorded = world.journal.recorded();
    assert!(recorded.iter().all(|call| *call == recorded[0]));
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_wait_for_the_store_are_recorded_together_later() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.record.takes(ms(100));
    for number in 0..5 {
        world.queue.delivers(&[permit(number)]);
        settle().await;
    }
    pass(ms(300)).await;
    assert_eq!(calls(&world), [vec![0], vec![1, 2, 3, 4]]);
}

#[tokio::test(start_paused = true)]
async fn a_locked_row_is_recorded_again_and_holds_up_nobody() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.record.answers(|outcomes| {
        let mut skipped: Vec<_> = outcomes.iter().map(|outcome| outcome.attempt).collect();
        skipped.retain(|attempt| *attempt == AttemptId(7));
        let wakes = Vec::new();
        Ok(Recorded {
            skipped,
            wakes,
            health: Vec::new(),
        })
    });
    world.queue.delivers(&[permit(7), permit(8)]);
    pass(ms(200)).await;
    assert_eq!(recorded_at(&world), [0, 10, 30, 70, 150]);
    let again = vec![7];
    assert_eq!(
        calls(&world)[1..],
        [again.clone(), again.clone(), again.clone(), again]
    );
    // Others are recorded at once, though the row stays locked.
    world.queue.delivers(&[permit(9)]);
    settle().await;
    assert_eq!(calls(&world).last().unwrap(), &[9]);
    assert_eq!(recorded_at(&world).last(), Some(&200));
    world.store.record.answers(|_| Ok(Recorded::default()));
    pass(ms(200)).await;
    assert_eq!(calls(&world).last().unwrap(), &[7]);
    let so_far = calls(&world).len();
    pass(Duration::from_secs(5)).await;
    assert_eq!(calls(&world).len(), so_far, "then it is over");
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_row_is_given_up_alone() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.record.answers(|outcomes| {
        let corrupted = outcomes.iter().any(|one| one.attempt == AttemptId(7));
        if corrupted {
            return Err(corrupt());
        }
        Ok(Recorded::default())
    });
    world.queue.delivers(&[permit(6), permit(7), permit(8)]);
    pass(Duration::from_secs(5)).await;
    assert_eq!(
        calls(&world),
        [vec![6, 7, 8], vec![6], vec![7, 8], vec![7], vec![8]]
    );
}

/// Whatever came back from a receiver, if the store takes none of it.
#[tokio::test(start_paused = true)]
async fn a_refused_outcome_is_recorded_alone_without_the_answer() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.send.answers(|request| {
        let status = if request.attempt == AttemptId(7) {
            500
        } else {
            200
        };
        Ok(answer(status))
    });
    world.store.record.answers(|outcomes| {
        let is_poison = |one: &Outcome| one.status == Some(500) && !one.response_body.is_empty();
        match outcomes.iter().any(is_poison) {
            true => Err(StoreError::Refused(
                "invalid byte sequence (22021)".to_owned(),
            )),
            false => Ok(Recorded::default()),
        }
    });
    world.queue.delivers(&[permit(6), permit(7), permit(8)]);
    pass(Duration::from_secs(5)).await;
    assert_eq!(
        calls(&world),
        [
            vec![6, 7, 8],
            vec![6],
            vec![7, 8],
            vec![7],
            vec![7],
            vec![8]
        ]
    );
    let (_, plain) = world.journal.recorded().swap_remove(4);
    assert_eq!(
        (plain[0].status, plain[0].response_body.len()),
        (Some(500), 0)
    );
    assert_eq!(
        plain[0].error.as_deref(),
        Some("the store refused the answer's text")
    );
}

/// Where that costs less. All of one destination are together.
#[tokio::test(start_paused = true)]
async fn what_succeeded_is_recorded_apart_from_what_failed() {
    for apart in [true, false] {
        let world = World::new();
        world.store.plain_apart.store(apart, Ordering::SeqCst);
        let _worker = world.worker().await;
        world.sender.send.answers(|request| {
            let failed = request.attempt == AttemptId(7);
            Ok(answer(if failed { 500 } else { 200 }))
        });
        let others = [permit_of(2, 8), permit_of(3, 9)];
        world.queue.delivers(&[permit(6), permit(7)]);
        world.queue.delivers(&others[..1]);
        world.queue.delivers(&others[1..]);
        pass(Duration::from_secs(5)).await;
        let expected = match apart {
            true => vec![vec![8, 9], vec![6, 7]],
            false => vec![vec![6, 7, 8, 9]],
        };
        assert_eq!(calls(&world), expected);
    }
}

/// What the store has not taken of one kind says nothing of the other.
#[tokio::test(start_paused = true)]
async fn what_failed_is_recorded_again_without_what_succeeded() {
    let world = World::new();
    world.store.plain_apart.store(true, Ordering::SeqCst);
    let _worker = world.worker().await;
    world.sender.send.answers(|request| {
        let failed = request.attempt == AttemptId(7);
        Ok(answer(if failed { 500 } else { 200 }))
    });
    world.store.record.answers(|outcomes| {
        match outcomes.iter().any(|one| one.attempt == AttemptId(7)) {
            true => Err(store_away()),
            false => Ok(Recorded::default()),
        }
    });
    world.queue.delivers(&[permit(7)]);
    world.queue.delivers(&[permit_of(2, 8)]);
    pass(ms(35)).await;
    assert_eq!(calls(&world), [[8], [7], [7], [7]]);
}

/// A commit that never succeeds waits by itself.
#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_again_and_again_holds_up_no_other() {
    let world = World::new();
    let _worker = world.worker().await;
    world.store.record.answers(|outcomes| {
        match outcomes.iter().any(|one| one.attempt == AttemptId(7)) {
            true => Err(store_away()),
            false => Ok(Recorded::default()),
        }
    });
    world.queue.delivers(&[permit(7)]);
    pass(ms(500)).await;
    let before = calls(&world).len();
    world.queue.delivers(&[permit(8)]);
    settle().await;
    assert_eq!(calls(&world)[before..], [[8]]);
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_an_outcome_is_woken() {
    let world = World::new();
    let _worker = world.worker().await;
    let retry = Wake::after(destination(1), Duration::from_secs(3));
    world.store.record.answers(move |_| {
        Ok(Recorded {
            skipped: Vec::new(),
            wakes: vec![retry],
            health: Vec::new(),
        })
    });
    world.queue.delivers(&[permit(7)]);
    settle().await;
    assert_eq!(world.journal.woken(), [retry]);
}

/// A timeout is 15 s. Those that end within a moment are one commit, and what is
/// answered meanwhile does not wait for it.
#[tokio::test(start_paused = true)]
async fn those_that_hung_are_recorded_together() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.hangs_from(AttemptId(10));
    for number in [10, 11, 12] {
        world.queue.delivers(&[permit(number)]);
        pass(ms(50)).await;
    }
    pass(ms(15_000)).await;
    world.queue.delivers(&[permit(1)]);
    settle().await;
    assert_eq!(calls(&world), [[1]], "the others wait");
    pass(ms(300)).await;
    assert_eq!(calls(&world)[1..], [[10, 11, 12]]);
}

/// They are not left behind when the worker ends.
#[tokio::test(start_paused = true)]
async fn a_shutdown_records_those_that_hung_at_once() {
    let world = World::new();
    let worker = world.worker().await;
    world.sender.hangs_from(AttemptId(10));
    world.queue.delivers(&[permit(10)]);
    settle().await;
    world.shutdown.cancel();
    worker.await.unwrap();
    let ended = world
        .journal
        .times(|event| matches!(event, Event::Record(..)));
    let sent = world.journal.times(|event| matches!(event, Event::Send(_)));
    assert_eq!(calls(&world), [[10]]);
    assert!(ended[0] - sent[0] <= ms(15_000), "{ended:?}");
}
