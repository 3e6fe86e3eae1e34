//! [`Store::admit`](engine::ports::Store::admit).

use std::collections::BTreeSet;
use std::time::Duration;

use domain::admission::{Blocked, GRACE, LOOK_WHEN_NONE_WAKES, Look};
use domain::attempt::OutcomeKind;
use domain::ids::{DestinationId, PermitNumber};
use domain::permit::Permit;
use domain::share::Room;

use super::World;
use super::world::most_in_any;
use engine::ports::{NextTry, Run, RunResult, Wake};

/// Across many runs, no sliding second holds more than the limit, and nearly
/// all of the limit is used.
pub async fn no_window_holds_more_than_the_limit(world: &World) {
    let destination = world.destination().per_second(20).create().await;
    world.accept(destination, 200).await;
    let until = world.now().await + Duration::from_millis(3_300);
    let started = world.drive(destination, until).await;
    let starts = world.starts(destination).await;
    assert_eq!(starts.len(), started);
    assert!(most_in_any(Duration::from_secs(1), &starts) <= 20);
    // Three and a third of a second hold four bursts of 20; a slow machine may
    // miss the last.
    assert!(started >= 60, "only {started} starts");
}

/// By creation, whatever the run they fall into.
pub async fn first_attempts_are_admitted_in_creation_order(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(4)
        .create()
        .await;
    let events = world.accept(destination, 10).await;
    let worker = world.worker().await;
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let permits = world.admit(destination).await;
        assert!(!permits.is_empty(), "nothing admitted after {}", seen.len());
        for start in world.start(worker, &permits).await {
            seen.push(start.event);
        }
        world.finish(worker, &permits).await;
    }
    assert_eq!(seen, events);
}

/// A permit may start as late as its deadline, so it fills its place in the
/// window until a period after that, wherever its slot was.
pub async fn a_permit_counts_to_its_deadline_not_to_its_slot(world: &World) {
    let destination = world.destination().per_second(2).create().await;
    world.accept(destination, 4).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 2);
    // More than a period after its slot, and before its deadline.
    let late = permits[1].not_before + Duration::from_millis(1_100);
    world.pass_until(late).await;
    let more = world.admit(destination).await;
    let worker = world.worker().await;
    let outstanding: Vec<_> = permits.into_iter().chain(more).collect();
    world.start(worker, &outstanding).await;
    let starts = world.starts(destination).await;
    assert_eq!(most_in_any(Duration::from_secs(1), &starts), 2);
}

/// What has started and has no outcome yet is not outstanding any more, and
/// counts all the same.
pub async fn a_start_counts_from_its_claim_on(world: &World) {
    let destination = world.destination().per_minute(2).create().await;
    world.accept(destination, 4).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(world.start(worker, &permits).await.len(), 2);
    assert_eq!(world.admit(destination).await, []);
}

/// A permit is gone when its row has moved, and not when its epoch is old: its
/// claim may have been under way when the epoch was bumped.
///
/// Not of the suite: it needs a back door to the rows themselves, so a store
/// that has such rows calls it by itself.
pub async fn an_old_epoch_is_no_proof_that_a_permit_is_gone(world: &World) {
    let destination = world.destination().per_minute(2).create().await;
    world.accept(destination, 4).await;
    assert_eq!(world.admit(destination).await.len(), 2);
    world
        .sql(&format!(
            "update deliveries set epoch = epoch - 1
            where state = 'admitted' and destination_id = '{destination}'"
        ))
        .await;
    assert_eq!(world.admit(destination).await, []);
}

/// The second run of the same batch could not know of the first.
pub async fn a_destination_named_twice_is_decided_once(world: &World) {
    let destination = world.destination().per_minute(2).create().await;
    world.accept(destination, 4).await;
    let run = Run {
        destination,
        republish: false,
    };
    let results = world
        .store
        .admit(&[run, run], &Room::of(100))
        .await
        .unwrap()
        .results;
    let permits = match &results[0] {
        RunResult::Decided { permits, .. } => permits.len(),
        _ => 0,
    };
    assert_eq!(permits, 2);
    assert!(
        matches!(results[1], RunResult::Skipped),
        "got {:?}",
        results[1]
    );
}

