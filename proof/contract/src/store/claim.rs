//! [`Store::claim_starts`](engine::ports::Store::claim_starts),
//! [`Store::release_permits`](engine::ports::Store::release_permits) and
//! [`Store::targets`](engine::ports::Store::targets).

use std::time::Duration;

use bytes::Bytes;
use domain::admission::latest_start;
use domain::attempt::AttemptState;
use domain::event::NewEvent;
use domain::ids::{DestinationId, EventId, PermitNumber, WorkerId};
use domain::limit::Shape;
use domain::permit::Permit;
use domain::time::Timestamp;

use super::World;
use engine::ports::{
    ClaimAnswer, DEFAULT_TENANT, Deferral, HEARTBEAT_TIMEOUT, Heartbeat, SendReport, Wake,
};

use crate::stalled::stalled;

/// One destination with one permit, and a live worker.
async fn one_permit(world: &World) -> (WorkerId, DestinationId, Permit) {
    let destination = world.destination().per_second(5).create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 1);
    (worker, destination, permits[0])
}

/// Refused, and what the row says afterwards.
async fn refused(world: &World, worker: WorkerId, permit: Permit) -> Vec<AttemptState> {
    let claims = world.claim(worker, &[permit]).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    world.states(permit.destination).await
}

/// The claim is dated to its instant, within the permit's time; when it is sent is not
/// known yet.
pub async fn a_claim_records_its_start(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let events = world.accept(destination, 1).await;
    let worker = world.worker().await;
    let permit = world.admit(destination).await[0];
    let claims = world.claim(worker, &[permit]).await;
    let [ClaimAnswer::Started(start)] = &claims.answers[..] else {
        panic!("expected a start, got {:?}", claims.answers)
    };
    assert_eq!((start.event, start.try_number), (events[0], 1));
    assert_eq!(start.content_type, "application/json");
    assert_eq!(start.payload, world.event(destination).payload);
    assert_eq!(start.claimed_at, claims.now);
    assert!(permit.not_before <= start.claimed_at && start.claimed_at <= permit.deadline);
    let attempt = &world.attempts(destination).await[0];
    assert_eq!(attempt.state, AttemptState::Started);
    let latest = latest_start(start.claimed_at, permit.deadline);
    assert_eq!(attempt.started_at, Some(latest));
    assert!(attempt.admitted_at.is_some_and(|at| at <= start.claimed_at));
    assert_eq!(claims.wakes, []);
}

/// Early: how long to wait, and then it starts.
pub async fn an_early_claim_is_told_how_long_to_wait(world: &World) {
    // Again where a busy machine made the claim come when the slot was there.
    for _ in 0..20 {
        let spaced = world.destination().per_second(6).shape(Shape::LeakyBucket);
        let destination = spaced.create().await;
        world.accept(destination, 2).await;
        let worker = world.worker().await;
        let permits = world.admit(destination).await;
        assert_eq!(permits.len(), 2);
        let claims = world.claim(worker, &permits).await;
        if claims.now + world.store.head_start() >= permits[1].not_before {
            continue;
        }
        assert!(matches!(claims.answers[0], ClaimAnswer::Started(_)));
        let wait = permits[1].not_before.since(claims.now);
        assert_eq!(claims.answers[1], ClaimAnswer::Early(wait));
        assert_eq!(world.states(destination).await[1], AttemptState::Admitted);
        assert_eq!(world.start(worker, &permits[1..]).await.len(), 1);
        return;
    }
    // None came before its slot.
    stalled()
}

/// A claim is dated to its instant, or to the slot that opens within the head
/// start; what opens later is early.
pub async fn a_slot_within_the_head_start_is_its_start(world: &World) {
    let spaced = world.destination().per_second(200);
    let destination = spaced.shape(Shape::LeakyBucket).create().await;
    let worker = world.worker().await;
    // Until a claim has come in time for one: a busy machine may be late.
    for _ in 0..25 {
        // Slots over all of the lead.
        world.accept(destination, 40).await;
        let ahead = starts_ahead(world, destination, worker).await;
        if ahead > 0 || world.store.head_start().is_zero() {
            return;
        }
    }
    // None came before its slot.
    stalled()
}

