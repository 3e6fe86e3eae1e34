//! A tier bounds what its tenants set over the API, whoever they are.

use domain::access::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{ADMIN, Answer, Tenant, World};

const TIER: &str = "/v1/tiers/free";

#[track_caller]
fn refuses(answer: &Answer, field: &str, words: &str) {
    let refused = (answer.status, &answer.json["field"]);
    let expected = (StatusCode::UNPROCESSABLE_ENTITY, &json!(field));
    assert_eq!(refused, expected, "{answer:?}");
    let said = answer.json["detail"].as_str().unwrap();
    assert!(said.contains(words), "{said}");
}

async fn bounded(world: &World, tier: Value) -> Answer {
    world
        .call(Some(ADMIN), &Method::PATCH, TIER, Some(tier))
        .await
}

/// Events and bytes, by a customer's key and by an operator's; what is there stays until it
/// is changed.
pub(crate) async fn batches_are_held_to_the_tiers_ceiling(world: &World) {
    let ours = &world.ours;
    let path = format!("/v1/destinations/{}/batches", ours.destination);
    let set = async |key: &str, events: u32, bytes: Value| {
        let body = json!({"max_events": events, "max_bytes": bytes});
        let answer = world.call(Some(key), &Method::PUT, &path, Some(body));
        answer.await
    };
    let before = set(&ours.key, 100, Value::Null).await;
    assert_eq!(before.status, StatusCode::OK, "{before:?}");
    let ceiling = json!({"ceiling": {"batch_events": 20, "batch_bytes": 1_000}});
    let tier = bounded(world, ceiling).await.json;
    let most = [
        &tier["ceiling"]["batch_events"],
        &tier["ceiling"]["batch_bytes"],
    ];
    assert_eq!(most, [20, 1_000], "{tier}");
    let again = set(&ours.key, 100, Value::Null).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    for key in [ours.key.as_str(), ADMIN] {
        refuses(&set(key, 99, json!(1_000)).await, "max_events", "99 events");
        let unsaid = set(key, 20, Value::Null).await;
        refuses(
            &unsaid,
            "max_bytes",
            "1000000 bytes in one request are above the ceiling of 1000",
        );
        let below = set(key, 20, json!(1_000)).await;
        assert_eq!(below.status, StatusCode::OK, "{below:?}");
    }
    for (ceiling, field) in [
        (json!({"batch_events": 501}), "ceiling.batch_events"),
        (json!({"batch_bytes": 0}), "ceiling.batch_bytes"),
    ] {
        let refused = bounded(world, json!({"ceiling": ceiling})).await;
        refuses(&refused, field, "must be 1 to");
    }
    let cleared = bounded(world, json!({"ceiling": {"batch_events": null}})).await;
    let most = &cleared.json["ceiling"];
    assert_eq!(
        (&most["batch_events"], &most["batch_bytes"]),
        (&Value::Null, &json!(1_000)),
        "{most}"
    );
    let more = set(&ours.key, 500, json!(1_000)).await;
    assert_eq!(more.status, StatusCode::OK, "{more:?}");
}

/// By a customer's key, by an operator's and by a platform's; what is there stays until it is
/// changed.
pub(crate) async fn an_age_is_held_to_the_tiers_ceiling(world: &World) {
    let ours = &world.ours;
    let one = format!("/v1/destinations/{}", ours.destination);
    let path = format!("{one}/retries");
    let set = async |key: &str, most: u32| {
        let body = json!({"max_age_ms": most});
        let answer = world.call(Some(key), &Method::PUT, &path, Some(body));
        answer.await
    };
    let before = set(&ours.key, 7_200_000).await;
    assert_eq!(before.status, StatusCode::OK, "{before:?}");
    let tier = bounded(world, json!({"ceiling": {"age_seconds": 3_600}})).await;
    let shown = world.call(Some(&ours.key), &Method::GET, &one, None).await;
    for answer in [&tier, &shown] {
        assert_eq!(answer.json["ceiling"]["age_seconds"], 3_600, "{answer:?}");
    }
    let again = set(&ours.key, 7_200_000).await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
    let words = "3600001 ms are above the ceiling of 3600000 ms of the tenant's tier";
    for key in [ours.key.as_str(), ADMIN] {
        refuses(&set(key, 3_600_001).await, "max_age_ms", words);
        let below = set(key, 3_600_000).await;
        assert_eq!(below.status, StatusCode::OK, "{below:?}");
    }
    let platform = world.key(ours, &[Scope::Platform]).await;
    let more = Some(json!({"max_age_ms": 3_600_001}));
    let acting = world.call_for((&platform, &ours.id), &Method::PUT, &path, more);
    refuses(&acting.await, "max_age_ms", words);
    for most in [0, 2_592_001] {
        let refused = bounded(world, json!({"ceiling": {"age_seconds": most}})).await;
        refuses(&refused, "ceiling.age_seconds", "must be 1 to 2592000");
    }
    let cleared = bounded(world, json!({"ceiling": {"age_seconds": null}})).await;
    assert_eq!(cleared.json["ceiling"]["age_seconds"], Value::Null);
    let more = set(&ours.key, 3_600_001).await;
    assert_eq!(more.status, StatusCode::OK, "{more:?}");
}

