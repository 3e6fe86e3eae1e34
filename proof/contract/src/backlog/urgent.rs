//! The lane of urgent events beside the normal one; see `domain::turns`.

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::batch::BatchSettings;
use domain::event::{NewEvent, Timing};
use domain::ids::{AttemptId, DestinationId, EventId, PermitNumber};
use domain::permit::Permit;
use domain::turns::{Lanes, in_turn};
use engine::ports::{CancelFrom, CancelStep, ClaimAnswer, DEFAULT_TENANT, NextTry, Which};

use super::BacklogWorld;

/// An event of the urgent lane.
fn urgent(world: &BacklogWorld, of: DestinationId) -> NewEvent {
    let timing = Timing {
        urgent: true,
        ..Timing::default()
    };
    NewEvent {
        timing,
        ..world.event(of)
    }
}

/// Accepts so many normal events, and then so many urgent ones; their ids.
async fn accept(
    world: &BacklogWorld,
    of: DestinationId,
    (normal, hurried): (usize, usize),
) -> (Vec<EventId>, Vec<EventId>) {
    let normal = world.accept(of, normal).await;
    let mut urgents = Vec::new();
    for _ in 0..hurried {
        urgents.push(world.accept_one(&urgent(world, of)).await);
    }
    (normal, urgents)
}

/// The events of permits, in the order of these.
async fn events(world: &BacklogWorld, of: DestinationId, permits: &[Permit]) -> Vec<EventId> {
    let attempts = world.attempts(of).await;
    let event_of = |id: AttemptId| attempts.iter().find(|one| one.id == id).unwrap().event;
    (permits.iter().map(|permit| event_of(permit.attempt))).collect()
}

async fn unlimited(world: &BacklogWorld, in_flight: u32) -> DestinationId {
    let of = world.destination().unlimited().max_in_flight(in_flight);
    of.create().await
}

/// While both lanes wait: whichever comes first, each fourth is normal, and each lane keeps
/// its order.
pub async fn of_four_first_attempts_three_are_urgent(world: &BacklogWorld) {
    let of = unlimited(world, 12).await;
    let (normal, hurried) = accept(world, of, (12, 12)).await;
    let given = events(world, of, &world.admit(of).await).await;
    assert_eq!(given.len(), 12);
    let of_lane = |lane: &[EventId]| -> Vec<EventId> {
        let given = given.iter().filter(|event| lane.contains(event));
        given.copied().collect()
    };
    assert_eq!(of_lane(&normal), normal[..3]);
    assert_eq!(of_lane(&hurried), hurried[..9]);
    for four in given.windows(4) {
        let normal = four.iter().filter(|event| normal.contains(event));
        assert_eq!(normal.count(), 1, "{given:?}");
    }
}

/// The turn is remembered from run to run, and retries beside them have theirs.
pub async fn one_permit_a_run_keeps_the_share_beside_retries(world: &BacklogWorld) {
    let of = unlimited(world, 1).await;
    let worker = world.worker().await;
    world.accept(of, 8).await;
    for _ in 0..8 {
        let permits = world.start_all(worker, of).await;
        let later = NextTry::RetryAfter(Duration::from_millis(2_000));
        world
            .record(worker, &permits[0], OutcomeKind::Failed, later)
            .await;
    }
    let (normal, hurried) = accept(world, of, (16, 16)).await;
    world.pass(Duration::from_millis(2_100)).await;
    let mut given = Vec::new();
    for _ in 0..16 {
        let permits = world.start_all(worker, of).await;
        given.extend(events(world, of, &permits).await);
        world.finish(worker, &permits).await;
    }
    let among = |lane: &[EventId]| given.iter().filter(|event| lane.contains(event)).count();
    assert_eq!((among(&normal), among(&hurried)), (2, 6), "{given:?}");
}

/// A lane that waits alone gets all.
pub async fn a_lane_alone_gets_all(world: &BacklogWorld) {
    let of = unlimited(world, 8).await;
    accept(world, of, (0, 10)).await;
    assert_eq!(world.admit(of).await.len(), 8);
    let of = unlimited(world, 8).await;
    let (normal, hurried) = accept(world, of, (10, 2)).await;
    let given = events(world, of, &world.admit(of).await).await;
    let among = |lane: &[EventId]| given.iter().filter(|event| lane.contains(event)).count();
    assert_eq!((among(&normal), among(&hurried)), (6, 2));
}

