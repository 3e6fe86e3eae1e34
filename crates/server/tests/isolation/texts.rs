//! Texts that Postgres takes from nobody: a client that sends one has made a
//! mistake, and the store is not away.

use http::Method;

use crate::world::{ADMIN, World};

/// What is called, with which body, and the field that is named. Over Postgres
/// what was not checked before was answered 503.
const CASES: [(&str, &str, &str, &str); 16] = [
    ("GET", "/v1/dead-letters?type=%00", "", "type"),
    ("GET", "/v1/dead-letters?type=a%20b", "", "type"),
    (
        "GET",
        "/v1/dead-letters?after=9223372036854775807:1",
        "",
        "after",
    ),
    (
        "GET",
        "/v1/dead-letters?after=-9223372036854775808:1",
        "",
        "after",
    ),
    (
        "POST",
        "/v1/replays",
        r#"{"all_destinations": true, "type": "\u0000"}"#,
        "type",
    ),
    (
        "POST",
        "/v1/events/resend",
        r#"{"since": "2026-01-31T12:00:00Z", "type": "\u0000"}"#,
        "type",
    ),
    (
        "POST",
        "/v1/events/resend/preview",
        r#"{"since": "2026-01-31T12:00:00Z", "text": "\u0000"}"#,
        "text",
    ),
    (
        "POST",
        "DESTINATION/cancel",
        r#"{"type": "\u0000"}"#,
        "type",
    ),
    (
        "POST",
        "DESTINATION/cancel",
        r#"{"after": "due:9223372036854775807:1"}"#,
        "after",
    ),
    ("PATCH", "DESTINATION", r#"{"name": "a\u0000"}"#, "name"),
    ("POST", "/v1/tenants", r#"{"name": "\u0000"}"#, "name"),
    (
        "POST",
        "/v1/tenants",
        r#"{"name": "x", "tier": "\u0000"}"#,
        "tier",
    ),
    ("PATCH", "TENANT", r#"{"tier": "free\u0000"}"#, "tier"),
    (
        "PATCH",
        "/v1/tiers/%00",
        r#"{"tenant_max_in_flight": 5}"#,
        "name",
    ),
    (
        "POST",
        "TENANT/keys",
        r#"{"name": "\u0007", "scopes": ["read"]}"#,
        "name",
    ),
    (
        "POST",
        "TENANT/links",
        r#"{"name": "\u0000", "expires_in_seconds": 600}"#,
        "name",
    ),
];

pub(crate) async fn what_no_store_takes_is_the_clients_mistake(world: &World) {
    let destination = format!("/v1/destinations/{}", world.ours.destination);
    let tenant = format!("/v1/tenants/{}", world.ours.id);
    let mut wrong = Vec::new();
    for (method, path, body, field) in CASES {
        let is_admins = path.starts_with("TENANT") || path.starts_with("/v1/t");
        let key = if is_admins { ADMIN } else { &world.ours.key };
        let path = path.replace("DESTINATION", &destination);
        let path = path.replace("TENANT", &tenant);
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = (!body.is_empty()).then(|| serde_json::from_str(body).unwrap());
        let answer = world.call(Some(key), &method, &path, body).await;
        if answer.status != 422 || answer.json["field"] != field {
            wrong.push(format!("{method} {path}: {answer:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

pub(crate) async fn pages_say_the_same(world: &World) {
    let key = format!("key={}", world.ours.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    assert_eq!(entered.status, 303, "{}", entered.html);
    let cookie = entered.cookie.as_str();
    for (path, field) in [
        ("/dashboard/events?type=%00", "type"),
        ("/dashboard/events?type=a%20b", "type"),
        ("/dashboard/events?text=%00", "text"),
        ("/dashboard/attempts?type=%00", "type"),
        ("/dashboard/attempts?text=%00", "text"),
        ("/dashboard/attempts?destination=%00", "destination"),
        ("/dashboard/dead-letters?type=%00", "type"),
    ] {
        let page = world.page(cookie, path, None).await;
        assert_eq!(page.status, 422, "{path}");
        assert!(page.html.contains(&format!("{field}: must")), "{path}");
    }
    let path = format!("/dashboard/destinations/{}", world.ours.destination);
    let page = world.page(cookie, &path, None).await;
    let token = page.html.split_once("name=\"token\" value=\"");
    let token = token.and_then(|(_, rest)| rest.split('"').next()).unwrap();
    // Above what the tier allows: it is asked for.
    let ask = |note| format!("token={token}&per_second=999999&note={note}");
    let limits = format!("{path}/limits");
    let refused = world.page(cookie, &limits, Some(&ask("%00"))).await;
    assert_eq!(refused.status, 422, "{}", refused.html);
    assert!(
        refused
            .html
            .contains("note: must not have control characters")
    );
    let taken = world
        .page(cookie, &limits, Some(&ask("one%0D%0Atwo")))
        .await;
    assert_eq!(taken.status, 303, "{}", taken.html);
}