/// By its own key, where the tier has no ceiling: once it is granted more, so much. Whoever
/// acts for it or operates is not bounded by that.
pub(crate) async fn a_tenant_sets_limits_up_to_what_its_tier_gives(world: &World) {
    let Tenant {
        id,
        key,
        destination,
        ..
    } = &world.ours;
    let path = format!("/v1/destinations/{destination}");
    let call = async |key: &str, method: Method, path: &str, body: Value| {
        world.call(Some(key), &method, path, Some(body)).await
    };
    // The tier `free` gives 2 a second, 10 at once and 50 in flight.
    let at_once = json!({"per_day": 172_800});
    for (body, words) in [
        (
            json!({"limits": {"per_second": 3}}),
            "3 a second is above the ceiling of 2 a second",
        ),
        (
            json!({"limits": at_once}),
            "172800 at once is above the ceiling of 10 at once",
        ),
        (json!({"unlimited": true}), "no rate limit is above"),
        (
            json!({"max_in_flight": 51}),
            "51 in flight is above the ceiling of 50",
        ),
    ] {
        let changed = call(key, Method::PATCH, &path, body.clone()).await;
        refuses(&changed, "limits", words);
        let mut new = json!({"url": "https://x.example/"});
        for (field, value) in body.as_object().unwrap() {
            new[field] = value.clone();
        }
        for (method, path) in [
            (Method::POST, "/v1/destinations"),
            (Method::PUT, "/v1/destinations/ep-9"),
        ] {
            refuses(&call(key, method, path, new.clone()).await, "limits", words);
        }
    }
    let status = async |key: &str, most: u32| {
        let body = json!({"limits": {"per_second": most}});
        call(key, Method::PATCH, &path, body).await.status
    };
    let (refused, done) = (StatusCode::UNPROCESSABLE_ENTITY, StatusCode::OK);
    assert_eq!([status(key, 2).await, status(ADMIN, 5).await], [done; 2]);
    // Down from there, and not up again.
    let down = [status(key, 4).await, status(key, 5).await];
    assert_eq!(down, [done, refused]);
    let platform = world.key(&world.ours, &[Scope::Platform]).await;
    let faster = Some(json!({"unlimited": true}));
    let set = world.call_for((&platform, id), &Method::PATCH, &path, faster);
    assert_eq!(set.await.status, done);
    assert_eq!(status(key, 2).await, done);
    let asks = format!("{path}/limit-requests");
    let asked = json!({"limits": {"per_second": 40}});
    let asked = call(key, Method::POST, &asks, asked).await;
    let request = asked.json["id"].as_str().unwrap();
    let approve = format!("/v1/limit-requests/{request}/approve");
    let approved = call(ADMIN, Method::POST, &approve, json!({})).await;
    assert_eq!(approved.status, done, "{approved:?}");
    let granted = [status(key, 1).await, status(key, 40).await];
    assert_eq!(granted, [done; 2]);
    assert_eq!(status(key, 41).await, refused);
    // What the tier says itself is what holds.
    bounded(world, json!({"ceiling": {"per_second": 500}})).await;
    assert_eq!(status(key, 500).await, done);
    assert_eq!(status(key, 501).await, refused);
}

/// Where the tier has no ceiling its limits are one for its tenants, and none for operators.
pub(crate) async fn a_destination_shows_the_ceiling_of_whoever_asks(world: &World) {
    let ours = &world.ours;
    let path = format!("/v1/destinations/{}", ours.destination);
    for (key, most) in [(ours.key.as_str(), json!(2.0)), (ADMIN, Value::Null)] {
        let shown = world.call(Some(key), &Method::GET, &path, None).await;
        assert_eq!(shown.json["ceiling"]["per_second"], most, "{shown:?}");
    }
}

/// In the same words, whether they come over the API or by SQL.
pub(crate) async fn a_tenant_has_as_many_destinations_as_its_tier_allows(world: &World) {
    let Tenant { id, key, .. } = &world.ours;
    bounded(world, json!({"tenant_max_destinations": 1})).await;
    let one_more = json!({"url": "https://x.example/", "event_types": ["*"]});
    let path = "/v1/destinations";
    let refused = world
        .call(Some(key), &Method::POST, path, Some(one_more))
        .await;
    let words = engine::ports::TOO_MANY_DESTINATIONS;
    refuses(&refused, "tenant_max_destinations", words);
    let insert = format!(
        "insert into destinations (id, tenant_id, url) \
        values ('00000000-0000-7000-8000-0000000000ff', '{id}', 'https://x.example/')"
    );
    let said = world.refused_sql(&insert).await;
    assert!(said.contains(words), "{said}");
}

