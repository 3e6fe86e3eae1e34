//! What operators must know, over the API.

use std::sync::Arc;

use adapters::sqlite::SqliteStore;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId};
use domain::operations::OperationalType;
use domain::policy::LimitSettings;
use engine::ports::{
    Catalog, DEFAULT_TENANT, DEFAULT_TIER, NewDestination, Operations, Store, Tenants, TierChange,
    WatchRules,
};
use http::Method;
use serde_json::json;

use crate::world::World;

/// A world, and a destination that its books know.
async fn world() -> (World, Arc<SqliteStore>, DestinationId) {
    let world = World::new();
    let store = world.operations.clone();
    let new = NewDestination {
        external_id: None,
        id: DestinationId(uuid::Uuid::from_u128(7)),
        name: String::new(),
        url: "https://example.com/hooks".to_owned(),
        event_types: Vec::new(),
        filter: None,
        limits: LimitSettings::default(),
        pass_traceparent: false,
        handshake: Handshake::None,
        limit_group: None,
    };
    let created = store.create_destination(DEFAULT_TENANT, &new).await;
    (world, store, created.unwrap().id)
}

const TOLD: &str = "/v1/operational-destinations";

#[tokio::test]
async fn a_destination_is_registered_changed_and_unregistered() {
    let (world, _, id) = world().await;
    let path = format!("{TOLD}/{id}");
    let first = world.send(Method::PUT, &path, "{}").await;
    assert_eq!(first.status, 200, "{}", first.json);
    let all = json!({"destination_id": id, "scope": "tenant", "event_types": []});
    assert_eq!(first.json, all);
    let body = json!({"scope": "installation", "event_types": ["dead_letters"]});
    let second = world.send(Method::PUT, &path, body.to_string()).await;
    let changed =
        json!({"destination_id": id, "scope": "installation", "event_types": ["dead_letters"]});
    assert_eq!(second.json, changed);
    let list = world.get(TOLD).await.json;
    assert_eq!(list, json!({"operational_destinations": [changed]}));

    let gone = world.send(Method::DELETE, &path, "").await;
    assert_eq!(gone.status, 204);
    assert_eq!(world.send(Method::DELETE, &path, "").await.status, 404);
    let list = world.get(TOLD).await.json;
    assert_eq!(list, json!({"operational_destinations": []}));
}

#[tokio::test]
async fn nonsense_is_refused_by_its_name() {
    let (world, _, id) = world().await;
    let path = format!("{TOLD}/{id}");
    for (body, field) in [
        (json!({"scope": "everything"}), "scope"),
        (json!({"event_types": ["anything"]}), "event_types[0]"),
        (
            json!({"event_types": vec!["dead_letters"; OperationalType::ALL.len() + 1]}),
            "event_types",
        ),
    ] {
        let answer = world.send(Method::PUT, &path, body.to_string()).await;
        answer.refuses(422, field);
    }
    let nobody = format!("{TOLD}/00000000-0000-0000-0000-00000000dead");
    assert_eq!(world.send(Method::PUT, &nobody, "{}").await.status, 404);
    let alerts = format!("/v1/destinations/{id}/alerts");
    let answer = world.patch(&alerts, json!({"backlog": 100_001})).await;
    answer.refuses(422, "backlog");
    let answer = world.patch(&alerts, json!({"failing_percent": 101})).await;
    answer.refuses(422, "failing_percent");
    let long = json!({"under_delivery_seconds": 86_401});
    let answer = world.patch(&alerts, long).await;
    answer.refuses(422, "under_delivery_seconds");
    let page = world.get("/v1/operational-events?limit=0").await;
    assert_eq!(page.status, 422, "{}", page.json);
    for query in ["scope=all", "type=anything"] {
        let answer = world.get(&format!("/v1/operational-events?{query}")).await;
        assert!(answer.status.is_client_error(), "{}", answer.json);
        let (field, _) = query.split_once('=').unwrap();
        assert!(answer.json.to_string().contains(field), "{}", answer.json);
    }
}

const ADDRESSES: &str = "/v1/notice-addresses";

