//! Retry rules, cancelling, dead letters and replays, over a real store.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use adapters::sqlite::SqliteStore;
use axum::body::Body;
use domain::ids::{DestinationId, ReplayId};
use domain::replay::MAX_RUNNING;
use engine::ports::{
    Backlog, DEFAULT_TENANT, DeadLetterFilter, NewReplay, ReapRules, Replays, Store, Which,
};
use http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::store::FakeStore;
use crate::world::{NOON, World};

/// The API over SQLite, whose clock the test moves.
struct Place {
    world: World,
    store: Arc<SqliteStore>,
    passed_ms: Arc<AtomicI64>,
}

impl Place {
    fn new() -> Self {
        let passed_ms = Arc::new(AtomicI64::new(0));
        let passed = Arc::clone(&passed_ms);
        let clock = move || {
            let passed = passed.load(Ordering::SeqCst);
            NOON + Duration::from_millis(passed.unsigned_abs())
        };
        let store = Arc::new(SqliteStore::in_memory(Arc::new(clock)).unwrap());
        let fake = Arc::new(FakeStore::default());
        Self {
            world: World::over(
                fake,
                (store.clone(), store.clone()),
                store.clone(),
                store.clone(),
                Some(store.clone()),
            ),
            store,
            passed_ms,
        }
    }

