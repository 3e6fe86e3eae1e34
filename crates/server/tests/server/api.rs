//! What the API takes, refuses and answers.

use std::time::Duration;

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use domain::event::MAX_PAYLOAD_BYTES;
use engine::ports::{Finish, NextRun, Schedule};
use engine::sweep::SweepOptions;
use http::{Method, Request};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{KEY, World};

#[tokio::test]
async fn without_the_key_there_is_nothing_to_see() {
    let world = World::new();
    let keys = [
        None,
        Some("Bearer nope".to_owned()),
        Some(format!("Basic {KEY}")),
        Some(KEY.to_owned()),
    ];
    for key in keys {
        let mut request = Request::builder().uri("/v1/destinations");
        if let Some(key) = &key {
            request = request.header("authorization", key);
        }
        let answer = world.request(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 401, "{key:?}");
        assert_eq!(answer.content_type, "application/problem+json");
    }
    assert_eq!(world.get("/v1/destinations").await.status, 200);
}

/// Each change is marked, and the sweep finds the mark: a tenant that changes a destination
/// all the time would otherwise have it run as often, with nothing to send.
#[tokio::test]
async fn a_change_has_its_destination_run_at_once_and_many_do_so_once() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    let (mut runs, began) = (Vec::new(), Instant::now());
    for limit in 1..=50 {
        let changed = json!({"limits": {"per_second": limit}});
        assert_eq!(world.patch(&path, changed).await.status, 200);
        let taken = world.schedule.take(10, Duration::from_secs(1)).await;
        let jobs = taken.unwrap().jobs;
        let finishes: Vec<_> = (jobs.iter())
            .map(|job| Finish {
                destination: job.destination,
                token: job.token.clone(),
                next: NextRun::Remove,
            })
            .collect();
        world.schedule.finish(&finishes).await.unwrap();
        runs.push(finishes.len());
    }
    assert_eq!(runs[0], 1);
    // On a machine that is busy they may take longer than the sweep.
    let rounds = 1 + began.elapsed().as_millis() / SweepOptions::default().every.as_millis();
    let runs: usize = runs.iter().sum();
    assert!(runs as u128 <= rounds, "{runs} in {rounds}");
}

#[tokio::test]
async fn a_destination_is_created_changed_and_deleted() {
    let world = World::new();
    let limits = json!({"name": "shop", "limits": {"per_second": 10, "per_minute": 200}});
    let path = world.destination(limits).await;
    let shown = world.get(&path).await.json;
    assert_eq!(shown["limits"]["per_second"], 10);
    assert_eq!(shown["effective"]["max_in_flight"], 50);

    let changed = world
        .patch(&path, json!({"limits": {"per_second": null}}))
        .await
        .json;
    assert_eq!(changed["limits"]["per_second"], Value::Null);
    assert_eq!(changed["limits"]["per_minute"], 200, "what is absent stays");
    assert_eq!(changed["name"], "shop");

    let inherited = world.patch(&path, json!({"limits": null})).await.json;
    assert_eq!(
        inherited["effective"]["limits"]["per_second"], 5,
        "the tier's"
    );

    let lifted = world.patch(&path, json!({"unlimited": true})).await.json;
    assert_eq!(
        (&lifted["unlimited"], &lifted["limits"]["per_minute"]),
        (&json!(true), &Value::Null)
    );

    let paused = world.patch(&path, json!({"state": "paused"})).await.json;
    assert_eq!(paused["state"], "paused");

    assert_eq!(
        world
            .send(Method::DELETE, &path, Body::empty())
            .await
            .status,
        204
    );
    assert_eq!(
        world
            .send(Method::DELETE, &path, Body::empty())
            .await
            .status,
        404
    );
    assert_eq!(world.get(&path).await.status, 404);
}