#[tokio::test]
async fn addresses_are_added_listed_and_removed_and_a_webhook_is_never_shown() {
    let (world, _, _) = world().await;
    let mail = json!({"form": "email", "address": "ops@example.com", "scope": "installation"});
    let mail = world.send(Method::POST, ADDRESSES, mail.to_string()).await;
    assert_eq!(mail.status, 201, "{}", mail.json);
    let expected = json!({
        "id": mail.json["id"],
        "form": "email",
        "address": "ops@example.com",
        "scope": "installation",
        "event_types": [],
        "every_seconds": 600,
    });
    assert_eq!(mail.json, expected);
    let chat = json!({
        "form": "slack",
        "address": "https://hooks.example.com/services/T0/hunter2",
        "event_types": ["dead_letters"],
        "every_seconds": 60,
    });
    let chat = world.send(Method::POST, ADDRESSES, chat.to_string()).await;
    assert_eq!(chat.status, 201, "{}", chat.json);
    assert_eq!(chat.json["address"], "https://hooks.example.com/…");
    let list = world.get(ADDRESSES).await.json;
    assert_eq!(list, json!({"notice_addresses": [mail.json, chat.json]}));

    let path = format!("{ADDRESSES}/{}", mail.json["id"].as_str().unwrap());
    assert_eq!(world.send(Method::DELETE, &path, "").await.status, 204);
    assert_eq!(world.send(Method::DELETE, &path, "").await.status, 404);
    let list = world.get(ADDRESSES).await.json;
    assert_eq!(list, json!({"notice_addresses": [chat.json]}));
}

#[tokio::test]
async fn an_address_that_cannot_be_told_is_refused_by_its_field() {
    let (world, _, _) = world().await;
    let wrong = |form: &str, address: &str| json!({"form": form, "address": address});
    for (body, field) in [
        (wrong("email", "ops"), "address"),
        (wrong("email", "ops@example.com\r\nBcc: x@y.z"), "address"),
        (wrong("email", "a@b.com,c@d.com"), "address"),
        (wrong("slack", "ops@example.com"), "address"),
        (wrong("slack", "http://10.0.0.1/hunter2"), "address"),
        (wrong("slack", "https://10.0.0.1/hunter2"), "address"),
        (wrong("pigeon", "ops@example.com"), "form"),
        (
            json!({"form": "email", "address": "a@b.c", "every_seconds": 59}),
            "every_seconds",
        ),
        (
            json!({"form": "email", "address": "a@b.c", "every_seconds": 43_201}),
            "every_seconds",
        ),
        (
            json!({"form": "email", "address": "a@b.c", "scope": "all"}),
            "scope",
        ),
        (
            json!({"form": "email", "address": "a@b.c", "event_types": ["x"]}),
            "event_types[0]",
        ),
    ] {
        let answer = world.send(Method::POST, ADDRESSES, body.to_string()).await;
        answer.refuses(422, field);
        assert!(
            !answer.json.to_string().contains("hunter2"),
            "{}",
            answer.json
        );
    }
}

#[tokio::test]
async fn what_the_watch_has_found_is_shown() {
    let (world, store, id) = world().await;
    let alerts = format!("/v1/destinations/{id}/alerts");
    let set = json!({"backlog": 2, "under_delivery_seconds": 0, "failing_percent": 20});
    let answer = world.patch(&alerts, set).await;
    assert_eq!(
        answer.json,
        json!({
            "backlog": 2,
            "under_delivery_seconds": 0,
            "failing_percent": 20,
            "backlog_high_since": null,
            "under_delivery": null,
            "failing_since": null,
        })
    );
    let event = |number: u128| NewEvent {
        id: EventId(uuid::Uuid::from_u128(100 + number)),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(id),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: bytes::Bytes::from_static(b"1"),
        idempotency: None,
        trace: None,
        timing: Timing::default(),
    };
    store.accept_events(&[event(0), event(1)]).await.unwrap();
    let rules = WatchRules {
        patience: std::time::Duration::ZERO,
        ..WatchRules::default()
    };
    assert_eq!(store.watch(&rules).await.unwrap().news.len(), 1);
    let found = world.get(&alerts).await.json;
    assert_eq!(found["backlog_high_since"], "2026-01-31T12:00:00.000000Z");
    let page = world.get("/v1/operational-events?limit=1").await.json;
    let event = json!({
        "id": 1,
        "type": "backlog_high",
        "timestamp": "2026-01-31T12:00:00.000000Z",
        "destination_id": id,
        "destination_name": "https://example.com/hooks",
        "tenant_id": DEFAULT_TENANT,
        "tenant_name": "default",
        "details": {
            "backlog_at_least": 2,
            "threshold": 2,
            "oldest_since": "2026-01-31T12:00:00.000000Z",
        },
    });
    assert_eq!(page, json!({"operational_events": [event], "next": 1}));
    let high = world.get("/v1/operational-events?type=backlog_high").await;
    assert_eq!(high.json["operational_events"].as_array().unwrap().len(), 1);
    let other = "/v1/operational-events?type=dead_letters&limit=1";
    let nothing = json!({"operational_events": [], "next": null});
    assert_eq!(world.get(other).await.json, nothing);
    let last = world
        .get("/v1/operational-events?before=1&scope=installation")
        .await
        .json;
    assert_eq!(last, nothing);
    let missing = "/v1/destinations/00000000-0000-0000-0000-00000000dead/alerts";
    assert_eq!(world.get(missing).await.status, 404);
}