/// A row that is admitted again gets a new number, greater than all before.
pub async fn permit_numbers_never_repeat(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 5).await;
    let mut numbers = BTreeSet::new();
    for _ in 0..3 {
        let permits = world.admit(destination).await;
        assert_eq!(permits.len(), 5);
        for permit in &permits {
            assert!(numbers.last().is_none_or(|last| *last < permit.number));
            numbers.insert(permit.number);
        }
        world.store.release_permits(&permits).await.unwrap();
    }
    assert_eq!(numbers.len(), 15);
}

/// After a lost lease the admitted permits are returned as they are; without
/// one they are not.
pub async fn republish_returns_the_same_permits(world: &World) {
    let destination = world.destination().per_second(3).create().await;
    world.accept(destination, 5).await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 3);
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(world.readmit(destination).await, permits);
    // One that has started is not admitted any more.
    let worker = world.worker().await;
    world.start(worker, &permits[..1]).await;
    assert_eq!(world.readmit(destination).await[..2], permits[1..]);
}

/// A permit past its deadline is the reaper's.
pub async fn republish_leaves_out_what_has_no_time_left(world: &World) {
    let destination = world.destination().per_second(3).create().await;
    world.accept(destination, 3).await;
    let permits = world.admit(destination).await;
    world
        .pass_until(permits[2].deadline + Duration::from_millis(1))
        .await;
    assert_eq!(world.readmit(destination).await, []);
}

/// The room is a bound for all runs together, shared max-min fairly.
pub async fn room_is_shared_between_the_runs(world: &World) {
    let mut runs = Vec::new();
    for waiting in [2, 9, 9] {
        let destination = world.destination().unlimited().create().await;
        world.accept(destination, waiting).await;
        runs.push(Run {
            destination,
            republish: false,
        });
    }
    let admitted = world.store.admit(&runs, &Room::of(10)).await.unwrap();
    let decided = |result: &RunResult| match result {
        RunResult::Decided {
            permits, blocked, ..
        } => (permits.len(), *blocked),
        other => panic!("expected a decision, got {other:?}"),
    };
    let decided: Vec<_> = admitted.results.iter().map(decided).collect();
    let places = Some(Blocked::Places);
    assert_eq!(decided, [(2, None), (4, places), (4, places)]);
}

/// It has what it was given while there was room, none of which wakes. Rows of four choose
/// none of the numbers that follow either, so both ends of the first run are chosen.
pub async fn who_becomes_short_of_places_is_woken_by_one_that_is_out(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(700)
        .create()
        .await;
    let within = async |places| {
        let run = Run {
            destination,
            republish: false,
        };
        let admitted = world.store.admit(&[run], &Room::of(places)).await.unwrap();
        match &admitted.results[0] {
            RunResult::Decided { permits, look, .. } => (permits.clone(), *look, admitted.now),
            other => panic!("expected a decision, got {other:?}"),
        }
    };
    let worker = world.worker().await;
    world.accept(destination, 57).await;
    let mut others = world.admit(destination).await;
    assert_eq!(others.len(), 57);
    world.start(worker, &others).await;
    world.accept(destination, 10).await;

    let (none, look, now) = within(0).await;
    let soon = now + LOOK_WHEN_NONE_WAKES;
    assert!(none.is_empty() && matches!(look, Look::At { at, .. } if at == soon));
    let (three, look, now) = within(3).await;
    assert_eq!(three[2].number, PermitNumber(60));
    let ends = [three[0], three[2]];
    assert!(matches!(look, Look::At { at, .. } if at > now + LOOK_WHEN_NONE_WAKES));
    others.push(three[1]);
    // One that is out is enough, whether it has started or not.
    others.extend(within(1).await.0);
    world.start(worker, &ends).await;
    others.extend(within(1).await.0);
    assert_eq!(others.len(), 60);

    world.start(worker, &others[57..]).await;
    assert_eq!(world.finish(worker, &others).await.wakes, []);
    for end in ends {
        let recorded = world.finish(worker, &[end]).await;
        assert_eq!(recorded.wakes, [Wake::now(destination)]);
    }
}