#[tokio::test]
async fn what_is_wrong_with_a_destination_is_named() {
    let world = World::new();
    let url = "https://example.com";
    for (body, field) in [
        (json!({}), "url"),
        (json!({"url": "example.com"}), "url"),
        (json!({"url": "http://example.com"}), "url"),
        (json!({"url": 7}), "url"),
        (
            json!([url, "by position", [], {}, false, null, null, null, 0.0]),
            "body",
        ),
        (
            json!({"url": url, "limits": [10, null, null, null]}),
            "limits",
        ),
        (
            json!({"url": url, "limits": {"per_second": "ten"}}),
            "limits.per_second",
        ),
        (
            json!({"url": url, "limits": {"per_second": -1}}),
            "limits.per_second",
        ),
        (
            json!({"url": url, "limits": {"per_second": 1.5}}),
            "limits.per_second",
        ),
        (
            json!({"url": url, "limits": {"per_hour": 1_000_000_001}}),
            "limits.per_hour",
        ),
        (
            json!({"url": url, "limits": {"per_fortnight": 1}}),
            "limits.per_fortnight",
        ),
        (json!({"url": url, "per_second": 10}), "per_second"),
        (json!({"url": url, "burst": 0}), "burst"),
        (json!({"url": url, "shape": "round"}), "shape"),
        (json!({"url": url, "safety_margin": 2}), "safety_margin"),
        (
            json!({"url": url, "unlimited": true, "limits": {"per_day": 1}}),
            "unlimited",
        ),
        (
            json!({"url": url, "event_types": ["ok", "not ok"]}),
            "event_types[1]",
        ),
        (json!({"url": url, "filter": []}), "filter"),
        (
            json!({"url": url, "filter": {"total": 1}}),
            r#"filter["total"]"#,
        ),
        (
            json!({"url": url, "filter": {"any": [{"/a": 1}, {"/b": {"gte": true}}]}}),
            r#"filter.any[1]["/b"].gte"#,
        ),
    ] {
        world
            .post("/v1/destinations", &body)
            .await
            .refuses(422, field);
    }
    assert!(
        world.store.state().destinations.is_empty(),
        "nothing half-written"
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_change_a_path_or_a_page_is_named() {
    let world = World::new();
    let path = world.destination(json!({})).await;
    world
        .patch(&path, json!({"limits": [1, 2, 3, 4]}))
        .await
        .refuses(422, "limits");
    world
        .patch(&path, json!({"state": "asleep"}))
        .await
        .refuses(422, "state");
    world
        .patch(&path, json!({"id": "x"}))
        .await
        .refuses(422, "id");
    // What cannot be cleared is not taken for what is absent.
    for field in ["url", "name", "event_types", "state", "unlimited"] {
        let cleared = world.patch(&path, json!({ field: null })).await;
        cleared.refuses(422, field);
    }
    world
        .get("/v1/destinations/no%20id")
        .await
        .refuses(422, "id");
    world
        .get("/v1/destinations?limit=0")
        .await
        .refuses(422, "limit");
    world
        .get("/v1/destinations?limit=ten")
        .await
        .refuses(422, "limit");
    assert_eq!(
        world.post("/v1/destinations", "{\"url\":").await.status,
        400
    );
    assert_eq!(world.post("/v1/destinations", "{} {}").await.status, 400);
}

#[tokio::test]
async fn pages_follow_one_another() {
    let world = World::new();
    for _ in 0..5 {
        world.destination(json!({})).await;
    }
    let mut seen = 0;
    let mut path = "/v1/destinations?limit=2".to_owned();
    loop {
        let page = world.get(&path).await.json;
        seen += page["destinations"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/v1/destinations?limit=2&after={next}");
    }
    assert_eq!(seen, 5);

    let path = world.destination(json!({"event_types": ["a"]})).await;
    for _ in 0..3 {
        world
            .post("/v1/events", json!({"type": "a", "payload": 1}))
            .await;
    }
    let first = world.get(&format!("{path}/attempts?limit=2")).await.json;
    let next = first["next"].as_i64().unwrap();
    let second = world
        .get(&format!("{path}/attempts?limit=2&before={next}"))
        .await
        .json;
    assert_eq!(second["attempts"].as_array().unwrap().len(), 1);
    assert_eq!(second["next"], Value::Null);
}

#[tokio::test]
async fn a_payload_is_kept_byte_for_byte() {
    let world = World::new();
    for payload in [
        r#"{ "b":1,  "a" : 1.00, "a":2, "n": 12345678901234567890123 }"#,
        r#""\u00e4 \/ ä""#,
        "[1,\n\t2 ]",
        "null",
        "1e2",
    ] {
        let body = format!(r#"{{"type":"t","payload": {payload} }}"#);
        let answer = world.post("/v1/events", body).await;
        assert_eq!(answer.status, 202, "{}", answer.json);
        let state = world.store.state();
        let event = state.events.last().unwrap();
        assert_eq!(event.payload, payload.as_bytes());
        assert_eq!(event.content_type, "application/json");
        assert_eq!(answer.json["id"], event.id.to_string());
    }
    let bytes = [0, 159, 146, 150];
    let body = json!({"type": "t", "payload_base64": STANDARD.encode(bytes), "content_type": "application/octet-stream"});
    assert_eq!(world.post("/v1/events", body).await.status, 202);
    assert_eq!(
        world.store.state().events.last().unwrap().payload,
        bytes.as_slice()
    );
}

#[tokio::test]
async fn an_event_goes_to_its_destination_or_to_the_types_subscribers() {
    let world = World::new();
    let all = world.destination(json!({"event_types": ["*"]})).await;
    let paid = world
        .destination(json!({"event_types": ["order.paid"]}))
        .await;
    let none = world.destination(json!({})).await;
    let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let sent = async |body: Value| {
        let answer = world.post("/v1/events", body).await.json;
        let mut to: Vec<Value> = answer["destinations"].as_array().unwrap().clone();
        to.sort_by_key(Value::to_string);
        to
    };
    let sorted = |paths: &[&str]| {
        let mut ids: Vec<Value> = paths.iter().map(|path| json!(id(path))).collect();
        ids.sort_by_key(Value::to_string);
        ids
    };
    assert_eq!(
        sent(json!({"type": "order.paid", "payload": {}})).await,
        sorted(&[&all, &paid])
    );
    assert_eq!(
        sent(json!({"type": "other", "payload": {}})).await,
        sorted(&[&all])
    );
    let to_one = json!({"destination_id": id(&none), "type": "order.paid", "payload": {}});
    assert_eq!(sent(to_one).await, sorted(&[&none]));
    assert_eq!(
        world
            .store
            .state()
            .events
            .last()
            .unwrap()
            .event_type
            .as_deref(),
        Some("order.paid")
    );
}

/// It is in force for the next event, however it was set; what is wrong with one changes
/// nothing.
#[tokio::test]
async fn a_filter_is_set_changed_and_removed() {
    let world = World::new();
    let filter = json!({"/total": {"gte": 100}, "/region": ["eu", null]});
    let body = json!({"event_types": ["*"], "filter": filter});
    let path = world.destination(body.clone()).await;
    assert_eq!(world.get(&path).await.json["filter"], filter);
    let takes = async |payload: Value| {
        let event = json!({"type": "order.paid", "payload": payload});
        let answer = world.post("/v1/events", event).await.json;
        !answer["destinations"].as_array().unwrap().is_empty()
    };
    let (large, small) = (json!({"total": 100, "region": "eu"}), json!({"total": 99}));
    assert!(takes(large.clone()).await && !takes(small.clone()).await);
    let strict = json!({"type": "t", "payload": small, "strict": true});
    world.post("/v1/events", strict).await.refuses(422, "type");

    let renamed = world.patch(&path, json!({"name": "shop"})).await;
    assert_eq!(renamed.json["filter"], filter);
    let wrong = json!({"name": "other", "filter": {"/total": {"above": 1}}});
    world
        .patch(&path, wrong)
        .await
        .refuses(422, r#"filter["/total"].above"#);
    assert_eq!(world.get(&path).await.json, renamed.json);
    let other = world.patch(&path, json!({"filter": {"/total": 99}})).await;
    assert_eq!(other.json["filter"], json!({"/total": 99}));
    assert!(!takes(large.clone()).await && takes(small.clone()).await);
    let removed = world.patch(&path, json!({"filter": null})).await;
    assert_eq!(removed.json["filter"], Value::Null);
    assert!(takes(large).await && takes(small).await);
}

#[tokio::test]
async fn what_is_wrong_with_an_event_is_named() {
    let world = World::new();
    let disabled = world.destination(json!({})).await;
    world.patch(&disabled, json!({"state": "disabled"})).await;
    let disabled = disabled.rsplit('/').next().unwrap();
    let stranger = uuid::Uuid::nil();
    for (body, field) in [
        (json!({"payload": {}}), "destination_id"),
        (json!({"type": "t"}), "payload"),
        (
            json!({"type": "t", "payload": 1, "payload_base64": ""}),
            "payload_base64",
        ),
        (
            json!({"type": "t", "payload_base64": "?"}),
            "payload_base64",
        ),
        (json!({"type": "not ok", "payload": 1}), "type"),
        (
            json!({"type": "t", "payload": 1, "content_type": "x\r\ny: z"}),
            "content_type",
        ),
        (json!({"type": "t", "payload": 1, "delay": 3}), "delay"),
        (
            json!({"destination_id": "x", "payload": 1}),
            "destination_id",
        ),
        (
            json!({"destination_id": stranger, "payload": 1}),
            "destination_id",
        ),
        (
            json!({"destination_id": disabled, "payload": 1}),
            "destination_id",
        ),
    ] {
        world.post("/v1/events", &body).await.refuses(422, field);
    }
    let large = "x".repeat(MAX_PAYLOAD_BYTES);
    world
        .post("/v1/events", json!({"type": "t", "payload": large}))
        .await
        .refuses(413, "payload");
    let huge = "x".repeat(1024 * 1024);
    world
        .post("/v1/events", json!({"type": "t", "payload": huge}))
        .await
        .refuses(413, "body");
    assert!(
        world.store.state().events.is_empty(),
        "nothing half-written"
    );
    let fits = "x".repeat(MAX_PAYLOAD_BYTES - 2);
    assert_eq!(
        world
            .post("/v1/events", json!({"type": "t", "payload": fits}))
            .await
            .status,
        202
    );
}

#[tokio::test]
async fn a_batch_answers_each_event_in_its_place() {
    let world = World::new();
    let batch = json!({"events": [
        {"type": "t", "payload": 1},
        {"type": "t"},
        {"destination_id": uuid::Uuid::nil(), "payload": 1},
        {"type": "t", "payload": 2},
    ]});
    let answer = world.post("/v1/events/batch", batch).await;
    assert_eq!(answer.status, 202);
    let results = answer.json["results"].as_array().unwrap();
    assert!(results[0]["id"].is_string());
    assert_eq!(results[1]["problem"]["field"], "payload");
    assert_eq!(results[2]["problem"]["field"], "destination_id");
    {
        let state = world.store.state();
        assert_eq!(state.events.len(), 2);
        assert_eq!(results[3]["id"], state.events[1].id.to_string());
    }

    world
        .post("/v1/events/batch", json!({"events": []}))
        .await
        .refuses(422, "events");
    let many: Vec<Value> = vec![json!({"type": "t", "payload": 1}); 1_001];
    world
        .post("/v1/events/batch", json!({"events": many}))
        .await
        .refuses(422, "events");
}

#[tokio::test]
async fn a_store_that_is_away_is_a_503_and_not_a_202() {
    let world = World::new();
    world.store.state().away = true;
    let answer = world
        .post("/v1/events", json!({"type": "t", "payload": 1}))
        .await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json["type"], "urn:paceline:problem:unavailable");
    assert_eq!(world.get("/v1/destinations").await.status, 503);
}

#[tokio::test]
async fn other_media_types_routes_and_methods_are_problems_too() {
    let world = World::new();
    let form = Request::builder()
        .method(Method::POST)
        .uri("/v1/events")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(Body::from("{}"))
        .unwrap();
    assert_eq!(world.request(form).await.status, 415);
    assert_eq!(
        world.get("/v2/events").await.json["type"],
        "urn:paceline:problem:no-such-route"
    );
    let put = world
        .send(Method::PUT, "/v1/destinations", Body::empty())
        .await;
    assert_eq!(put.json["type"], "urn:paceline:problem:no-such-method");
}

/// The caller's own, if it can stand in a log; and whatever becomes of the request.
#[tokio::test]
async fn every_answer_has_the_id_of_its_request() {
    let world = World::new();
    let asked = async |path: &str, key: &str, id: Option<&str>| {
        let request = Request::get(path).header("authorization", format!("Bearer {key}"));
        let request = match id {
            Some(id) => request.header("x-request-id", id),
            None => request,
        };
        let answer = world.request(request.body(Body::empty()).unwrap()).await;
        let said = answer.headers["x-request-id"].to_str().unwrap().to_owned();
        if !answer.status.is_success() {
            assert_eq!(answer.json["request_id"], said.as_str());
        }
        (answer.status.as_u16(), said)
    };
    let list = "/v1/destinations";
    let (status, own) = asked(list, KEY, Some("proxy-7:a.b_c")).await;
    assert_eq!((status, own.as_str()), (200, "proxy-7:a.b_c"));
    let mut made = Vec::new();
    for (path, key, id, expected) in [
        (list, KEY, None, 200),
        (list, KEY, Some("two words"), 200),
        (list, KEY, Some("{\"a\":1}"), 200),
        (list, "wrong", None, 401),
        ("/v1/nowhere", KEY, None, 404),
        ("/v1/destinations/no%20id", KEY, None, 422),
    ] {
        let (status, id) = asked(path, key, id).await;
        assert_eq!(status, expected, "{path}");
        assert!(id.parse::<uuid::Uuid>().is_ok(), "{id}");
        made.push(id);
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 6, "each has its own");
}

/// The sentences, over the whole way.
#[tokio::test]
async fn what_is_wrong_with_a_value_is_told_in_the_readers_words() {
    let world = World::new();
    let url = "https://example.com/";
    let event = |body: Value| ("/v1/events", body);
    let destination = |body: Value| ("/v1/destinations", body);
    for ((path, body), field, says) in [
        (
            event(json!({"destination_id": "shop", "payload": 1})),
            "destination_id",
            "must be the id of a destination",
        ),
        (
            event(json!({"type": "a", "payload_base64": "@@@"})),
            "payload_base64",
            "is not base64: character 1",
        ),
        (
            destination(json!({"url": url, "limits": {"per_second": 1.5}})),
            "limits.per_second",
            "must be a whole number",
        ),
        (
            destination(json!({"url": url, "limits": {"per_second": "50"}})),
            "limits.per_second",
            "must be a whole number",
        ),
        (
            destination(json!({"url": url, "limits": {"per_second": 5}, "unlimited": true})),
            "unlimited",
            "cannot stand beside a limit: leave one of them out",
        ),
    ] {
        let refused = world.post(path, &body).await;
        refused.refuses(422, field);
        assert_eq!(refused.json["detail"], says, "{body}");
    }
    let refused = world.get("/v1/dead-letters?status=abc").await;
    refused.refuses(422, "status");
    assert_eq!(refused.json["detail"], "must be a status, 100 to 599");
    let refused = world.get("/v1/destinations?limit=ten").await;
    assert_eq!(refused.json["detail"], "must be a whole number");
}