/// Claims what a run admits; how many starts lay ahead.
async fn starts_ahead(world: &World, destination: DestinationId, worker: WorkerId) -> usize {
    let permits = world.admit(destination).await;
    let claims = world.claim(worker, &permits).await;
    let until = claims.now + world.store.head_start();
    let attempts = world.attempts(destination).await;
    let mut ahead = 0;
    let mut started = Vec::new();
    for (permit, answer) in permits.iter().zip(&claims.answers) {
        if permit.not_before > until {
            let wait = permit.not_before.since(claims.now);
            assert_eq!(*answer, ClaimAnswer::Early(wait));
            continue;
        }
        let ClaimAnswer::Started(start) = answer else {
            // Planned for long ago.
            assert!(permit.deadline < claims.now, "{permit:?}: {answer:?}");
            continue;
        };
        assert_eq!(start.claimed_at, claims.now.max(permit.not_before));
        let row = attempts.iter().find(|row| row.id == permit.attempt);
        let latest = latest_start(start.claimed_at, permit.deadline);
        assert_eq!(row.unwrap().started_at, Some(latest));
        ahead += usize::from(permit.not_before > claims.now);
        started.push((permit, start.claimed_at));
    }
    // Sent as soon as they may: the rows have the same claims as the answers.
    let at_once = |(permit, _): &(&Permit, Timestamp)| SendReport {
        attempt: permit.attempt,
        number: permit.number,
        destination,
        sent_after: Duration::ZERO,
    };
    let sends: Vec<_> = started.iter().map(at_once).collect();
    world.store.report_sends(worker, &sends).await.unwrap();
    let attempts = world.attempts(destination).await;
    for (permit, claimed_at) in started {
        let row = attempts.iter().find(|row| row.id == permit.attempt);
        assert_eq!(row.unwrap().started_at, Some(claimed_at));
    }
    ahead
}

/// A permit that is delivered twice starts once.
pub async fn a_permit_starts_once(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world.start(worker, &[permit]).await;
    let other = world.worker().await;
    assert_eq!(refused(world, other, permit).await, [AttemptState::Started]);
    assert_eq!(
        refused(world, worker, permit).await,
        [AttemptState::Started]
    );
    // Twice in one batch as well.
    world.accept(destination, 1).await;
    let permit = world.admit(destination).await[0];
    let answers = world.claim(worker, &[permit, permit]).await.answers;
    let started = |answer: &&ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert_eq!(answers.iter().filter(started).count(), 1);
}

/// The same permit twice in one batch, before its slot: nothing has happened
/// that the second could be refused for.
pub async fn a_permit_that_is_early_twice_is_told_so_twice(world: &World) {
    let spaced = world.destination().per_second(2).shape(Shape::LeakyBucket);
    let destination = spaced.create().await;
    world.accept(destination, 1).await;
    let worker = world.worker().await;
    let first = world.admit(destination).await;
    world.start(worker, &first).await;
    // Again where a busy machine made the claim come when its slot was there.
    for _ in 0..20 {
        world.accept(destination, 1).await;
        // The next slot opens half a second after the start, and a run plans ahead.
        let early = loop {
            match world.admit(destination).await.first() {
                Some(permit) => break *permit,
                None => world.pass(Duration::from_millis(50)).await,
            }
        };
        let claims = world.claim(worker, &[early, early]).await;
        if claims.now + world.store.head_start() < early.not_before {
            let wait = ClaimAnswer::Early(early.not_before.since(claims.now));
            assert_eq!(claims.answers, [wait.clone(), wait]);
            assert_eq!(claims.wakes, []);
            return;
        }
    }
    // None came before its slot.
    stalled()
}

/// What still carries an old number is refused, and the row stays admitted
/// under the new one.
pub async fn a_stale_number_is_refused_and_touches_nothing(world: &World) {
    let (worker, destination, old) = one_permit(world).await;
    world.store.release_permits(&[old]).await.unwrap();
    let new = world.admit(destination).await[0];
    assert_eq!(new.attempt, old.attempt);
    assert_eq!(refused(world, worker, old).await, [AttemptState::Admitted]);
    assert_eq!(world.start(worker, &[new]).await.len(), 1);
}

/// A message that names another destination would send this one's payload there.
pub async fn a_permit_for_another_destination_is_refused(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    let other = world.destination().per_second(5).create().await;
    let forged = Permit {
        destination: other,
        ..permit
    };
    assert_eq!(refused(world, worker, forged).await, []);
    let claims = world.store.claim_batches(worker, &[forged]).await.unwrap();
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    assert_eq!(world.states(destination).await, [AttemptState::Admitted]);
    assert_eq!(world.start(worker, &[permit]).await.len(), 1);
}

/// Nor does it give the permit back.
pub async fn another_destinations_permit_is_not_released(world: &World) {
    let (_, destination, permit) = one_permit(world).await;
    let other = world.destination().per_second(5).create().await;
    let forged = Permit {
        destination: other,
        ..permit
    };
    assert_eq!(world.store.release_permits(&[forged]).await.unwrap(), []);
    assert_eq!(world.states(destination).await, [AttemptState::Admitted]);
}

