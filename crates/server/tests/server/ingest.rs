//! Ingest over HTTP: repeated requests, and bodies that are too large.

use axum::body::Body;
use domain::event::MAX_PAYLOAD_BYTES;
use http::Request;
use serde_json::{Value, json};

use crate::world::{Answer, KEY, World};

async fn post(world: &World, path: &str, keys: &[&str], body: &Value) -> Answer {
    let mut request = Request::post(path)
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json");
    for key in keys {
        request = request.header("idempotency-key", *key);
    }
    let request = request.body(Body::from(body.to_string())).unwrap();
    world.request(request).await
}

#[tokio::test]
async fn a_repeated_request_is_the_same_event() {
    let world = World::new();
    world.destination(json!({"event_types": ["*"]})).await;
    let body = json!({"type": "order.paid", "payload": {"n": 1}});
    let first = post(&world, "/v1/events", &["order-1"], &body).await;
    assert_eq!(first.status, 202);
    let again = post(&world, "/v1/events", &["order-1"], &body).await;
    assert_eq!((again.status, &again.json), (first.status, &first.json));
    // The field is the same as the header.
    let mut with_field = body.clone();
    with_field["idempotency_key"] = "order-1".into();
    for keys in [&[][..], &["order-1"][..]] {
        let again = post(&world, "/v1/events", keys, &with_field).await;
        assert_eq!(again.json, first.json);
    }
    let without = post(&world, "/v1/events", &[], &body).await;
    assert_ne!(without.json["id"], first.json["id"]);
    assert_eq!(world.store.state().events.len(), 2);
}

#[tokio::test]
async fn a_key_for_another_request_is_a_conflict() {
    let world = World::new();
    let body = json!({"type": "order.paid", "payload": {"n": 1}});
    post(&world, "/v1/events", &["order-1"], &body).await;
    for other in [
        json!({"type": "order.paid", "payload": {"n": 2}}),
        json!({"type": "order.sent", "payload": {"n": 1}}),
    ] {
        let refused = post(&world, "/v1/events", &["order-1"], &other).await;
        refused.refuses(409, "idempotency_key");
        let kind = "urn:paceline:problem:idempotency-key-reused";
        assert_eq!(refused.json["type"], kind);
    }
    assert_eq!(world.store.state().events.len(), 1);
}

#[tokio::test]
async fn each_event_of_a_batch_has_a_key_of_its_own() {
    let world = World::new();
    let event = |key: &str, n: u32| json!({"type": "a", "payload": n, "idempotency_key": key});
    let batch = json!({"events": [event("a", 1), event("b", 2), event("a", 1), event("a", 3)]});
    let answer = post(&world, "/v1/events/batch", &[], &batch).await;
    let results = &answer.json["results"];
    assert_eq!(results[0]["id"], results[2]["id"]);
    assert_ne!(results[0]["id"], results[1]["id"]);
    assert_eq!(results[3]["problem"]["status"], 409);
    let refused = post(&world, "/v1/events/batch", &["a"], &batch).await;
    refused.refuses(422, "Idempotency-Key");
}

#[tokio::test]
async fn a_wrong_key_is_named() {
    let world = World::new();
    let body = json!({"type": "a", "payload": 1});
    let long = "k".repeat(256);
    for (keys, field) in [
        (&["a b"][..], "idempotency_key"),
        (&[""], "idempotency_key"),
        (&[long.as_str()], "idempotency_key"),
        (&["a", "a"], "Idempotency-Key"),
        (&["é"], "Idempotency-Key"),
    ] {
        let refused = post(&world, "/v1/events", keys, &body).await;
        refused.refuses(422, field);
    }
    let two = json!({"type": "a", "payload": 1, "idempotency_key": "b"});
    let refused = post(&world, "/v1/events", &["a"], &two).await;
    refused.refuses(422, "idempotency_key");
    assert!(world.store.state().events.is_empty());
}

#[tokio::test]
async fn a_payload_over_the_cap_is_refused_by_its_size() {
    let world = World::new();
    let payload = "x".repeat(MAX_PAYLOAD_BYTES - 1);
    let refused = world
        .post("/v1/events", json!({"type": "a", "payload": payload}))
        .await;
    refused.refuses(413, "payload");
    assert!(
        refused.json["detail"].as_str().unwrap().contains("262144"),
        "{}",
        refused.json
    );
    let fits = "x".repeat(MAX_PAYLOAD_BYTES - 2);
    let taken = world
        .post("/v1/events", json!({"type": "a", "payload": fits}))
        .await;
    assert_eq!(taken.status, 202);
}
