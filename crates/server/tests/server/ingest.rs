//! Ingest over HTTP: repeated requests, bodies that are too large, and clients
//! that are told to wait.

use std::sync::Arc;

use adapters::sqlite::SqliteStore;
use axum::body::Body;
use domain::event::{MAX_DESTINATIONS, MAX_PAYLOAD_BYTES};
use http::Request;
use serde_json::{Value, json};

use crate::store::FakeStore;
use crate::world::{Answer, KEY, NOON, World};

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

/// Told before it is accepted, to those who ask for it.
#[tokio::test]
async fn a_strict_event_for_nobody_is_refused_by_its_type() {
    let world = World::new();
    world
        .destination(json!({"event_types": ["order.paid"]}))
        .await;
    let strict = |event_type: &str| json!({"type": event_type, "payload": 1, "strict": true});
    let refused = world.post("/v1/events", strict("order.payd")).await;
    refused.refuses(422, "type");
    assert_eq!(
        refused.json["detail"],
        "no destination subscribes to order.payd, or its filter does not take this; nothing was written"
    );
    assert!(world.store.state().events.is_empty());
    assert_eq!(
        world.post("/v1/events", strict("order.paid")).await.status,
        202
    );

    let both = json!({"events": [strict("order.payd"), {"type": "order.payd", "payload": 1}]});
    let answer = world.post("/v1/events/batch", both).await.json;
    assert_eq!(answer["results"][0]["problem"]["field"], "type");
    assert_eq!(answer["results"][1]["destinations"], json!([]));
}

/// A body that is just small enough is not refused again for its payload.
#[tokio::test]
async fn a_body_over_its_cap_is_told_both_bounds() {
    let world = World::new();
    let payload = "x".repeat(1_000_000);
    let refused = world
        .post("/v1/events", json!({"type": "a", "payload": payload}))
        .await;
    refused.refuses(413, "body");
    assert_eq!(
        refused.json["detail"],
        "must be at most 524288 bytes, and the payload at most 262144"
    );
}

/// A tenant's key for ingest, and what one request of it is answered.
struct Ingesting {
    key: String,
}

impl Ingesting {
    async fn new(world: &World, tenant: Value) -> Self {
        let created = world.post("/v1/tenants", tenant).await;
        assert_eq!(created.status, 201, "{}", created.json);
        let keys = format!("/v1/tenants/{}/keys", created.json["id"].as_str().unwrap());
        let key = world
            .post(&keys, json!({"name": "", "scopes": ["ingest"]}))
            .await;
        assert_eq!(key.status, 201, "{}", key.json);
        let key = key.json["key"].as_str().unwrap().to_owned();
        Self { key }
    }

    fn request(&self, path: &str, content_type: &str, body: String) -> Request<Body> {
        let request = Request::post(path)
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", content_type);
        request.body(Body::from(body)).unwrap()
    }

    async fn post(&self, world: &World, path: &str, body: &Value) -> Answer {
        let request = self.request(path, "application/json", body.to_string());
        world.request(request).await
    }
}

fn events(count: usize) -> Value {
    json!({"events": vec![json!({"type": "order.paid", "payload": 1}); count]})
}

/// By the event: the others of a batch, and other destinations, are not
/// refused; and nothing of a refused event is written.
#[tokio::test]
async fn a_destination_whose_backlog_is_full_refuses() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let full = path.rsplit('/').next().unwrap().to_owned();
    let path = world.destination(json!({"event_types": ["*"]})).await;
    let other = path.rsplit('/').next().unwrap().to_owned();
    let to = |destination: &str| json!({"destination_id": destination, "payload": 1});
    let batch = json!({"events": vec![to(&full); 100]});
    let taken = post(&world, "/v1/events/batch", &[], &batch).await;
    assert_eq!(
        taken.status, 202,
        "what is known before a batch decides on it"
    );
    let refused = post(&world, "/v1/events", &[], &to(&full)).await;
    assert_eq!(refused.status, 429, "{}", refused.json);
    assert_eq!(refused.content_type, "application/problem+json");
    assert_eq!(refused.json["type"], "urn:paceline:problem:backlog-full");
    assert_eq!(refused.json["retry_after_seconds"], 10);
    assert_eq!(refused.headers["retry-after"], "10");
    let mixed = json!({"events": [to(&full), to(&other), {"type": "a", "payload": 1}]});
    let answers = post(&world, "/v1/events/batch", &[], &mixed).await;
    let answers = answers.json["results"].as_array().unwrap().clone();
    assert_eq!(answers[0]["problem"]["status"], 429, "{answers:?}");
    assert_eq!(answers[1]["destinations"], json!([other]));
    assert_eq!(answers[2]["destinations"], json!([other]));
    assert_eq!(world.store.state().events.len(), 102);
}