    fn pass(&self, ms: i64) {
        self.passed_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sends `count` events of this type to a destination.
    async fn send(&self, destination: &str, event_type: &str, count: usize) {
        let id = destination.rsplit('/').next().unwrap();
        for _ in 0..count {
            let event = json!({"destination_id": id, "type": event_type, "payload": 1});
            let sent = self.world.post("/v1/events", event).await;
            assert!(sent.status.is_success(), "{}", sent.json);
        }
    }

    /// Lets what waits grow too old.
    async fn let_die(&self) {
        self.pass(2_000);
        let rules = ReapRules {
            heartbeat_timeout: Duration::from_secs(60),
            start_timeout: Duration::from_secs(60),
            permit_grace: Duration::from_secs(1),
            everything: true,
        };
        self.store.reap(&rules, 100).await.unwrap();
        self.pass(10);
    }

    async fn states(&self, destination: &str) -> Vec<String> {
        let path = format!("{destination}/attempts");
        let json = self.world.get(&path).await.json;
        let attempts = json["attempts"].as_array().unwrap().iter();
        attempts
            .map(|attempt| attempt["state"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn ids(page: &Value) -> Vec<i64> {
    let found = page["dead_letters"].as_array().unwrap().iter();
    found.map(|one| one["id"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn retry_rules_are_set_shown_and_refused_by_field() {
    let place = Place::new();
    let path = place.world.destination(json!({"unlimited": true})).await;
    let path = format!("{path}/retries");
    let shown = place.world.get(&path).await;
    assert_eq!(shown.status, 200);
    assert_eq!(shown.json["max_tries"], Value::Null);
    let rules = json!({"delays_ms": [1000, 60000], "final_statuses": [404], "max_age_ms": 1000});
    let set = place.world.put(&path, &rules).await;
    assert_eq!(
        (set.status.as_u16(), &set.json["max_tries"]),
        (200, &json!(3))
    );
    assert_eq!(place.world.get(&path).await.json, set.json);
    for (field, body) in [
        ("max_tries", json!({"max_tries": 0})),
        ("max_tries", json!({"max_tries": "x"})),
        ("delays_ms", json!({"delays_ms": []})),
        ("delays_ms", json!({"delays_ms": [1], "factor": 2})),
        ("factor", json!({"factor": 0.5})),
        ("cap_ms", json!({"cap_ms": 0})),
        ("final_statuses", json!({"final_statuses": [200]})),
        ("max_age_ms", json!({"max_age_ms": 0})),
    ] {
        place.world.put(&path, body).await.refuses(422, field);
    }
    assert_eq!(place.world.get(&path).await.json, set.json);
    place.world.put(&path, json!({})).await;
    assert_eq!(place.world.get(&path).await.json["delays_ms"], Value::Null);
}

#[tokio::test]
async fn a_backlog_is_cancelled_by_filter_and_an_attempt_by_id() {
    let place = Place::new();
    let path = place.world.destination(json!({"unlimited": true})).await;
    place.send(&path, "a", 2).await;
    place.send(&path, "b", 2).await;
    place.pass(1);
    let cancel = format!("{path}/cancel");
    let done = place.world.post(&cancel, json!({"type": "a"})).await;
    assert_eq!(
        (done.status.as_u16(), &done.json["cancelled"]),
        (200, &json!(2))
    );
    assert_eq!(done.json["next"], Value::Null);
    let states = ["waiting", "waiting", "cancelled", "cancelled"];
    assert_eq!(place.states(&path).await, states);

    let attempts = place.world.get(&format!("{path}/attempts")).await.json;
    let id = attempts["attempts"][0]["id"].as_i64().unwrap();
    let cancel_one = format!("/v1/attempts/{id}/cancel");
    for _ in 0..2 {
        assert_eq!(place.world.post(&cancel_one, "").await.status, 204);
    }
    assert_eq!(place.states(&path).await[0], "cancelled");
    assert_eq!(
        place.world.post("/v1/attempts/99/cancel", "").await.status,
        404
    );

    let refused = place.world.post(&cancel, json!({"after": "x"})).await;
    refused.refuses(422, "after");
    let refused = place
        .world
        .post(&cancel, json!({"accepted_before": "noon"}));
    refused.await.refuses(422, "accepted_before");
    let refused = place.world.post(&cancel, json!({"type": "a b"})).await;
    refused.refuses(422, "type");
}

#[tokio::test]
async fn what_has_ended_cannot_be_cancelled() {
    let place = Place::new();
    let path = place.world.destination(json!({"unlimited": true})).await;
    let retries = format!("{path}/retries");
    place.world.put(&retries, json!({"max_age_ms": 1})).await;
    place.send(&path, "a", 1).await;
    place.let_die().await;
    let found = place.world.get("/v1/dead-letters").await.json;
    let id = ids(&found)[0];
    let refused = place
        .world
        .post(&format!("/v1/attempts/{id}/cancel"), "")
        .await;
    assert_eq!(refused.status, 409);
    assert_eq!(refused.json["type"], "urn:paceline:problem:conflict");
}

#[tokio::test]
async fn dead_letters_are_listed_by_filter_and_page_and_shown() {
    let place = Place::new();
    let path = place.world.destination(json!({"unlimited": true})).await;
    let other = place.world.destination(json!({"unlimited": true})).await;
    for path in [&path, &other] {
        let retries = format!("{path}/retries");
        place.world.put(&retries, json!({"max_age_ms": 1})).await;
    }
    place.send(&path, "a", 2).await;
    place.send(&path, "b", 1).await;
    place.send(&other, "a", 1).await;
    place.let_die().await;
    let id = path.rsplit('/').next().unwrap();
    let list = async |query: &str| {
        let found = place.world.get(&format!("/v1/dead-letters?{query}")).await;
        assert_eq!(found.status, 200, "{}", found.json);
        found.json
    };
    assert_eq!(ids(&list("").await).len(), 4);
    let first = list(&format!("destination_id={id}&limit=2")).await;
    assert_eq!(ids(&first).len(), 2);
    let next = first["next"].as_str().unwrap();
    let last = list(&format!("destination_id={id}&limit=2&after={next}")).await;
    assert_eq!((ids(&last).len(), &last["next"]), (1, &Value::Null));
    assert_eq!(ids(&list("type=b").await).len(), 1);
    assert_eq!(ids(&list("status=503").await).len(), 0);
    assert_eq!(
        ids(&list("died_before=2026-01-31T12:00:00Z").await).len(),
        0
    );
    assert_eq!(ids(&list("died_from=2026-01-31T12:00:00Z").await).len(), 4);
    for (field, query) in [
        ("status", "status=many"),
        ("died_from", "died_from=noon"),
        ("after", "after=1"),
        ("limit", "limit=0"),
    ] {
        let refused = place.world.get(&format!("/v1/dead-letters?{query}")).await;
        refused.refuses(422, field);
    }
    let shown = &first["dead_letters"][0];
    let path = format!("/v1/dead-letters/{}", shown["id"]);
    assert_eq!(place.world.get(&path).await.json, *shown);
    assert_eq!(shown["state"], "expired");
    assert_eq!(shown["error"], engine::ports::TOO_OLD);
    assert_eq!(place.world.get("/v1/dead-letters/99").await.status, 404);
}

#[tokio::test]
async fn a_replay_is_begun_shown_and_ended() {
    let place = Place::new();
    let path = place
        .world
        .destination(json!({"limits": {"per_second": 4}}))
        .await;
    let retries = format!("{path}/retries");
    place.world.put(&retries, json!({"max_age_ms": 1})).await;
    place.send(&path, "a", 3).await;
    place.let_die().await;
    let id = path.rsplit('/').next().unwrap();
    for (field, body) in [
        ("destination_id", json!({})),
        ("attempt_id", json!({"attempt_id": 1, "destination_id": id})),
        (
            "attempt_id",
            json!({"attempt_id": 1, "all_destinations": true}),
        ),
        (
            "destination_id",
            json!({"destination_id": id, "all_destinations": true}),
        ),
        ("after", json!({"destination_id": id, "after": id})),
        ("share", json!({"destination_id": id, "share": 0})),
        ("share", json!({"destination_id": id, "share": 1.5})),
        (
            "died_from",
            json!({"destination_id": id, "died_from": "noon"}),
        ),
    ] {
        place
            .world
            .post("/v1/replays", body)
            .await
            .refuses(422, field);
    }
    let unknown = json!({"attempt_id": 99});
    assert_eq!(place.world.post("/v1/replays", unknown).await.status, 404);

    let body = json!({"destination_id": id, "type": "a"});
    let begun = place.world.post("/v1/replays", body).await;
    assert_eq!(begun.status, 201);
    assert_eq!(begun.json["next"], Value::Null);
    let begun = &begun.json["replays"][0];
    let expected = json!({"state": "running", "share": 0.5, "total": 3, "done": 0});
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(begun[field], *value, "{field}");
    }
    place.store.advance_replays(10).await.unwrap();
    let replay = format!("/v1/replays/{}", begun["id"].as_str().unwrap());
    let shown = place.world.get(&replay).await.json;
    assert_eq!((&shown["done"], &shown["pending"]), (&json!(2), &json!(2)));
    let ended = place
        .world
        .post(&format!("{replay}/cancel"), "{}")
        .await
        .json;
    assert_eq!(ended["state"], "cancelled");

    let left = ids(&place.world.get("/v1/dead-letters").await.json);
    assert_eq!(left.len(), 1);
    let one = place
        .world
        .post("/v1/replays", json!({"attempt_id": left[0]}))
        .await;
    assert_eq!(one.json["replays"][0]["total"], 1);
    place.store.advance_replays(10).await.unwrap();
    assert_eq!(
        ids(&place.world.get("/v1/dead-letters").await.json),
        [0_i64; 0]
    );
}

#[tokio::test]
async fn what_matches_is_replayed_everywhere_and_replays_are_listed() {
    let place = Place::new();
    let mut paths = Vec::new();
    for event_type in ["a", "a", "b"] {
        let limits = json!({"limits": {"per_second": 4}});
        let path = place.world.destination(limits).await;
        let retries = format!("{path}/retries");
        place.world.put(&retries, json!({"max_age_ms": 1})).await;
        place.send(&path, event_type, 2).await;
        paths.push(path);
    }
    place.let_die().await;
    let body = json!({"all_destinations": true, "type": "a"});
    let begun = place.world.post("/v1/replays", body).await;
    assert_eq!(
        (begun.status.as_u16(), &begun.json["next"]),
        (201, &Value::Null)
    );
    let begun = begun.json["replays"].as_array().unwrap();
    let mut of: Vec<&str> = (begun.iter())
        .map(|replay| replay["destination_id"].as_str().unwrap())
        .collect();
    of.sort_unstable();
    let mut wanted: Vec<&str> = (paths[..2].iter())
        .map(|path| path.rsplit('/').next().unwrap())
        .collect();
    wanted.sort_unstable();
    assert_eq!(of, wanted);
    assert!(begun.iter().all(|replay| replay["total"] == 2));
    place.store.advance_replays(10).await.unwrap();
    assert_eq!(place.states(&paths[2]).await, ["expired", "expired"]);

    let mut listed = Vec::new();
    let mut query = "limit=1".to_owned();
    loop {
        let page = place.world.get(&format!("/v1/replays?{query}")).await.json;
        listed.extend(page["replays"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => query = format!("limit=1&after={next}"),
            None => break,
        }
    }
    let ids = |replays: &[Value]| -> Vec<String> {
        let ids = replays.iter().map(|one| one["id"].as_str().unwrap());
        ids.map(str::to_owned).collect()
    };
    let mut newest_first = ids(begun);
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(ids(&listed), newest_first);
    assert!(listed.iter().all(|replay| replay["done"] == 2));
    let refused = place.world.get("/v1/replays?limit=0").await;
    refused.refuses(422, "limit");
}

/// All of them together take what their group allows, each at its part of that.
#[tokio::test]
async fn a_preview_knows_what_a_limit_group_leaves() {
    let place = Place::new();
    let two = json!({"limits": {"per_second": 2}});
    place.world.put("/v1/limit-groups/all", two).await;
    for _ in 0..4 {
        let body = json!({"limits": {"per_second": 4}, "limit_group": "all"});
        let path = place.world.destination(body).await;
        let retries = format!("{path}/retries");
        place.world.put(&retries, json!({"max_age_ms": 1})).await;
        place.send(&path, "a", 3).await;
    }
    place.let_die().await;
    let preview = place.world.get("/v1/replays/preview").await.json;
    let most = &preview["destinations"][0];
    assert_eq!(
        (&most["dead_letters"], &most["takes_seconds"]),
        (&json!(3), &json!(3.0))
    );
    assert_eq!(preview["takes_seconds"], 6.0, "no faster than two a second");
}

/// By destination, those with the most first, and no more of them than one reads.
#[tokio::test]
async fn a_preview_of_a_replay_counts_and_names_the_most_first() {
    let place = Place::new();
    let mut paths = Vec::new();
    for number in 0..52 {
        let body = json!({"name": format!("shop {number}"), "limits": {"per_second": 4}});
        let path = place.world.destination(body).await;
        let retries = format!("{path}/retries");
        place.world.put(&retries, json!({"max_age_ms": 1})).await;
        place
            .send(&path, "a", if number == 7 { 8 } else { 1 })
            .await;
        paths.push(path);
    }
    place.let_die().await;
    let preview = async |query: &str| {
        let path = format!("/v1/replays/preview{query}");
        place.world.get(&path).await
    };
    let of_all = preview("").await.json;
    assert_eq!(
        (&of_all["dead_letters"], &of_all["is_all"]),
        (&json!(59), &json!(true))
    );
    let named = of_all["destinations"].as_array().unwrap();
    assert_eq!(
        (named.len(), &of_all["further_destinations"]),
        (50, &json!(2))
    );
    // At half of four a second.
    assert_eq!(named[0]["name"], "shop 7");
    assert_eq!(
        (&named[0]["dead_letters"], &named[0]["takes_seconds"]),
        (&json!(8), &json!(4.0))
    );
    assert!(named[1..].iter().all(|one| one["dead_letters"] == 1));
    assert_eq!(of_all["takes_seconds"], 4.0);

    let id = |number: usize| paths[number].rsplit('/').next().unwrap();
    let at_all = preview(&format!("?destination_id={}&share=1", id(7)))
        .await
        .json;
    assert_eq!(
        (&at_all["dead_letters"], &at_all["takes_seconds"]),
        (&json!(8), &json!(2.0))
    );
    let none = preview(&format!("?destination_id={}&type=b", id(7)))
        .await
        .json;
    assert_eq!(
        (&none["dead_letters"], &none["takes_seconds"]),
        (&json!(0), &json!(0.0))
    );
    let paused = json!({"limits": {"per_second": 0}});
    place.world.patch(&paths[7], paused).await;
    assert_eq!(preview("").await.json["takes_seconds"], Value::Null);
    let delete = place.world.send(Method::DELETE, &paths[7], Body::empty());
    assert_eq!(delete.await.status, 204);
    assert_eq!(preview("").await.json["dead_letters"], 51);
    assert_eq!(
        preview(&format!("?destination_id={}", id(7))).await.status,
        404
    );
    preview("?share=2").await.refuses(422, "share");
    // Nothing has begun.
    assert_eq!(
        place.world.get("/v1/replays").await.json["replays"],
        json!([])
    );
}

/// One, then what its destination has missed: dead letters are replayed with that.
#[tokio::test]
async fn events_are_sent_again() {
    let place = Place::new();
    let limits = json!({"limits": {"per_second": 4}});
    let path = place.world.destination(limits).await;
    let id = path.rsplit('/').next().unwrap();
    let retries = format!("{path}/retries");
    place.world.put(&retries, json!({"max_age_ms": 1})).await;
    place.send(&path, "a", 3).await;
    place.let_die().await;
    let listed = place.world.get("/v1/events").await.json;
    let event = listed["events"][0]["id"].as_str().unwrap();
    let resend = format!("/v1/events/{event}/resend");
    let begun = place.world.post(&resend, json!({})).await;
    assert_eq!(begun.status, 201, "{}", begun.json);
    let replay = &begun.json["replays"][0];
    let expected = json!({
        "source": "events", "event_id": event, "destination_id": id, "total": 1, "skipped": 0
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(replay[field], *value, "{field}");
    }
    place.store.advance_replays(10).await.unwrap();
    let shown = place.world.get(&format!("/v1/events/{event}")).await.json;
    let newest = shown["attempts"].as_array().unwrap().last().unwrap();
    assert_eq!(newest["replay_id"], replay["id"]);
    assert_eq!(
        (&newest["try_number"], &newest["state"]),
        (&json!(2), &json!("waiting"))
    );
    assert_eq!(shown["attempts"][0]["replay_id"], Value::Null);
    let again = place.world.post(&resend, json!({})).await;
    assert_eq!(again.status, 409, "it waits: {}", again.json);
    let share = place.world.post(&resend, json!({"share": 0})).await;
    share.refuses(422, "share");
    let nowhere = json!({"destination_id": "01900000-0000-7000-8000-000000000000"});
    assert_eq!(place.world.post(&resend, nowhere).await.status, 404);
    let nothing = "/v1/events/01900000-0000-7000-8000-000000000000/resend";
    assert_eq!(place.world.post(nothing, json!({})).await.status, 404);

    let resend = format!("{path}/resend");
    let noon = "2026-01-31T12:00:00Z";
    for (field, body) in [
        ("since", json!({})),
        ("since", json!({"since": "noon"})),
        ("since", json!({"since": noon, "until": noon})),
        ("type", json!({"since": noon, "type": "no type"})),
        ("share", json!({"since": noon, "share": 2})),
    ] {
        place.world.post(&resend, body).await.refuses(422, field);
    }
    let begun = place.world.post(&resend, json!({"since": noon})).await;
    assert_eq!(begun.status, 201, "{}", begun.json);
    assert_eq!(begun.json["total"], 2, "what is on its way is left alone");
    place.pass(10_000);
    place.store.advance_replays(10).await.unwrap();
    let left = ids(&place.world.get("/v1/dead-letters").await.json);
    assert!(left.is_empty(), "they are replayed with that");
    let replay = format!("/v1/replays/{}", begun.json["id"].as_str().unwrap());
    assert_eq!(place.world.get(&replay).await.json["done"], 2);
}

/// A destination of four a second at which so many events of this type were given up.
async fn dying(place: &Place, event_type: &str, count: usize) -> String {
    let limits = json!({"limits": {"per_second": 4}});
    let path = place.world.destination(limits).await;
    let retries = format!("{path}/retries");
    place.world.put(&retries, json!({"max_age_ms": 1})).await;
    place.send(&path, event_type, count).await;
    path
}

/// To all of them, as many as were counted before; and nothing is begun by counting.
#[tokio::test]
async fn what_each_has_missed_is_counted_and_sent_again() {
    let place = Place::new();
    let mut paths = Vec::new();
    for (event_type, count) in [("a", 1), ("a", 3), ("b", 2), ("a", 0)] {
        paths.push(dying(&place, event_type, count).await);
    }
    place.let_die().await;
    let of = |number: usize| paths[number].rsplit('/').next().unwrap().to_owned();
    let noon = "2026-01-31T12:00:00Z";
    let which = json!({"since": noon, "type": "a"});
    let preview = async |path: &str| {
        let path = format!("{path}/resend/preview");
        let found = place.world.post(&path, &which).await;
        assert_eq!(found.status, 200, "{}", found.json);
        found.json
    };
    let found = preview("/v1/events").await;
    // At half of four a second, side by side.
    let expected = json!({
        "deliveries": 4, "is_all": true, "takes_seconds": 1.5, "further_destinations": 0
    });
    for (field, value) in expected.as_object().unwrap() {
        assert_eq!(found[field], *value, "{field}");
    }
    let named = found["destinations"].as_array().unwrap().iter();
    let named: Vec<_> = named
        .map(|one| (one["destination_id"].clone(), one["deliveries"].clone()))
        .collect();
    assert_eq!(named, [(json!(of(1)), json!(3)), (json!(of(0)), json!(1))]);
    for (number, deliveries) in [(1, 3), (2, 0), (3, 0)] {
        let found = preview(&paths[number]).await;
        assert_eq!(found["deliveries"], deliveries, "{found}");
        assert_eq!(found["destinations"][0]["destination_id"], of(number));
    }
    let none = place.world.get("/v1/replays").await.json;
    assert_eq!(none["replays"], json!([]));

    // No more than a second's worth of its part waits.
    let all_at_once = json!({"since": noon, "type": "a", "share": 1});
    let begun = place.world.post("/v1/events/resend", &all_at_once).await;
    assert_eq!(begun.status, 201, "{}", begun.json);
    assert_eq!(begun.json["next"], Value::Null);
    let replays = begun.json["replays"].as_array().unwrap().iter();
    let mut totals: Vec<_> = replays
        .map(|one| {
            assert_eq!(one["source"], "events");
            let id = one["destination_id"].as_str().unwrap().to_owned();
            (id, one["total"].as_u64().unwrap())
        })
        .collect();
    totals.sort_unstable();
    let mut wanted = vec![(of(0), 1), (of(1), 3)];
    wanted.sort_unstable();
    assert_eq!(totals, wanted);
    place.store.advance_replays(10).await.unwrap();
    assert_eq!(preview("/v1/events").await["deliveries"], 0, "they wait");
    let again = place.world.post("/v1/events/resend", &all_at_once).await;
    assert_eq!(
        again.json["replays"],
        json!([]),
        "nothing is missed any more"
    );
}

/// By 10 destinations to a request.
#[tokio::test]
async fn all_destinations_are_sent_to_in_parts() {
    let place = Place::new();
    for _ in 0..23 {
        dying(&place, "a", 1).await;
    }
    place.let_die().await;
    let mut which = json!({"since": "2026-01-31T12:00:00Z"});
    let found = place.world.post("/v1/events/resend/preview", &which).await;
    assert_eq!(found.json["deliveries"], 23, "{}", found.json);
    let mut to = Vec::new();
    for begun in [10, 10, 3] {
        let answer = place.world.post("/v1/events/resend", &which).await;
        let replays = answer.json["replays"].as_array().unwrap();
        assert_eq!(replays.len(), begun, "{}", answer.json);
        let ids = replays.iter().map(|one| one["destination_id"].clone());
        to.extend(ids.map(|id| id.to_string()));
        which["after"] = answer.json["next"].clone();
    }
    assert_eq!(which["after"], Value::Null);
    to.sort_unstable();
    to.dedup();
    assert_eq!(to.len(), 23, "each once");
}

/// With what has begun, and where to go on: here there is no room for the seventh.
async fn says_what_has_begun(path: &str, mut which: Value) {
    let place = Place::new();
    let first = dying(&place, "a", 1).await;
    for _ in 1..10 {
        dying(&place, "a", 1).await;
    }
    place.let_die().await;
    let first: DestinationId = first.rsplit('/').next().unwrap().parse().unwrap();
    for number in 6..MAX_RUNNING {
        let new = NewReplay {
            id: ReplayId(Uuid::from_u128(number.into())),
            which: Which::Matching(first, DeadLetterFilter::default()),
            share: 0.5,
        };
        let created = place.store.create_replay(DEFAULT_TENANT, &new).await;
        created.unwrap();
    }
    let begun = place.world.post(path, &which).await;
    assert_eq!(begun.status, 201, "{}", begun.json);
    let replays = begun.json["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 6, "{}", begun.json);
    assert_eq!(begun.json["next"], replays[5]["destination_id"]);
    which["after"] = begun.json["next"].clone();
    let refused = place.world.post(path, &which).await;
    refused.refuses(422, "replays");
    let cancel = replays[0]["id"].as_str().unwrap();
    let cancel = format!("/v1/replays/{cancel}/cancel");
    assert_eq!(place.world.post(&cancel, json!({})).await.status, 200);
    let more = place.world.post(path, &which).await;
    let replays = more.json["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 1, "{}", more.json);
    assert_eq!(more.json["next"], replays[0]["destination_id"]);
}

#[tokio::test]
async fn a_resend_to_all_that_ends_early_says_what_has_begun() {
    let which = json!({"since": "2026-01-31T12:00:00Z"});
    says_what_has_begun("/v1/events/resend", which).await;
}

#[tokio::test]
async fn a_replay_of_all_that_ends_early_says_what_has_begun() {
    says_what_has_begun("/v1/replays", json!({"all_destinations": true})).await;
}

/// What is sent to all is not for one that is disabled; what is sent to it alone is.
#[tokio::test]
async fn a_disabled_destination_is_none_of_all() {
    let place = Place::new();
    let (on, off) = (dying(&place, "a", 1).await, dying(&place, "a", 1).await);
    place.let_die().await;
    let disabled = json!({"state": "disabled"});
    assert_eq!(place.world.patch(&off, disabled).await.status, 200);
    let which = json!({"since": "2026-01-31T12:00:00Z"});
    let found = place.world.post("/v1/events/resend/preview", &which).await;
    assert_eq!(found.json["deliveries"], 1, "{}", found.json);
    let begun = place.world.post("/v1/events/resend", &which).await;
    let replays = begun.json["replays"].as_array().unwrap().iter();
    let to: Vec<_> = replays.map(|one| &one["destination_id"]).collect();
    assert_eq!(to, [on.rsplit('/').next().unwrap()]);
    let alone = place.world.post(&format!("{off}/resend"), &which).await;
    assert_eq!(alone.json["total"], 1, "{}", alone.json);
}

#[tokio::test]
async fn a_resend_that_makes_no_sense_is_refused_by_its_field() {
    let place = Place::new();
    let path = dying(&place, "a", 1).await;
    place.let_die().await;
    let noon = "2026-01-31T12:00:00Z";
    let one = format!("{path}/resend");
    for path in ["/v1/events/resend", &one] {
        for (field, more) in [
            ("since", json!({"since": "noon"})),
            ("until", json!({"until": "noon"})),
            ("since", json!({"until": noon})),
            ("type", json!({"type": "no type"})),
            ("status", json!({"status": "6x"})),
            ("state", json!({"state": "waiting"})),
            ("state", json!({"state": "succeeded"})),
            ("text", json!({"text": "order-4711"})),
            ("share", json!({"share": 2})),
        ] {
            let mut body = json!({"since": noon});
            let more = more.as_object().unwrap().clone();
            body.as_object_mut().unwrap().extend(more);
            for path in [path, &format!("{path}/preview")] {
                let refused = place.world.post(path, &body).await;
                refused.refuses(422, field);
            }
        }
    }
    let after = json!({"since": noon, "after": path.rsplit('/').next().unwrap()});
    for path in [
        one.as_str(),
        &format!("{one}/preview"),
        "/v1/events/resend/preview",
    ] {
        place.world.post(path, &after).await.refuses(422, "after");
    }
    let nowhere = "/v1/destinations/01900000-0000-7000-8000-000000000000/resend/preview";
    let answer = place.world.post(nowhere, json!({"since": noon})).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn events_are_listed_by_what_is_known_of_them() {
    let place = Place::new();
    let paths = [
        place.world.destination(json!({"unlimited": true})).await,
        place.world.destination(json!({"unlimited": true})).await,
    ];
    place.send(&paths[0], "a", 1).await;
    place.pass(5_000);
    place.send(&paths[1], "a", 1).await;
    let listed = async |query: &str| {
        let page = place.world.get(&format!("/v1/events?{query}")).await.json;
        let events = page["events"].as_array().unwrap().iter();
        let to = events.map(|event| event["destination_id"].as_str().unwrap().to_owned());
        to.collect::<Vec<_>>()
    };
    let of = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let (first, second) = (of(&paths[0]), of(&paths[1]));
    let later = "2026-01-31T12:00:05Z";
    assert_eq!(listed(&format!("since={later}")).await, [second.as_str()]);
    assert_eq!(
        listed(&format!("until={later}&type=a")).await,
        [first.as_str()]
    );
    let at_first = format!("destination_id={first}&state=waiting");
    assert_eq!(listed(&at_first).await, [first.as_str()]);
    assert_eq!(listed("text=-7&limit=1").await.len(), 1);
    assert_eq!(listed("text=nobody").await, Vec::<String>::new());
    let long = format!("text={}", "a".repeat(256));
    for (field, query) in [
        ("since", "since=noon".to_owned()),
        ("since", format!("since={later}&until={later}")),
        ("until", "until=1".to_owned()),
        ("text", "text=".to_owned()),
        ("text", long),
        ("destination_id", "destination_id=7".to_owned()),
    ] {
        let refused = place.world.get(&format!("/v1/events?{query}")).await;
        refused.refuses(422, field);
    }
}
