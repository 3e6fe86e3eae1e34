//! What is shown of an attempt's request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapters::sqlite::SqliteStore;
use bytes::Bytes;
use domain::attempt::OutcomeKind;
use domain::attempt::outcome::{NextTry, Outcome, Speaks};
use domain::health::Signal;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::response_headers::ResponseHeaders;
use domain::share::Room;
use domain::time::Timestamp;
use engine::ports::{ClaimAnswer, Heartbeat, Run, RunResult, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::store::FakeStore;
use crate::world::{NOON, World};

const WORKER: WorkerId = WorkerId(Uuid::from_u128(7));

/// The permits of a run, once they may be claimed.
async fn permits(store: &SqliteStore, now: &Mutex<Timestamp>, path: &str) -> Vec<Permit> {
    let id = path.rsplit('/').next().unwrap();
    let run = Run {
        destination: DestinationId(id.parse().unwrap()),
        republish: false,
    };
    let beat = Heartbeat {
        worker: WORKER,
        places: 10,
    };
    store.heartbeat(&beat).await.unwrap();
    let mut admitted = store.admit(&[run], &Room::of(10)).await.unwrap();
    let RunResult::Decided { permits, .. } = admitted.results.remove(0) else {
        panic!("it is there, and nobody has it");
    };
    let last = permits.iter().map(|permit| permit.not_before).max();
    *now.lock().unwrap() = last.unwrap();
    permits
}

fn not_sent(permit: &Permit) -> Outcome {
    Outcome {
        attempt: permit.attempt,
        number: permit.number,
        destination: permit.destination,
        kind: OutcomeKind::NotSent,
        sent_after: Duration::from_millis(600),
        elapsed: Duration::ZERO,
        status: None,
        error: None,
        response_body: Bytes::new(),
        response_headers: ResponseHeaders::default(),
        next: NextTry::Again,
        signal: Signal::default(),
        speaks: Speaks::ForRequest,
        may_arrive: false,
    }
}

/// Not before it may have left, and not at all where it was found too late to be sent; of
/// one whose receiver was not reached the error says so.
#[tokio::test]
async fn a_request_is_shown_where_it_may_have_been_sent() {
    let now = Arc::new(Mutex::new(NOON));
    let clock = Arc::clone(&now);
    let store = SqliteStore::in_memory(Arc::new(move || *clock.lock().unwrap()));
    let store = Arc::new(store.unwrap());
    let world = World::over(
        Arc::new(FakeStore::default()),
        (store.clone(), store.clone()),
        store.clone(),
        store.clone(),
        Some(store.clone()),
    );
    let path = world
        .destination(json!({"limits": {"per_second": 10}}))
        .await;
    let event = json!({"destination_id": path.rsplit('/').next(), "payload": 1});
    for _ in 0..2 {
        let sent = world.post("/v1/events", &event).await;
        assert_eq!(sent.status, 202, "{}", sent.json);
    }
    let permits = permits(&store, &now, &path).await;
    let [sent, late] = permits[..] else {
        panic!("one of each: {permits:?}");
    };
    let claims = store.claim_starts(WORKER, &permits).await.unwrap();
    let started = |answer: &ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert!(claims.answers.iter().all(started), "{:?}", claims.answers);
    let shown = async |permit: &Permit| {
        let path = format!("/v1/attempts/{}", permit.attempt.0);
        let shown = world.get(&path).await.json;
        let state = shown["attempt"]["state"].as_str().unwrap().to_owned();
        (state, shown["request"] != Value::Null)
    };
    let is = |state: &str, shown| (state.to_owned(), shown);
    assert_eq!(shown(&sent).await, is("started", false), "it was claimed");
    *now.lock().unwrap() = claims.now + Duration::from_secs(1);
    assert_eq!(shown(&sent).await, is("started", true));
    let unreached = Outcome {
        kind: OutcomeKind::Failed,
        error: Some("its name was not found".into()),
        next: NextTry::DeadLetter,
        ..not_sent(&sent)
    };
    let outcomes = [not_sent(&late), unreached];
    store.record_outcomes(WORKER, &outcomes).await.unwrap();
    assert_eq!(shown(&late).await, is("not_sent", false));
    assert_eq!(shown(&sent).await, is("failed", true));
    let path = format!("/v1/attempts/{}", sent.attempt.0);
    let why = world.get(&path).await.json["attempt"]["error"].clone();
    assert_eq!(why, "its name was not found");
}