/// Larger batches of a destination, and more destinations: by a customer's key, and decided
/// by an operator's.
pub(crate) async fn what_is_asked_for_beyond_a_tier_may_be_set_once_it_is_granted(world: &World) {
    let ours = &world.ours;
    let tier = json!({"tenant_max_destinations": 1, "ceiling": {"batch_events": 20}});
    bounded(world, tier).await;
    let call = async |key: &str, method: Method, path: &str, body: Value| {
        world.call(Some(key), &method, path, Some(body)).await
    };
    let of_tenant = "/v1/limit-requests";
    let of_destination = format!("/v1/destinations/{}/limit-requests", ours.destination);
    let of_destination = of_destination.as_str();
    for (path, body, field) in [
        (of_tenant, json!({"destinations": 0}), "destinations"),
        (of_destination, json!({}), "limits"),
        (of_destination, json!({"batch_events": 501}), "batch_events"),
        (of_destination, json!({"batch_bytes": 0}), "batch_bytes"),
    ] {
        let refused = call(&ours.key, Method::POST, path, body).await;
        let said = (refused.status, &refused.json["field"]);
        let expected = (StatusCode::UNPROCESSABLE_ENTITY, &json!(field));
        assert_eq!(said, expected, "{refused:?}");
    }
    let batches = format!("/v1/destinations/{}/batches", ours.destination);
    let larger = json!({"max_events": 60, "max_bytes": null});
    let one_more = json!({"url": "https://example.com/more"});
    let uses = async || {
        let set = call(&ours.key, Method::PUT, &batches, larger.clone()).await;
        let add = call(
            &ours.key,
            Method::POST,
            "/v1/destinations",
            one_more.clone(),
        )
        .await;
        [set.status, add.status]
    };
    assert_eq!(uses().await, [StatusCode::UNPROCESSABLE_ENTITY; 2]);
    for (path, body) in [
        (of_tenant, json!({"destinations": 99, "note": "shops"})),
        (of_destination, json!({"batch_events": 60})),
    ] {
        let asked = call(&ours.key, Method::POST, path, body.clone()).await;
        assert_eq!(asked.status, StatusCode::CREATED, "{asked:?}");
        for field in ["destinations", "batch_events"] {
            assert_eq!(asked.json[field], body[field], "{asked:?}");
        }
        assert_eq!(asked.json["destination_id"].is_null(), path == of_tenant);
        // Of the request that is open there already; of a tenant's there are none.
        let kept = (path == of_destination).then_some(3);
        assert_eq!(asked.json["limits"]["per_second"], json!(kept), "{asked:?}");
        let id = asked.json["id"].as_str().unwrap();
        let approve = format!("/v1/limit-requests/{id}/approve");
        let decided = call(ADMIN, Method::POST, &approve, json!({})).await;
        assert_eq!(decided.json["state"], "approved", "{decided:?}");
    }
    assert_eq!(uses().await, [StatusCode::OK, StatusCode::CREATED]);
}

/// The own ones and, for an operator, everybody's: page after page.
pub(crate) async fn requests_are_listed_in_pages(world: &World) {
    let get = async |key: &str, path: String| {
        let answer = world.call(Some(key), &Method::GET, &path, None).await;
        let (status, json) = (answer.status, answer.json);
        (status, json)
    };
    let ids = |page: &Value| -> Vec<String> {
        let requests = page["limit_requests"].as_array().unwrap().iter();
        let ids = requests.map(|one| one["id"].as_str().unwrap().to_owned());
        ids.collect()
    };
    // Each tenant has two of its own, both of them open.
    for (key, list, count) in [
        (world.ours.key.as_str(), "/v1/limit-requests", 2),
        (ADMIN, "/v1/fleet/limit-requests", 4),
    ] {
        let (_, all) = get(key, list.to_owned()).await;
        assert_eq!((ids(&all).len(), &all["next"]), (count, &Value::Null));
        let (mut seen, mut on) = (Vec::new(), String::new());
        for _ in 0..count {
            let (status, page) = get(key, format!("{list}?limit=1{on}")).await;
            assert_eq!(status, StatusCode::OK, "{page}");
            seen.extend(ids(&page));
            on = format!("&before={}", page["next"].as_str().unwrap());
        }
        assert_eq!(seen, ids(&all));
        let (_, last) = get(key, format!("{list}?limit=1{on}")).await;
        assert_eq!(last, json!({"limit_requests": [], "next": null}));
        for (query, field) in [("before=x", "before"), ("limit=201", "limit")] {
            let (status, refused) = get(key, format!("{list}?{query}")).await;
            let said = (status, &refused["field"]);
            let expected = (StatusCode::UNPROCESSABLE_ENTITY, &json!(field));
            assert_eq!(said, expected, "{refused}");
        }
    }
}