/// It goes back into its lane, in front of those that came after it.
pub async fn a_permit_that_comes_back_keeps_its_place(world: &BacklogWorld) {
    let of = unlimited(world, 2).await;
    let (_, hurried) = accept(world, of, (0, 4)).await;
    let permits = world.admit(of).await;
    world.store.release_permits(&permits).await.unwrap();
    let given = events(world, of, &world.admit(of).await).await;
    assert_eq!(given, hurried[..2]);
}

/// When it is due it has waited, and is in line with what is due.
pub async fn what_is_meant_for_later_is_in_no_hurry(world: &BacklogWorld) {
    let of = unlimited(world, 10).await;
    let later = world.now().await + Duration::from_millis(500);
    let timing = Timing {
        deliver_at: Some(later),
        urgent: true,
        ..Timing::default()
    };
    let event = NewEvent {
        timing,
        ..world.event(of)
    };
    world.accept_one(&event).await;
    assert!(world.admit(of).await.is_empty());
    world.pass_until(later).await;
    let (_, hurried) = accept(world, of, (0, 12)).await;
    let given = events(world, of, &world.admit(of).await).await;
    let at = given.iter().position(|one| *one == event.id);
    assert!(at.is_some_and(|at| at < 2), "the others' turn: {given:?}");
    assert_eq!(given.iter().filter(|one| hurried.contains(one)).count(), 9);
}

/// Whether it failed or was delivered.
pub async fn what_is_sent_again_keeps_its_lane(world: &BacklogWorld) {
    let of = unlimited(world, 8).await;
    let worker = world.worker().await;
    let (_, hurried) = accept(world, of, (0, 6)).await;
    let permits = world.start_all(worker, of).await;
    let dies = NextTry::DeadLetter;
    world
        .record(worker, &permits[0], OutcomeKind::Failed, dies)
        .await;
    world.finish(worker, &permits[1..]).await;
    world.pass(Duration::from_millis(50)).await;
    let dead = permits[0].attempt;
    let delivered = hurried[1..].iter().map(|event| Which::Event(of, *event));
    for which in std::iter::once(Which::One(dead)).chain(delivered) {
        world.replay_of(which, 1.0).await;
        world.pass(Duration::from_millis(50)).await;
        let advanced = world.replays.advance_replays(10).await.unwrap();
        assert_eq!(advanced.replayed + advanced.resent, 1);
    }
    are_urgent(world, of, (hurried, permits[5].number)).await;
    assert!(world.admit(of).await.is_empty());
}

/// Its worker was late, which is no reason to stand among retries.
pub async fn what_was_never_sent_keeps_its_lane(world: &BacklogWorld) {
    let of = unlimited(world, 8).await;
    let worker = world.worker().await;
    let (_, hurried) = accept(world, of, (0, 6)).await;
    let permits = world.start_all(worker, of).await;
    for permit in &permits {
        let (not_sent, again) = (OutcomeKind::NotSent, NextTry::Again);
        world.record(worker, permit, not_sent, again).await;
    }
    world.pass(Duration::from_millis(50)).await;
    are_urgent(world, of, (hurried, permits[5].number)).await;
}

/// Of eight permits after that number, with as many normal events waiting, these six get
/// what the urgent lane does: among retries they would get each second one.
async fn are_urgent(
    world: &BacklogWorld,
    of: DestinationId,
    (urgent, number): (Vec<EventId>, PermitNumber),
) {
    let firsts = world.accept(of, 8).await;
    let mut given = events(world, of, &world.admit(of).await).await;
    assert_eq!(given.len(), 8);
    let lanes = Lanes {
        urgent,
        firsts,
        others: Vec::new(),
    };
    let mut in_lane = in_turn(lanes, number.0 + 1, 8);
    given.sort_unstable();
    in_lane.sort_unstable();
    assert_eq!(given, in_lane);
}