/// Past its deadline nothing starts; the row waits again, and goes first.
pub async fn a_late_claim_goes_back_to_waiting(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world.accept(destination, 1).await;
    world
        .pass_until(permit.deadline + Duration::from_millis(1))
        .await;
    world.beat(worker).await;
    let claims = world.claim(worker, &[permit]).await;
    assert_eq!(claims.answers, [ClaimAnswer::Refused]);
    assert_eq!(claims.wakes, [Wake::now(destination)]);
    assert_eq!(world.states(destination).await, [AttemptState::Waiting; 2]);
    assert_eq!(world.admit(destination).await[0].attempt, permit.attempt);
}

/// A worker that never gave a sign of life.
pub async fn an_unknown_worker_is_refused(world: &World) {
    let (_, _, permit) = one_permit(world).await;
    let states = refused(world, WorkerId(world.id()), permit).await;
    assert_ne!(states, [AttemptState::Started]);
}

/// A worker without places has retired.
pub async fn a_retired_worker_is_refused(world: &World) {
    let (worker, _, permit) = one_permit(world).await;
    let retire = Heartbeat { worker, places: 0 };
    world.store.heartbeat(&retire).await.unwrap();
    let states = refused(world, worker, permit).await;
    assert_ne!(states, [AttemptState::Started]);
}

/// A heartbeat that comes too late does not revive its claims.
pub async fn a_lapsed_worker_is_refused_for_ever(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 2).await;
    let worker = world.worker().await;
    world
        .pass(HEARTBEAT_TIMEOUT + Duration::from_millis(100))
        .await;
    let permits = world.admit(destination).await;
    let states = refused(world, worker, permits[0]).await;
    assert_ne!(states[0], AttemptState::Started);
    world.beat(worker).await;
    let states = refused(world, worker, permits[1]).await;
    assert_ne!(states[1], AttemptState::Started);
}

/// A lapsed, retired or unknown worker acknowledges what it is refused, so
/// nobody would ever start it: the row waits again at once, and does not block
/// its place until the deadline.
pub async fn a_permit_that_its_worker_cannot_use_is_free(world: &World) {
    let (retired, _, _) = one_permit(world).await;
    let retire = Heartbeat {
        worker: retired,
        places: 0,
    };
    world.store.heartbeat(&retire).await.unwrap();
    for worker in [retired, WorkerId(world.id())] {
        let (alive, destination, permit) = one_permit(world).await;
        let claims = world.claim(worker, &[permit, permit]).await;
        assert_eq!(claims.answers, [ClaimAnswer::Refused, ClaimAnswer::Refused]);
        assert_eq!(claims.wakes, [Wake::now(destination)]);
        assert_eq!(world.states(destination).await, [AttemptState::Waiting]);
        let again = world.admit(destination).await;
        assert!(again[0].number > permit.number);
        // A number that is over moves nothing, whoever has it.
        assert_eq!(world.claim(worker, &[permit]).await.wakes, []);
        assert_eq!(world.start(alive, &again).await.len(), 1);
        assert_eq!(world.claim(worker, &again).await.wakes, []);
        assert_eq!(world.states(destination).await, [AttemptState::Started]);
    }
}

/// A pause is in force when it is committed.
pub async fn a_paused_destination_refuses_claims(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world
        .sql(&format!(
            "update destinations set state = 'paused' where id = '{destination}'"
        ))
        .await;
    assert_eq!(
        refused(world, worker, permit).await,
        [AttemptState::Waiting]
    );
}

/// Nothing of a deleted destination starts; what was admitted is cancelled.
pub async fn a_deleted_destination_refuses_claims(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert_eq!(
        refused(world, worker, permit).await,
        [AttemptState::Cancelled]
    );
}

/// A permit of the old URL is void; the attempt goes to the new one.
pub async fn a_changed_url_refuses_claims(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    let change = "update destinations set url = 'https://new.example/'";
    world
        .sql(&format!("{change} where id = '{destination}'"))
        .await;
    assert_eq!(
        refused(world, worker, permit).await,
        [AttemptState::Waiting]
    );
    let again = world.admit(destination).await;
    assert!(again[0].epoch > permit.epoch);
    assert_eq!(world.start(worker, &again).await.len(), 1);
}

/// Answers line up with what was asked, also across destinations.
pub async fn answers_are_in_the_order_of_the_permits(world: &World) {
    let (worker, _, first) = one_permit(world).await;
    let (_, _, second) = one_permit(world).await;
    let stale = Permit {
        number: PermitNumber(first.number.0 + 1_000),
        ..first
    };
    let answers = world.claim(worker, &[second, stale, first]).await.answers;
    assert!(
        matches!(answers[0], ClaimAnswer::Started(_)),
        "got {answers:?}"
    );
    assert_eq!(answers[1], ClaimAnswer::Refused);
    assert!(
        matches!(answers[2], ClaimAnswer::Started(_)),
        "got {answers:?}"
    );
    assert_eq!(world.claim(worker, &[]).await.answers, []);
}