/// Paused by its owner.
pub async fn a_paused_destination_admits_nothing(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    world.accept(destination, 2).await;
    world
        .sql(&format!(
            "update destinations set state = 'paused' where id = '{destination}'"
        ))
        .await;
    let paused = (Vec::new(), Look::Idle, Some(Blocked::Paused));
    assert_eq!(world.decide(destination).await, paused);
    world
        .sql(&format!(
            "update destinations set state = 'active' where id = '{destination}'"
        ))
        .await;
    assert_eq!(world.admit(destination).await.len(), 2);
}

/// A limit of zero, beside another that would allow some.
pub async fn a_limit_of_zero_pauses(world: &World) {
    let destination = world
        .destination()
        .per_second(5)
        .per_minute(0)
        .create()
        .await;
    world.accept(destination, 2).await;
    let (permits, _, blocked) = world.decide(destination).await;
    assert_eq!((permits.len(), blocked), (0, Some(Blocked::Paused)));
}

/// Admitted and started attempts count; an outcome makes room and wakes.
pub async fn max_in_flight_holds_until_an_outcome(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(3)
        .create()
        .await;
    world.accept(destination, 5).await;
    let (permits, _, blocked) = world.decide(destination).await;
    assert_eq!((permits.len(), blocked), (3, Some(Blocked::Concurrency)));
    let worker = world.worker().await;
    world.start(worker, &permits[..2]).await;
    assert_eq!(world.admit(destination).await, []);
    let recorded = world.finish(worker, &permits[..1]).await;
    assert_eq!(recorded.wakes, [Wake::now(destination)]);
    assert_eq!(world.admit(destination).await.len(), 1);
}

/// Unknown or deleted: there is nothing to decide, and the others are decided.
pub async fn a_destination_that_is_gone_says_so(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 1).await;
    let run = |destination| Run {
        destination,
        republish: false,
    };
    let runs = [run(DestinationId(world.id())), run(destination)];
    let results = world
        .store
        .admit(&runs, &Room::of(100))
        .await
        .unwrap()
        .results;
    assert!(
        matches!(results[0], RunResult::Gone),
        "got {:?}",
        results[0]
    );
    let permits = |result: &RunResult| match result {
        RunResult::Decided { permits, .. } => permits.len(),
        _ => 0,
    };
    assert_eq!(permits(&results[1]), 1);
    let tenant = engine::ports::DEFAULT_TENANT;
    world
        .catalog
        .delete_destination(tenant, destination)
        .await
        .unwrap();
    let results = world
        .store
        .admit(&[run(destination)], &Room::of(100))
        .await
        .unwrap()
        .results;
    assert!(
        matches!(results[0], RunResult::Gone),
        "got {:?}",
        results[0]
    );
}

/// Not before, and ahead of what was created after it fell due.
pub async fn a_retry_is_admitted_when_it_is_due(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(1)
        .create()
        .await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let first = world.admit(destination).await;
    world.start(worker, &first).await;
    let delay = Duration::from_secs(2);
    world
        .record(
            worker,
            &first[0],
            OutcomeKind::Failed,
            NextTry::RetryAfter(delay),
        )
        .await;
    let (permits, look, _) = world.decide(destination).await;
    assert_eq!(permits, []);
    let due_at = world.ledger(destination).await[1].due_at;
    assert!(
        matches!(look, Look::At { at, .. } if at <= due_at),
        "looks at {look:?}"
    );
    world.pass_until(due_at).await;
    world.accept(destination, 1).await;
    let retry: Vec<Permit> = world.admit(destination).await;
    assert_eq!(retry.len(), 1);
    assert_eq!(world.attempts(destination).await[1].id, retry[0].attempt);
    assert!(retry[0].deadline <= retry[0].not_before + GRACE);
}