/// An event of one lane waits for its own like alone, and an urgent one for nobody.
pub async fn a_batch_is_of_one_lane(world: &BacklogWorld) {
    let of = unlimited(world, 10).await;
    let settings = BatchSettings {
        max_events: Some(3),
        max_bytes: None,
        max_wait_ms: Some(60_000),
    };
    let set = (world.backlog).set_batch_settings(DEFAULT_TENANT, of, &settings);
    set.await.unwrap();
    let worker = world.worker().await;
    let (normal, hurried) = accept(world, of, (5, 4)).await;
    let permits = world.admit(of).await;
    let claims = world.store.claim_batches(worker, &permits).await.unwrap();
    let mut batches = Vec::new();
    for answer in claims.answers {
        let ClaimAnswer::Started(start) = answer else {
            panic!("expected a start, got {answer:?}");
        };
        batches.push(
            start
                .members
                .iter()
                .map(|one| one.event)
                .collect::<Vec<_>>(),
        );
    }
    batches.sort_unstable_by_key(|batch| batch.first().copied());
    let mut expected = vec![
        normal[..3].to_vec(),
        hurried[..3].to_vec(),
        hurried[3..].to_vec(),
    ];
    expected.sort_unstable_by_key(|batch| batch.first().copied());
    assert_eq!(batches, expected, "two more wait to be three");
}

/// Both lanes are cancelled, in steps of any size, and counted as what waits.
pub async fn all_lanes_are_cancelled(world: &BacklogWorld) {
    let of = unlimited(world, 1).await;
    let worker = world.worker().await;
    let (_, hurried) = accept(world, of, (3, 5)).await;
    let permits = world.start_all(worker, of).await;
    let later = NextTry::RetryAfter(Duration::from_secs(60));
    world
        .record(worker, &permits[0], OutcomeKind::Failed, later)
        .await;
    assert_eq!(world.backlog(of).await, 8);
    let mut step = CancelStep {
        destination: of,
        event_type: None,
        accepted_before: None,
        from: CancelFrom::BEGIN,
        limit: 2,
    };
    let mut cancelled = 0;
    loop {
        let done = world.backlog.cancel_step(DEFAULT_TENANT, &step);
        let done = done.await.unwrap();
        cancelled += done.cancelled;
        step.accepted_before = Some(done.accepted_before);
        match done.next {
            Some(next) => step.from = next,
            None => break,
        }
    }
    assert_eq!(cancelled, 8);
    let states = world.states(of).await;
    let left = states.iter().filter(|one| **one == AttemptState::Waiting);
    assert_eq!(left.count(), 0, "{states:?}");
    let (found, _) = world
        .catalog
        .event(DEFAULT_TENANT, hurried[0])
        .await
        .unwrap();
    assert!(found.urgent);
}

/// What is too old is as dead as in the normal lane.
pub async fn an_urgent_event_grows_too_old(world: &BacklogWorld) {
    let of = unlimited(world, 10).await;
    let timing = Timing {
        expires_at: Some(world.now().await + Duration::from_millis(200)),
        urgent: true,
        ..Timing::default()
    };
    let event = NewEvent {
        timing,
        ..world.event(of)
    };
    world.accept_one(&event).await;
    let (_, hurried) = accept(world, of, (0, 1)).await;
    world.pass(Duration::from_millis(250)).await;
    let given = events(world, of, &world.admit(of).await).await;
    assert_eq!(given, hurried);
    assert_eq!(world.reap().await.expired, 1);
}

/// Retries are in one lane, whatever they are retries of.
pub async fn a_retry_is_in_no_lane(world: &BacklogWorld) {
    let of = unlimited(world, 4).await;
    let worker = world.worker().await;
    accept(world, of, (0, 4)).await;
    for permit in world.start_all(worker, of).await {
        let later = NextTry::RetryAfter(Duration::from_millis(500));
        world
            .record(worker, &permit, OutcomeKind::Failed, later)
            .await;
    }
    world.pass(Duration::from_millis(600)).await;
    let normal = world.accept(of, 4).await;
    let given = events(world, of, &world.admit(of).await).await;
    assert_eq!(given.iter().filter(|one| normal.contains(one)).count(), 2);
}
