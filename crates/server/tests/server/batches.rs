//! Batches: set over the API and the command line, and seen by a receiver that
//! checks the signature of every one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use adapters::sqlite::SqliteStore;
use http::StatusCode;
use serde_json::{Value, json};
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;

use crate::process::{Server, free_port, get_with_key, paceline, poll, post};
use crate::store::FakeStore;
use crate::world::{NOON, World};

fn world() -> World {
    let store = Arc::new(SqliteStore::in_memory(Arc::new(|| NOON)).unwrap());
    let fake = Arc::new(FakeStore::default());
    World::over(
        fake,
        (store.clone(), store.clone()),
        store.clone(),
        store,
        None,
    )
}

#[tokio::test]
async fn batches_are_set_shown_and_refused_by_field() {
    let world = world();
    let path = world.destination(json!({"unlimited": true})).await;
    let retries = format!("{path}/retries");
    let path = format!("{path}/batches");
    let none = json!({"max_events": null, "max_bytes": null, "max_wait_ms": null});
    assert_eq!(world.get(&path).await.json, none);
    let batches = json!({"max_events": 100, "max_bytes": 50000, "max_wait_ms": 250});
    let set = world.put(&path, &batches).await;
    assert_eq!((set.status.as_u16(), &set.json), (200, &batches));
    assert_eq!(world.get(&path).await.json, batches);
    for (field, body) in [
        ("max_events", json!({"max_events": 0})),
        ("max_events", json!({"max_events": 501})),
        (
            "max_bytes",
            json!({"max_events": 5, "max_bytes": 1_000_001}),
        ),
        (
            "max_wait_ms",
            json!({"max_events": 5, "max_wait_ms": 60_001}),
        ),
    ] {
        world.put(&path, body).await.refuses(422, field);
    }
    assert_eq!(world.get(&path).await.json, batches);
    // An event must not be too old before its batch is due.
    let age = json!({"max_age_ms": 250});
    world.put(&retries, age).await.refuses(422, "max_age_ms");
    assert_eq!(world.put(&path, json!({})).await.json, none, "all of them");
}

/// One request: its id, and its events.
type Batch = (String, Vec<Value>);

/// What one request carried.
fn ids(batch: &[Value]) -> Vec<String> {
    let ids = batch.iter().map(|event| event["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

/// Eight events in one request; one of them is refused, and nobody but it is
/// given up: halves find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_verifies_batches_and_one_bad_event_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let batches: Arc<Mutex<Vec<Batch>>> = Arc::default();
    let seen = Arc::clone(&batches);
    let observer = move |request: Observed<'_>| {
        let webhook = Webhook::new(secret).unwrap();
        if webhook.verify(request.body, request.headers).is_err() {
            return Some(StatusCode::UNAUTHORIZED.into());
        }
        let batch: Vec<Value> = serde_json::from_slice(request.body).unwrap();
        let bad = batch.iter().any(|event| event["data"]["order"] == json!(5));
        let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
        seen.lock().unwrap().push((id, batch));
        bad.then_some(StatusCode::UNPROCESSABLE_ENTITY.into())
    };
    let receiver = Receiver::start_observed(Behaviour::ACCEPT, 50, Some(Box::new(observer)));
    let receiver = receiver.await.unwrap();
    let port = free_port();
    let server = Server::start(folder, port);
    let url = format!("http://127.0.0.1:{port}");
    let body = json!({"url": receiver.url(0), "secret": secret, "unlimited": true});
    let answer = post(folder, port, "/v1/destinations", &body.to_string());
    let created: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let id = created["id"].as_str().unwrap();
    let set = paceline(folder)
        .args(["destination", "batches", id, "--max-events", "8"])
        .args(["--max-wait", "30s", "--url", &url])
        .output()
        .unwrap();
    let said = String::from_utf8(set.stdout).unwrap();
    assert!(said.starts_with("up to 8 events"), "{said}");

    let events: Vec<Value> = (1..=8)
        .map(|order| json!({"destination_id": id, "payload": {"order": order}}))
        .collect();
    let sent = post(
        folder,
        port,
        "/v1/events/batch",
        &json!({"events": events}).to_string(),
    );
    assert!(sent.starts_with("HTTP/1.1 2"), "{sent}");
    let dead = poll("one dead letter, and seven deliveries", || {
        let path = format!("/v1/destinations/{id}/attempts?limit=100");
        let answer = get_with_key(folder, port, &path)?;
        let page: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
        let attempts = page["attempts"].as_array()?.clone();
        let done = attempts.iter().filter(|one| one["state"] == "succeeded");
        let mut dead = attempts.iter().filter(|one| one["dead_letter"] == true);
        (done.count() == 7).then(|| dead.next().cloned()).flatten()
    });
    let batches = batches.lock().unwrap().clone();
    let sizes: Vec<usize> = batches.iter().map(|(_, batch)| batch.len()).collect();
    assert_eq!(sizes[0], 8, "{sizes:?}");
    assert_eq!(sizes.len(), 7, "8, 4 and 4, 2 and 2, 1 and 1: {sizes:?}");
    let (_, last) = (batches.iter())
        .find(|(_, batch)| ids(batch) == [dead["event_id"].as_str().unwrap()])
        .unwrap();
    assert_eq!(last[0]["data"], json!({"order": 5}));
    assert_eq!(last[0]["content_type"], "application/json");
    let known: BTreeSet<&String> = batches.iter().map(|(id, _)| id).collect();
    assert_eq!(known.len(), batches.len(), "an id for each set of events");
    assert!(known.iter().all(|id| id.starts_with("batch_")));
    assert_eq!(server.stop(), Some(0));
}