/// In both spellings, whatever was asked for.
#[tokio::test]
async fn every_answer_says_how_fast_its_tenant_may_be() {
    let world = World::new();
    let quick = Ingesting::new(&world, json!({"name": "quick", "ingest_per_second": 900})).await;
    let taken = quick.post(&world, "/v1/events/batch", &events(300)).await;
    assert_eq!(taken.status, 202, "{}", taken.json);
    assert_eq!(taken.headers["ratelimit-policy"], "\"ingest\";q=900;w=1");
    assert_eq!(taken.headers["x-ratelimit-limit"], "900");
    let left: u32 = taken.headers["x-ratelimit-remaining"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((600..=900).contains(&left), "{left}");
    let told = taken.headers["ratelimit"].to_str().unwrap();
    assert!(
        told.starts_with(&format!("\"ingest\";r={left};t=")),
        "{told}"
    );
    assert!(taken.headers.contains_key("x-ratelimit-reset"));
    let forbidden = quick.request("/v1/tiers/free", "application/json", "{}".to_owned());
    let unrouted = world.request(forbidden).await;
    assert_eq!(unrouted.status, 405);
    let seen = world.get("/v1/destinations").await;
    assert_eq!(seen.headers["x-ratelimit-limit"], "50000", "the usual one");
}

/// What it costs is known once it is written, and waited for afterwards. One more
/// destination than an event may go to is refused, in words.
#[tokio::test]
async fn an_event_counts_for_each_destination_that_it_goes_to() {
    let world = World::new();
    world.destination(json!({"event_types": ["*"]})).await;
    let one = world.store.state().destinations[0].clone();
    let others = vec![one.clone(); MAX_DESTINATIONS - 1];
    world.store.state().destinations.extend(others);
    let slow = Ingesting::new(&world, json!({"name": "slow", "ingest_per_second": 100})).await;
    let event = json!({"type": "order.paid", "payload": 1});
    let taken = slow.post(&world, "/v1/events", &event).await;
    assert_eq!(taken.status, 202, "{}", taken.json);
    let second = slow.post(&world, "/v1/events", &event).await;
    assert_eq!(second.status, 429, "{}", second.json);
    let wait = second.json["retry_after_seconds"].as_u64().unwrap();
    assert!(
        (7..=10).contains(&wait),
        "{wait}: 900 more than it may at 100 a second"
    );
    world.store.state().destinations.push(one);
    let refused = post(&world, "/v1/events", &[], &event).await;
    refused.refuses(422, "type");
    let detail = refused.json["detail"].as_str().unwrap();
    assert!(detail.contains("1000 destinations"), "{detail}");
}

/// Once it is known to how many a tenant's events go, they are charged for that before
/// they are written: requests that come together do not all pass.
#[tokio::test]
async fn an_event_is_charged_by_what_is_expected_of_it() {
    let world = World::new();
    world.destination(json!({"event_types": ["*"]})).await;
    let one = world.store.state().destinations[0].clone();
    let others = vec![one; MAX_DESTINATIONS - 1];
    world.store.state().destinations.extend(others);
    let tenant = json!({"name": "wide", "ingest_per_second": 1_100});
    let wide = Ingesting::new(&world, tenant).await;
    let event = json!({"type": "order.paid", "payload": 1});
    let post = || wide.post(&world, "/v1/events", &event);
    assert_eq!(post().await.status, 202);
    let (a, b, c, d) = tokio::join!(post(), post(), post(), post());
    let mut statuses = [a.status, b.status, c.status, d.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [202, 429, 429, 429]);
}

/// More than it may at once is taken when nothing was before, and waited for
/// then. Another tenant does not wait.
#[tokio::test]
async fn a_tenant_that_is_too_fast_waits() {
    let world = World::new();
    let slow = Ingesting::new(&world, json!({"name": "slow", "ingest_per_second": 2})).await;
    let first = slow.post(&world, "/v1/events/batch", &events(1_000)).await;
    assert_eq!(first.status, 202, "{}", first.json);
    let one = json!({"type": "order.paid", "payload": 1});
    let second = slow.post(&world, "/v1/events", &one).await;
    assert_eq!(second.status, 429, "{}", second.json);
    assert_eq!(second.json["type"], "urn:paceline:problem:too-fast");
    let wait = second.json["retry_after_seconds"].as_u64().unwrap();
    assert!((2..=500).contains(&wait), "{wait}");
    assert_eq!(second.headers["x-ratelimit-limit"], "2");
    assert_eq!(second.headers["retry-after"], wait.to_string());
    assert_eq!(second.headers["x-ratelimit-remaining"], "0");
    // Before any event is looked at: who is refused costs less.
    let nonsense = json!({"events": ["no event"]});
    let third = slow.post(&world, "/v1/events/batch", &nonsense).await;
    assert_eq!(third.status, 429, "{}", third.json);
    assert_eq!(post(&world, "/v1/events", &[], &one).await.status, 202);
    assert_eq!(world.store.state().events.len(), 1_001);
}

/// A bulk body is read on as fast as its tenant may be; not, if that is for
/// minutes. What was answered before is durable.
#[tokio::test]
async fn a_bulk_body_ends_where_its_tenant_is_far_too_fast() {
    let world = World::new();
    let slow = Ingesting::new(&world, json!({"name": "slow", "ingest_per_second": 1})).await;
    let body = "{\"type\": \"order.paid\", \"payload\": 1}\n".repeat(700);
    let request = slow.request("/v1/events/bulk", "application/x-ndjson", body);
    let end = world.bulk_end(request).await;
    assert_eq!(end["accepted"], 500, "{end}");
    assert_eq!(end["complete"], false);
    assert_eq!(end["problem"]["type"], "urn:paceline:problem:too-fast");
    assert_eq!(world.store.state().events.len(), 500);
}

/// By its key, although its destination takes no more: it was accepted.
#[tokio::test]
async fn a_repeated_request_is_answered_though_the_backlog_is_full() {
    let store = Arc::new(SqliteStore::in_memory(Arc::new(|| NOON)).unwrap());
    let fake = Arc::new(FakeStore::default());
    let world = World::over(
        fake,
        (store.clone(), store.clone()),
        store.clone(),
        store,
        None,
    );
    let path = world.destination(json!({})).await;
    let full = path.rsplit('/').next().unwrap().to_owned();
    let to = |payload: u32| json!({"destination_id": full, "payload": payload});
    let first = post(&world, "/v1/events", &["order-1"], &to(1)).await;
    assert_eq!(first.status, 202, "{}", first.json);
    let batch = json!({"events": vec![to(2); 100]});
    post(&world, "/v1/events/batch", &[], &batch).await;
    assert_eq!(post(&world, "/v1/events", &[], &to(3)).await.status, 429);
    assert_eq!(
        post(&world, "/v1/events", &["order-2"], &to(1))
            .await
            .status,
        429
    );
    let again = post(&world, "/v1/events", &["order-1"], &to(1)).await;
    assert_eq!((again.status, &again.json), (first.status, &first.json));
    let reused = post(&world, "/v1/events", &["order-1"], &to(9)).await;
    reused.refuses(409, "idempotency_key");
}
