//! The catalogue of event types: every tenant reads it, operators write it, and what it
//! hides of payloads is shown to nobody.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{ADMIN, Answer, World};

const CARD: &str = "4711-0815";

async fn admin(world: &World, method: Method, path: &str, body: Value) -> Answer {
    let body = (!body.is_null()).then_some(body);
    world.call(Some(ADMIN), &method, path, body).await
}

async fn describe(world: &World, name: &str, says: Value) {
    let mut body = says;
    body["name"] = json!(name);
    let made = admin(world, Method::POST, "/v1/event-types", body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
}

/// One of our events, of this type; its id.
async fn event(world: &World, event_type: &str, mut body: Value) -> String {
    body["type"] = json!(event_type);
    body["destination_id"] = json!(world.ours.destination);
    let key = Some(world.ours.key.as_str());
    let posted = world
        .call(key, &Method::POST, "/v1/events", Some(body))
        .await;
    posted.json["id"].as_str().unwrap().to_owned()
}

/// Signed in with this key.
async fn cookie(world: &World, key: &str) -> String {
    let form = format!("key={}", key.replace(' ', "+"));
    let entered = world.page("", "/dashboard/sign-in", Some(&form)).await;
    assert_eq!(entered.status, 303, "{}", entered.html);
    entered.cookie
}

/// What a key sees of a payload: by its event, and by an attempt that has failed.
async fn seen(world: &World, key: &str, id: &str) -> [Value; 2] {
    let get = async |path: String| {
        let seen = world.call(Some(key), &Method::GET, &path, None).await;
        assert_eq!(seen.status, StatusCode::OK, "{path}: {seen:?}");
        seen.json
    };
    let shown = get(format!("/v1/attempts/{}", attempt(world, id).await)).await;
    [
        get(format!("/v1/events/{id}/payload")).await,
        shown["request"]["payload"].clone(),
    ]
}

/// The one attempt of our event.
async fn attempt(world: &World, id: &str) -> String {
    let path = format!("/v1/events/{id}");
    let key = Some(world.ours.key.as_str());
    let event = world.call(key, &Method::GET, &path, None).await;
    event.json["attempts"][0]["id"].to_string()
}

/// The pages of both.
async fn seen_on_pages(world: &World, cookie: &str, id: &str) -> [String; 2] {
    let page = async |path: String| {
        let page = world.page(cookie, &path, None).await;
        assert_eq!(page.status, StatusCode::OK, "{path}: {}", page.html);
        page.html
    };
    [
        page(format!("/dashboard/events/{id}")).await,
        page(format!("/dashboard/attempts/{}", attempt(world, id).await)).await,
    ]
}

/// Its owner, whoever acts for him, and the operator; by the API, and on pages: of the
/// event, and of what was sent.
pub(crate) async fn what_a_type_hides_is_shown_to_nobody(world: &World) {
    let payload = json!({"card": {"number": CARD, "of": "Ada"}, "total": 1.50});
    let paid = event(world, "order.paid", json!({"payload": payload})).await;
    let raw = json!({"payload_base64": "NDcxMS0wODE1", "content_type": "text/plain"});
    let raw = event(world, "order.paid", raw).await;
    let other = event(world, "order.sent", json!({"payload": payload})).await;
    world.all_fails(&world.ours.destination).await;
    // Before anything is hidden, each is whole.
    for (id, field) in [(&paid, "payload"), (&raw, "payload_base64")] {
        for seen in seen(world, &world.ours.key, id).await {
            assert_eq!(seen["shown"], "all", "{seen:?}");
            assert!(!seen[field].is_null(), "{seen:?}");
        }
    }
    describe(world, "order.paid", json!({"redact": ["/card/number"]})).await;
    let every = world.key(&world.ours, &domain::access::Scope::ALL).await;
    let hidden = json!({"card": {"number": "[redacted]", "of": "Ada"}, "total": 1.50});
    for key in [world.ours.key.as_str(), ADMIN, every.as_str()] {
        for seen in seen(world, key, &paid).await {
            let said = (&seen["payload"], &seen["shown"]);
            assert_eq!(said, (&hidden, &json!("redacted")));
        }
        let nothing = json!({"content_type": "text/plain", "shown": "nothing"});
        let of_raw = seen(world, key, &raw).await;
        assert_eq!(of_raw, [nothing.clone(), nothing]);
        for seen in seen(world, key, &other).await {
            assert_eq!(seen["payload"], payload);
        }
        let cookie = cookie(world, key).await;
        for page in seen_on_pages(world, &cookie, &paid).await {
            let hides = !page.contains(CARD) && page.contains("[redacted]");
            assert!(hides, "{page}");
            let says = page.contains("Ada") && page.contains("id=\"about-payload\"");
            assert!(says, "{page}");
        }
        for page in seen_on_pages(world, &cookie, &raw).await {
            let hides = !page.contains(CARD) && !page.contains("id=\"payload\"");
            assert!(hides, "{page}");
        }
        for page in seen_on_pages(world, &cookie, &other).await {
            assert!(page.contains(CARD), "{page}");
        }
    }
}

/// Archived or not; not with the type itself, which takes its rules along. What is stored
/// stays whole.
pub(crate) async fn what_is_archived_still_hides(world: &World) {
    let id = event(world, "old/type", json!({"payload": {"card": CARD}})).await;
    describe(world, "old/type", json!({"redact": ["/card"]})).await;
    let seen = async || {
        let path = format!("/v1/events/{id}/payload");
        let seen = world
            .call(Some(&world.ours.key), &Method::GET, &path, None)
            .await;
        seen.json["payload"]["card"].clone()
    };
    assert_eq!(seen().await, "[redacted]");
    let path = "/v1/event-types/old%2Ftype";
    let archived = admin(world, Method::PATCH, path, json!({"archived": true})).await;
    assert_eq!(archived.json["redact"], json!(["/card"]), "{archived:?}");
    assert_eq!(seen().await, "[redacted]");
    let listed = world
        .call(Some(&world.ours.key), &Method::GET, "/v1/event-types", None)
        .await;
    assert!(!listed.json.to_string().contains("old/type"), "{listed:?}");
    let kept = admin(world, Method::DELETE, path, Value::Null).await;
    assert_eq!(kept.status, StatusCode::CONFLICT, "{kept:?}");
    assert_eq!(seen().await, "[redacted]");
    admin(world, Method::PATCH, path, json!({"redact": []})).await;
    let gone = admin(world, Method::DELETE, path, Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{gone:?}");
    assert_eq!(seen().await, CARD);
}

/// What the catalogue says is shown on pages, and offered where it is of use.
pub(crate) async fn customers_read_the_catalogue_on_pages(world: &World) {
    let says = json!({
        "description": "An order is <paid>", "schema": {"type": "object"},
        "example": {"order": 4711}, "redact": ["/card"],
    });
    describe(world, "order.paid", says).await;
    describe(world, "order.gone", json!({"archived": true})).await;
    let ours = cookie(world, &world.ours.key).await;
    let list = world.page(&ours, "/dashboard/event-types", None).await.html;
    assert!(
        list.contains("order.paid") && !list.contains("order.gone"),
        "{list}"
    );
    assert!(list.contains("An order is &#60;paid&#62;"), "{list}");
    let operator = cookie(world, ADMIN).await;
    let list = world
        .page(&operator, "/dashboard/event-types", None)
        .await
        .html;
    assert!(list.contains("order.gone"), "{list}");
    let one = world
        .page(&ours, "/dashboard/event-types/order.paid", None)
        .await
        .html;
    assert!(one.contains("4711") && one.contains("/card"), "{one}");
    for none in ["order.none", "a%20b"] {
        let path = format!("/dashboard/event-types/{none}");
        assert_eq!(world.page(&ours, &path, None).await.status, 404, "{none}");
    }

    let path = format!("/dashboard/destinations/{}", world.ours.destination);
    let page = world.page(&ours, &path, None).await.html;
    let token = page.split_once("name=\"token\" value=\"");
    let token = token.and_then(|(_, rest)| rest.split('"').next()).unwrap();
    assert!(page.contains("<option>order.paid</option>"), "{page}");
    let sent = format!("token={token}&type=order.sent");
    let refused = world
        .page(&ours, &format!("{path}/trial"), Some(&sent))
        .await;
    assert_eq!(refused.status, 422, "{}", refused.html);

    let form = format!("{path}/edit");
    let page = world.page(&ours, &form, None).await.html;
    assert!(
        page.contains("name=\"takes order.paid\" value=\"yes\">"),
        "{page}"
    );
    let said = "url=https%3A%2F%2Fexample.com%2Fhooks&event_types=customer.*+order.paid";
    let said = format!("token={token}&{said}&takes+order.paid=yes");
    let saved = world.page(&ours, &form, Some(&said)).await;
    assert_eq!(saved.status, 303, "{}", saved.html);
    let path = format!("/v1/destinations/{}", world.ours.destination);
    let now = world
        .call(Some(&world.ours.key), &Method::GET, &path, None)
        .await;
    assert_eq!(now.json["event_types"], json!(["order.paid", "customer.*"]));
    let page = world.page(&ours, &form, None).await.html;
    assert!(page.contains("value=\"yes\" checked>") && page.contains("value=\"customer.*\""));
}

/// By its field.
pub(crate) async fn what_is_wrong_with_a_type_is_named(world: &World) {
    describe(world, "there", json!({})).await;
    let long = "x".repeat(70_000);
    for (body, field) in [
        (json!({"name": "order.*"}), "name"),
        (json!({"name": ".."}), "name"),
        (json!({"name": "there"}), "name"),
        (json!({"name": "a", "description": "\u{0}"}), "description"),
        (json!({"name": "a", "schema": [1]}), "schema"),
        (json!({"name": "a", "schema": {"a": long}}), "schema"),
        (json!({"name": "a", "example": long}), "example"),
        (json!({"name": "a", "redact": ["/a", "b"]}), "redact[1]"),
    ] {
        let refused = admin(world, Method::POST, "/v1/event-types", body.clone()).await;
        assert_eq!(
            refused.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{refused:?}"
        );
        assert_eq!(refused.json["field"], field, "{refused:?}");
    }
    for (path, field) in [
        ("?limit=0", "limit"),
        ("?after=%00", "after"),
        ("/%00", "name"),
    ] {
        let path = format!("/v1/event-types{path}");
        let refused = world
            .call(Some(&world.ours.key), &Method::GET, &path, None)
            .await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json["field"]),
            (422, &json!(field))
        );
    }
}
