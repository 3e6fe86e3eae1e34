//! Client certificates and OAuth2 clients over the API: written, and never seen again.

use engine::ports::SealedKind;
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

const CLIENT: &str = include_str!("../../../adapters/tests/http_sender/pem/client.pem");
const CLIENT_KEY: &str = include_str!("../../../adapters/tests/http_sender/pem/client.key");
const OTHER_KEY: &str = include_str!("../../../adapters/tests/http_sender/pem/other.key");
const PAST: &str = include_str!("../../../adapters/tests/http_sender/pem/past.pem");

/// Looked for in whatever must not hold a secret; the key has a line of its own.
const CANARY: &str = "canary-of-a-client";

fn certificate() -> Value {
    json!({ "certificate": CLIENT, "private_key": CLIENT_KEY })
}

fn client() -> Value {
    json!({
        "token_url": "https://login.example/token",
        "client_id": "paceline",
        "client_secret": CANARY,
        "scopes": ["hooks.write"],
    })
}

async fn create(world: &World, mut body: Value) -> Answer {
    body["url"] = "https://example.com/hooks".into();
    world.post("/v1/destinations", body).await
}

fn path(created: &Answer) -> String {
    format!("/v1/destinations/{}", created.json["id"].as_str().unwrap())
}

/// Nothing of a secret: neither the client's nor a line of the key.
fn is_hidden(said: &str) {
    let of_the_key = CLIENT_KEY.lines().nth(1).unwrap();
    for secret in [CANARY, of_the_key, "PRIVATE KEY"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[tokio::test]
async fn they_are_set_and_only_facts_are_shown() {
    let world = World::new();
    let both = json!({ "client_certificate": certificate(), "oauth2": client() });
    let created = create(&world, both).await;
    assert_eq!(created.status, 201, "{}", created.json);
    let path = path(&created);
    for answer in [created, world.get(&path).await] {
        is_hidden(&answer.json.to_string());
        let shown = &answer.json["client_certificate"];
        assert_eq!(shown["subject"], "O=Example, CN=paceline client");
        assert_eq!(shown["not_after"], "2120-01-01T00:00:00.000000Z");
        assert_eq!(shown["ends_soon"], false);
        assert_eq!(shown["sha256"].as_str().unwrap().len(), 64);
        let expected = json!({
            "token_url": "https://login.example/token",
            "client_id": "paceline",
            "scopes": ["hooks.write"],
            "audience": null,
            "client_auth": "basic",
            "trouble": null,
        });
        assert_eq!(answer.json["oauth2"], expected);
    }
    // Sealed, and not as they came.
    let sealed = format!("{:?}", world.store.state().secrets);
    is_hidden(&sealed);
}

#[tokio::test]
async fn what_is_absent_stays_and_null_removes() {
    let world = World::new();
    let created = create(&world, json!({ "client_certificate": certificate() })).await;
    let path = path(&created);
    let changed = world.patch(&path, json!({ "oauth2": client() })).await;
    assert!(changed.json["client_certificate"].is_object());
    assert!(changed.json["oauth2"].is_object(), "{}", changed.json);
    let audience = json!({ "oauth2": {
        "token_url": "https://login.example/other",
        "client_id": "paceline",
        "client_secret": CANARY,
        "audience": "https://example.com/",
        "client_auth": "body",
    } });
    let changed = world.patch(&path, audience).await;
    assert_eq!(changed.json["oauth2"]["client_auth"], "body");
    assert_eq!(changed.json["oauth2"]["scopes"], json!([]), "another one");
    let removed = world.patch(&path, json!({ "oauth2": null })).await;
    assert_eq!(removed.json["oauth2"], Value::Null);
    assert!(removed.json["client_certificate"].is_object());
    let removed = world
        .patch(&path, json!({ "client_certificate": null }))
        .await;
    assert_eq!(removed.json["client_certificate"], Value::Null);
    let left = world.store.state().secrets.clone();
    assert!((left.iter()).all(|(new, _)| matches!(new.place.kind, SealedKind::Signs(_))));
    let none = create(
        &world,
        json!({ "client_certificate": null, "oauth2": null }),
    )
    .await;
    assert_eq!(none.status, 201, "{}", none.json);
}

/// Of two that would stand in the same header nobody knows which one does.
#[tokio::test]
async fn a_token_and_a_header_authorization_are_refused_together() {
    let world = World::new();
    let header = json!({ "Authorization": "Basic x" });
    let both = json!({ "headers": header, "oauth2": client() });
    create(&world, both.clone()).await.refuses(422, "headers");
    let with_header = path(&create(&world, json!({ "headers": header })).await);
    let set = world
        .patch(&with_header, json!({ "oauth2": client() }))
        .await;
    set.refuses(422, "oauth2");
    let with_client = path(&create(&world, json!({ "oauth2": client() })).await);
    let set = world
        .patch(&with_client, json!({ "headers": header }))
        .await;
    set.refuses(422, "headers");
    let put = world
        .send(Method::PUT, "/v1/destinations/own", {
            let mut body = both;
            body["url"] = "https://example.com/".into();
            body.to_string()
        })
        .await;
    put.refuses(422, "headers");
    // One for the other, in one change.
    let swapped = json!({ "headers": {}, "oauth2": client() });
    let swapped = world.patch(&with_header, swapped).await;
    assert_eq!(swapped.status, 200, "{}", swapped.json);
}

#[tokio::test]
async fn what_is_wrong_is_named_and_not_repeated() {
    let world = World::new();
    let destination = path(&create(&world, json!({})).await);
    let pair = |chain: &str, key: &str| json!({ "certificate": chain, "private_key": key });
    let with = |field: &str, value: Value| {
        let mut client = client();
        client[field] = value;
        json!({ "oauth2": client })
    };
    let certificate = |value: Value| json!({ "client_certificate": value });
    for (body, field) in [
        (
            certificate(pair(PAST, CLIENT_KEY)),
            "client_certificate.certificate",
        ),
        (
            certificate(pair("x", CLIENT_KEY)),
            "client_certificate.certificate",
        ),
        (
            certificate(pair(CLIENT, OTHER_KEY)),
            "client_certificate.private_key",
        ),
        (
            certificate(pair(CLIENT, CANARY)),
            "client_certificate.private_key",
        ),
        (certificate(json!(CLIENT_KEY)), "client_certificate"),
        (
            certificate(json!({ "certificate": CLIENT })),
            "client_certificate.private_key",
        ),
        (
            with("token_url", json!("http://login.example/")),
            "oauth2.token_url",
        ),
        (
            with("token_url", json!("https://10.0.0.1/token")),
            "oauth2.token_url",
        ),
        (with("client_id", json!("")), "oauth2.client_id"),
        (with("client_secret", json!("")), "oauth2.client_secret"),
        (
            with("client_secret", json!([CANARY])),
            "oauth2.client_secret",
        ),
        (with("scopes", json!(["a b"])), "oauth2.scopes"),
        (with("audience", json!("\n")), "oauth2.audience"),
        (with("client_auth", json!("none")), "oauth2.client_auth"),
        (with("password", json!(CANARY)), "oauth2.password"),
        (json!({ "oauth2": CANARY }), "oauth2"),
        (json!({ "oauth2": [CANARY] }), "oauth2"),
    ] {
        for answer in [
            create(&world, body.clone()).await,
            world.patch(&destination, body.clone()).await,
        ] {
            answer.refuses(422, field);
            is_hidden(&answer.json.to_string());
        }
    }
    let left = world.get(&destination).await.json;
    assert_eq!(
        (&left["client_certificate"], &left["oauth2"]),
        (&Value::Null, &Value::Null)
    );
}
