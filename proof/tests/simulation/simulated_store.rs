//! What strikes the store of a world from outside: its clock, rows that somebody holds,
//! a server that forgets what it had not flushed, a transaction that commits late.
use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, Idempotency, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{
    Acceptance, Catalog as _, ClaimAnswer, DEFAULT_TENANT, DestinationChange, HEARTBEAT_TIMEOUT,
    Heartbeat, MAX_HEAD_START, NewDestination, ReapRules, Run, RunResult, SendReport, Store as _,
    StoreError,
};
use simulation::SimulatedStore;
use simulation::model::ClockStep;
use uuid::Uuid;

const BEGAN: Timestamp = Timestamp::from_millis(1_795_000_000_000);
const DESTINATION: DestinationId = DestinationId(Uuid::from_u128(0xd));
const WORKER: WorkerId = WorkerId(Uuid::from_u128(0x3));
const SECOND: Duration = Duration::from_secs(1);

/// A store with one destination of so many starts a second, and a worker.
async fn store(per_second: u32) -> SimulatedStore {
    store_with(per_second, Duration::ZERO).await
}

async fn store_with(per_second: u32, head_start: Duration) -> SimulatedStore {
    let store = SimulatedStore::new(BEGAN, head_start).unwrap();
    let new = NewDestination {
        external_id: None,
        id: DESTINATION,
        name: String::new(),
        url: "https://receiver.example/".to_owned(),
        event_types: Vec::new(),
        filter: None,
        limits: limits(per_second),
        pass_traceparent: false,
        handshake: Handshake::None,
        limit_group: None,
    };
    let created = store.shipped().create_destination(DEFAULT_TENANT, &new);
    created.await.unwrap();
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
        ..LimitSettings::EXACT
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
        timing: Timing::default(),
    };
    ids.map(event).collect()
}

async fn accept(store: &SimulatedStore, ids: std::ops::Range<u128>) {
    store.accept_events(&events(ids)).await.unwrap();
}

async fn run(store: &SimulatedStore) -> RunResult {
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

async fn admit(store: &SimulatedStore) -> Vec<Permit> {
    match run(store).await {
        RunResult::Decided { permits, .. } => permits,
        other => panic!("expected a decision, got {other:?}"),
    }
}

async fn claim(store: &SimulatedStore, permits: &[Permit]) -> Vec<ClaimAnswer> {
    store.claim_starts(WORKER, permits).await.unwrap().answers
}

/// Its ids were given before those of what was seen first, and its keys are held.
#[tokio::test(start_paused = true)]
async fn what_is_committed_late_is_seen_then_under_older_ids() {
    let store = store(10).await;
    let mut late = events(1..2);
    late[0].idempotency = Some(Idempotency {
        key: "late".to_owned(),
        digest: [0; 32],
        kept_for: SECOND * 1_000,
    });
    let unseen = store.accept_unseen(&late).unwrap();
    assert!(store.accept_unseen(&late).is_none(), "its key is held");
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
    assert_eq!(admit(&store).await[0].attempt, attempts[0]);
    let again = store.accept_events(&late).await.unwrap();
    assert!(matches!(again[..], [Acceptance::Repeated { .. }]));
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
    let catalog = store.shipped();
    let changed = catalog.change_destination(DEFAULT_TENANT, DESTINATION, &change);
    changed.await.unwrap();
    let cut = catalog.limit_history(DESTINATION).await.unwrap()[1].in_force_from;
    let sql = "select count(*) from attempts where claimed_at < ?1";
    let before = store
        .connection()
        .query_row(sql, [cut.as_micros()], |row| row.get::<_, u32>(0));
    assert_eq!(before.unwrap(), 2);
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

/// What somebody holds a reap goes past, and past nothing else.
#[tokio::test(start_paused = true)]
async fn a_reap_goes_past_permits_that_somebody_holds() {
    let store = store(2).await;
    accept(&store, 0..2).await;
    let permits = admit(&store).await;
    store.step_clock(ClockStep::Forward(60 * SECOND));
    let rules = ReapRules {
        heartbeat_timeout: HEARTBEAT_TIMEOUT,
        start_timeout: SECOND * 30,
        permit_grace: Duration::ZERO,
        everything: true,
    };
    let reaped = async || store.reap(&rules, 10).await.unwrap();
    store.lock_destination(DESTINATION);
    assert_eq!(reaped().await.expired_permits, 0);
    let other = DestinationId(Uuid::from_u128(0xe));
    store.lock_destination(other);
    store.unlock_destination(DESTINATION);
    assert_eq!(reaped().await.expired_permits, 2);
    let [late, _] = &permits[..] else {
        panic!("expected two permits, got {permits:?}")
    };
    assert_eq!(
        claim(&store, std::slice::from_ref(late)).await,
        [ClaimAnswer::Refused]
    );
}

/// A start is dated ahead, and a change is dated after it: until then nobody plans by
/// the new limits.
#[tokio::test(start_paused = true)]
async fn nothing_is_admitted_while_a_change_waits_for_starts_that_lie_ahead() {
    let store = store_with(1, MAX_HEAD_START).await;
    accept(&store, 0..3).await;
    let permits = admit(&store).await;
    claim(&store, &permits).await;
    // Sent at once: until that is known it may have been half a second later.
    let sent = SendReport {
        attempt: permits[0].attempt,
        number: permits[0].number,
        destination: DESTINATION,
        sent_after: Duration::ZERO,
    };
    store.report_sends(WORKER, &[sent]).await.unwrap();
    tokio::time::advance(SECOND - MAX_HEAD_START).await;
    let permits = admit(&store).await;
    let answers = claim(&store, &permits).await;
    let [ClaimAnswer::Started(start)] = &answers[..] else {
        panic!("expected a start, got {answers:?}")
    };
    assert!(start.claimed_at > store.now());
    let change = DestinationChange {
        limits: Some(limits(5)),
        ..DestinationChange::default()
    };
    let changed = (store.shipped()).change_destination(DEFAULT_TENANT, DESTINATION, &change);
    changed.await.unwrap();
    let history = store.shipped().limit_history(DESTINATION).await.unwrap();
    assert!(history[1].in_force_from > start.claimed_at);
    assert!(matches!(run(&store).await, RunResult::Skipped));
    tokio::time::advance(MAX_HEAD_START).await;
    assert!(matches!(run(&store).await, RunResult::Decided { .. }));
}
