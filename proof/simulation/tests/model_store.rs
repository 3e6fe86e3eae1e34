//! What the model of the store has beside the ports: for the simulation.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, Idempotency, NewEvent};
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Catalog, ClaimAnswer, DEFAULT_TENANT, DestinationChange, Heartbeat, NewDestination,
    NextTry, Outcome, Run, RunResult, Store, StoreError, Sweep,
};
use simulation::model::{ClockStep, ModelStore};
use uuid::Uuid;

const BEGAN: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const DESTINATION: DestinationId = DestinationId(Uuid::from_u128(0xd));
const WORKER: WorkerId = WorkerId(Uuid::from_u128(0x3));
const SECOND: Duration = Duration::from_secs(1);

/// A store with one destination of so many starts a second, and a worker.
async fn store(per_second: u32) -> Arc<ModelStore> {
    let store = Arc::new(ModelStore::new(BEGAN));
    let new = NewDestination {
        id: DESTINATION,
        name: String::new(),
        url: "https://receiver.example/".to_owned(),
        event_types: Vec::new(),
        limits: limits(per_second),
        pass_traceparent: false,
    };
    let created = store.create_destination(DEFAULT_TENANT, &new).await;
    created.unwrap();
    let heartbeat = Heartbeat {
        worker: WORKER,
        places: 9,
    };
    store.heartbeat(&heartbeat).await.unwrap();
    store
}

fn limits(per_second: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(per_second),
        ..LimitSettings::default()
    }
}

fn events(ids: std::ops::Range<u128>) -> Vec<NewEvent> {
    let event = |id| NewEvent {
        id: EventId(Uuid::from_u128(id)),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(DESTINATION),
        event_type: None,
        content_type: "text/plain".to_owned(),
        payload: Bytes::new(),
        idempotency: None,
        trace: None,
    };
    ids.map(event).collect()
}

async fn accept(store: &ModelStore, ids: std::ops::Range<u128>) {
    store.accept_events(&events(ids)).await.unwrap();
}

async fn run(store: &ModelStore) -> RunResult {
    let run = Run {
        destination: DESTINATION,
        republish: false,
    };
    store
        .admit(&[run], &Room::of(100))
        .await
        .unwrap()
        .results
        .remove(0)
}

async fn admit(store: &ModelStore) -> Vec<Permit> {
    match run(store).await {
        RunResult::Decided { permits, .. } => permits,
        other => panic!("expected a decision, got {other:?}"),
    }
}

async fn claim(store: &ModelStore, permits: &[Permit]) -> Vec<ClaimAnswer> {
    store.claim_starts(WORKER, permits).await.unwrap().answers
}