/// It is the administrator's, whatever else a key may do.
#[tokio::test]
async fn what_concerns_all_tenants_needs_the_scope_admin() {
    let (world, _, id) = world().await;
    let keys = format!("/v1/tenants/{DEFAULT_TENANT}/keys");
    let key = world
        .post(&keys, json!({"scopes": ["read", "manage"]}))
        .await;
    assert_eq!(key.status, 201, "{}", key.json);
    let key = key.json["key"].as_str().unwrap().to_owned();
    let call = async |method: Method, path: &str, body: &str| {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(body.to_owned()))
            .unwrap();
        world.request(request).await.status
    };
    let path = format!("{TOLD}/{id}");
    for (scope, expected) in [("tenant", 200), ("installation", 403)] {
        let body = json!({"scope": scope}).to_string();
        assert_eq!(call(Method::PUT, &path, &body).await, expected, "{scope}");
        let list = format!("/v1/operational-events?scope={scope}");
        assert_eq!(call(Method::GET, &list, "").await, expected, "{scope}");
    }
}

/// Of a tenant as a whole: its news name no destination.
#[tokio::test]
async fn a_tenants_own_alerts_are_shown_changed_and_told() {
    let (world, store, _) = world().await;
    let path = "/v1/alerts";
    let at_first = json!({
        "success_percent": 50,
        "success_seconds": 3_600,
        "success_least": 20,
        "success_low_since": null,
        "destinations_high_since": null,
        "backlog_high_since": null,
        "refused_since": null,
    });
    assert_eq!(world.get(path).await.json, at_first);
    for (body, field) in [
        (json!({"success_percent": 101}), "success_percent"),
        (json!({"success_seconds": 299}), "success_seconds"),
        (json!({"success_seconds": 86_401}), "success_seconds"),
        (json!({"success_least": 0}), "success_least"),
    ] {
        let refused = world.send(Method::PATCH, path, body.to_string()).await;
        refused.refuses(422, field);
    }
    let body = json!({"success_percent": 95, "success_seconds": 600});
    let changed = world.send(Method::PATCH, path, body.to_string()).await;
    assert_eq!(changed.json["success_percent"], 95);
    assert_eq!(changed.json["success_seconds"], 600);
    let body = json!({"success_seconds": null});
    let changed = world.send(Method::PATCH, path, body.to_string()).await;
    assert_eq!(changed.json["success_seconds"], 3_600);

    let tier = TierChange {
        tenant_max_destinations: Some(Some(1)),
        ..TierChange::default()
    };
    store.change_tier(DEFAULT_TIER, &tier).await.unwrap();
    let told = store.watch(&WatchRules::default()).await.unwrap();
    assert_eq!(told.news.len(), 1, "{told:?}");
    let since = world.get(path).await.json;
    assert_eq!(
        since["destinations_high_since"],
        "2026-01-31T12:00:00.000000Z"
    );
    let page = world.get("/v1/operational-events").await.json;
    let event = &page["operational_events"][0];
    assert_eq!(event["type"], "destinations_high");
    assert_eq!(event["destination_id"], json!(null));
    assert_eq!(event["details"], json!({"destinations": 1, "most": 1}));
}