/// A retry and a replay are of an event that may be old, and are claimed beside others.
pub async fn events_of_any_day_start_together(world: &World) {
    let destination = world.destination().create().await;
    let worker = world.worker().await;
    let ids = world.ids_of_three_days().await;
    let payload = |id: EventId| Bytes::from(format!("of {id}"));
    let event = |id| NewEvent {
        id,
        payload: payload(id),
        ..world.event(destination)
    };
    let accepted = world.store.accept_events(&ids.map(event)).await;
    assert_eq!(accepted.unwrap().len(), 3);
    let permits = world.admit(destination).await;
    world.pass_until(permits[2].not_before).await;
    let mut answers = world.claim(worker, &permits).await.answers;
    // What has started does not wait for long: the rest is asked for again.
    for (permit, answer) in permits.iter().zip(&mut answers) {
        while *answer == ClaimAnswer::Skipped {
            *answer = world.claim(worker, &[*permit]).await.answers.remove(0);
        }
    }
    let started = answers.iter().map(|answer| match answer {
        ClaimAnswer::Started(start) => (start.event, start.payload.clone()),
        other => panic!("expected a start, got {other:?}"),
    });
    let started: Vec<_> = started.collect();
    assert_eq!(started, ids.map(|id| (id, payload(id))));
}

/// Handed back unused: it waits, its place is free, and the next turn is its.
pub async fn a_released_permit_waits_again(world: &World) {
    let (_, destination, permit) = one_permit(world).await;
    world.accept(destination, 1).await;
    let wakes = world.store.release_permits(&[permit]).await.unwrap();
    assert_eq!(wakes, [Wake::now(destination)]);
    assert_eq!(world.backlog(destination).await, 2);
    let again = world.admit(destination).await;
    assert_eq!(again[0].attempt, permit.attempt);
    assert_eq!(again.len(), 2);
}

/// A second release, and one under an old number, do nothing.
pub async fn releasing_is_idempotent_and_by_number(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world.store.release_permits(&[permit]).await.unwrap();
    assert_eq!(world.store.release_permits(&[permit]).await.unwrap(), []);
    let again = world.admit(destination).await;
    assert_eq!(world.store.release_permits(&[permit]).await.unwrap(), []);
    world.start(worker, &again).await;
    assert_eq!(world.store.release_permits(&again).await.unwrap(), []);
    assert_eq!(world.states(destination).await, [AttemptState::Started]);
}

/// Admission leaves it alone; what has a permit may start, and the last word
/// holds.
pub async fn a_deferred_destination_is_not_admitted(world: &World) {
    let (worker, destination, permit) = one_permit(world).await;
    world.accept(destination, 1).await;
    let other = world.destination().per_second(5).create().await;
    world.accept(other, 1).await;
    defer(world, destination, Duration::from_secs(3_600)).await;
    assert_eq!(world.admit(destination).await, []);
    assert_eq!(
        world.admit(other).await.len(),
        1,
        "it is nobody else's affair"
    );
    let answers = world.claim(worker, &[permit]).await.answers;
    assert!(matches!(answers[0], ClaimAnswer::Started(_)), "{answers:?}");
    defer(world, destination, Duration::ZERO).await;
    assert_eq!(world.admit(destination).await.len(), 1);
    assert!(world.store.defer(&[]).await.is_ok());
}

async fn defer(world: &World, destination: DestinationId, lasts: Duration) {
    let deferral = Deferral { destination, lasts };
    world.store.defer(&[deferral]).await.unwrap();
}

/// URL and epoch together; what is gone is left out.
pub async fn targets_are_of_the_present_epoch(world: &World) {
    let (_, destination, permit) = one_permit(world).await;
    let gone = DestinationId(world.id());
    let targets = world.store.targets(&[gone, destination]).await.unwrap();
    assert_eq!(targets.len(), 1);
    assert_eq!(
        (targets[0].destination, targets[0].epoch),
        (destination, permit.epoch)
    );
    assert_eq!(targets[0].url, "https://receiver.example/hooks");
    assert!(targets[0].timeout > Duration::ZERO);
    let change = "update destinations set url = 'https://new.example/'";
    world
        .sql(&format!("{change} where id = '{destination}'"))
        .await;
    let targets = world.store.targets(&[destination]).await.unwrap();
    assert_eq!(targets[0].url, "https://new.example/");
    assert!(targets[0].epoch > permit.epoch);
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert_eq!(world.store.targets(&[destination]).await.unwrap(), []);
}