async fn finish(store: &ModelStore, permit: &Permit, next: NextTry) {
    let kind = match next {
        NextTry::None => OutcomeKind::Succeeded,
        _ => OutcomeKind::Failed,
    };
    let outcome = Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind,
        elapsed: SECOND,
        status: None,
        error: None,
        response_body: Bytes::new(),
        next,
        signal: domain::health::Signal::default(),
        speaks: engine::ports::Speaks::ForRequest,
    };
    store.record_outcomes(WORKER, &[outcome]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn admission_goes_back_to_what_was_committed_late_when_a_sweep_has_found_it() {
    let store = store(10).await;
    let mut late = events(1..2);
    late[0].idempotency = Some(Idempotency {
        key: "late".to_owned(),
        digest: [0; 32],
        kept_for: SECOND * 1_000,
    });
    let unseen = store.accept_unseen(&late).unwrap();
    accept(&store, 2..3).await;
    let [younger] = admit(&store).await[..] else {
        panic!("what is not committed is not seen")
    };
    let again = store.accept_events(&late).await;
    assert!(
        matches!(again, Err(StoreError::Unavailable(_))),
        "{again:?}"
    );

    tokio::time::advance(SECOND * 31).await;
    let attempts = store.commit_unseen(unseen);
    assert!(attempts[0] < younger.attempt);
    assert_eq!(admit(&store).await, [], "admission had gone past it");
    let sweep = Sweep {
        after: None,
        limit: 10,
        overdue: SECOND * 1_000,
        everything: false,
        only_marks: false,
    };
    let page = store.sweep(&sweep).await.unwrap();
    assert_eq!((page.late, page.wakes.len()), (1, 1));
    assert_eq!(admit(&store).await[0].attempt, attempts[0]);
    assert_eq!(store.sweep(&sweep).await.unwrap().late, 0);
    let again = store.accept_events(&late).await.unwrap();
    assert!(matches!(again[..], [Acceptance::Repeated { .. }]));
}

#[tokio::test(start_paused = true)]
async fn what_is_over_is_forgotten_event_by_event() {
    let store = store(3).await;
    accept(&store, 0..3).await;
    let permits = admit(&store).await;
    claim(&store, &permits).await;
    finish(&store, &permits[0], NextTry::None).await;
    finish(&store, &permits[1], NextTry::RetryAfter(60 * SECOND)).await;
    // The third is in flight, the second waits for its retry.
    assert_eq!(store.forget_finished(store.now()), 0);
    tokio::time::advance(3 * SECOND).await;
    assert_eq!(store.forget_finished(store.now()), 1);
    store.read(|rows| {
        assert_eq!(rows.events().count(), 2);
        let tries: Vec<_> = rows.attempts().map(|row| row.try_number).collect();
        assert_eq!(tries, [1, 1, 2]);
        assert_eq!(rows.starts_of(DESTINATION, BEGAN).count(), 2);
        assert_eq!(
            (rows.in_flight(DESTINATION), rows.waiting(DESTINATION)),
            (1, 1)
        );
    });
    // A late or doubled message about what is forgotten does no harm.
    finish(&store, &permits[0], NextTry::None).await;
    assert_eq!(claim(&store, &permits[..1]).await, [ClaimAnswer::Refused]);
}

#[tokio::test(start_paused = true)]
async fn a_locked_destination_is_skipped_and_not_lost() {
    let store = store(2).await;
    accept(&store, 0..4).await;
    let permits = admit(&store).await;
    store.lock_destination(DESTINATION);
    assert!(matches!(run(&store).await, RunResult::Skipped));
    assert_eq!(
        claim(&store, &permits).await,
        [const { ClaimAnswer::Skipped }; 2]
    );
    assert_eq!(store.release_permits(&permits).await.unwrap(), []);
    store.unlock_destination(DESTINATION);
    let answers = claim(&store, &permits).await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, ClaimAnswer::Started(_)))
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_starts_while_it_is_held() {
    let store = store(1).await;
    accept(&store, 0..2).await;
    let permits = admit(&store).await;
    let until = store.now() + 10 * SECOND;
    store.hold(DESTINATION, until);
    store.hold(DESTINATION, until - 5 * SECOND);
    assert_eq!(claim(&store, &permits).await, [ClaimAnswer::Refused]);
    let again = admit(&store).await;
    assert!(
        again.iter().all(|permit| permit.not_before >= until),
        "{again:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_change_of_state_is_noted_once() {
    let store = store(1).await;
    accept(&store, 0..1).await;
    store.note_transitions();
    let permits = admit(&store).await;
    claim(&store, &permits).await;
    finish(&store, &permits[0], NextTry::RetryAfter(SECOND)).await;
    let noted = store.take_transitions();
    let seen: Vec<_> = noted.iter().map(|one| (one.from, one.to)).collect();
    let [waiting, admitted, started] = [
        AttemptState::Waiting,
        AttemptState::Admitted,
        AttemptState::Started,
    ];
    let expected = [
        (Some(waiting), admitted),
        (Some(admitted), started),
        (Some(started), AttemptState::Failed),
        (None, waiting),
    ];
    assert_eq!(seen, expected);
    assert!(noted.iter().is_sorted_by_key(|one| one.at));
    assert_eq!(store.take_transitions(), []);
}

#[tokio::test(start_paused = true)]
async fn the_clock_goes_with_the_runtime_and_can_be_set() {
    let store = store(1).await;
    let before = store.now();
    tokio::time::advance(SECOND).await;
    assert_eq!(store.now(), before + SECOND);
    store.step_clock(ClockStep::Forward(60 * SECOND));
    assert_eq!(store.now(), before + 61 * SECOND);
    store.step_clock(ClockStep::Backward(120 * SECOND));
    assert_eq!(store.now(), before - 59 * SECOND);
}

/// Virtual time stands still, and yet a start comes before the cut that
/// follows it: the judge would take it for one under the new limit.
#[tokio::test(start_paused = true)]
async fn no_two_steps_have_the_same_time() {
    let store = store(2).await;
    accept(&store, 0..2).await;
    let permits = admit(&store).await;
    claim(&store, &permits).await;
    let change = DestinationChange {
        limits: Some(limits(0)),
        ..DestinationChange::default()
    };
    let changed = store.change_destination(DEFAULT_TENANT, DESTINATION, &change);
    changed.await.unwrap();
    store.read(|rows| {
        let cut = rows.in_force(DESTINATION)[1].from;
        assert!(rows.starts_of(DESTINATION, BEGAN).all(|(at, _)| at < cut));
    });
}

/// A store that crashes forgets what no commit has flushed. The number is given
/// again, and the message from before the crash starts nothing beside it.
#[tokio::test(start_paused = true)]
async fn a_forgotten_admission_cannot_start_beside_the_next() {
    let store = store(2).await;
    accept(&store, 1..4).await;
    let before = admit(&store).await;
    assert_eq!(store.forget_unflushed(), 2);
    let answers = store.claim_starts(WORKER, &before).await.unwrap().answers;
    assert_eq!(answers, [ClaimAnswer::Refused, ClaimAnswer::Refused]);

    store.step_clock(ClockStep::Forward(SECOND));
    let after = admit(&store).await;
    let named = |permits: &[Permit]| -> Vec<_> {
        let names = permits.iter().map(|permit| (permit.attempt, permit.number));
        names.collect()
    };
    assert_eq!(named(&before), named(&after), "the trap: the same names");
    assert!(before[0].not_before < after[0].not_before);
    let mut both = before.clone();
    both.extend(&after);
    let answers = store.claim_starts(WORKER, &both).await.unwrap().answers;
    let started = |answer: &&ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert_eq!(answers.iter().filter(started).count(), 2);
}

/// A start waits for the disk, and what waits for the disk flushes all before.
#[tokio::test(start_paused = true)]
async fn a_claim_keeps_its_admission() {
    let store = store(2).await;
    accept(&store, 1..4).await;
    let permits = admit(&store).await;
    store.claim_starts(WORKER, &permits[..1]).await.unwrap();
    assert_eq!(store.forget_unflushed(), 0);
    let answers = store.claim_starts(WORKER, &permits[1..]).await.unwrap();
    assert!(matches!(answers.answers[..], [ClaimAnswer::Started(_)]));
}
