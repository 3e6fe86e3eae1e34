//! Secrets and headers over the API: made, shown once, and never seen again.

use domain::signature::SigningSecret;
use engine::ports::{SealedKind, SecretStore};
use http::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// Looked for in whatever must not hold a secret.
const CANARY: &str = "Q0FOQVJZQ0FOQVJZQ0FOQVJZQ0FOQVJZ";

fn own() -> String {
    format!("whsec_{CANARY}")
}

async fn create(world: &World, mut body: Value) -> Answer {
    body["url"] = "https://example.com/hooks".into();
    world.post("/v1/destinations", body).await
}

fn path(created: &Answer) -> String {
    format!("/v1/destinations/{}", created.json["id"].as_str().unwrap())
}

#[tokio::test]
async fn a_secret_is_made_with_the_destination_and_shown_once() {
    let world = World::new();
    let created = create(&world, json!({})).await;
    assert_eq!(created.status, 201, "{}", created.json);
    let first = &created.json["secret"];
    let text = first["secret"].as_str().unwrap();
    assert!(SigningSecret::parse(text).is_ok(), "{text}");
    assert_eq!(first["kind"], "hmac");
    let another = create(&world, json!({})).await;
    assert_ne!(another.json["secret"]["secret"], first["secret"], "unique");

    let path = path(&created);
    for later in [
        path.clone(),
        format!("{path}/secrets"),
        "/v1/destinations".to_owned(),
    ] {
        let answer = world.get(&later).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.json.to_string().contains(&text[6..]), "{later}");
    }
    let listed = world.get(&format!("{path}/secrets")).await;
    let listed = listed.json["secrets"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], first["id"]);
    assert_eq!(listed[0]["expires_at"], Value::Null);
}

#[tokio::test]
async fn an_own_secret_is_taken_and_not_repeated() {
    let world = World::new();
    let created = create(&world, json!({ "secret": own() })).await;
    assert_eq!(created.status, 201, "{}", created.json);
    assert!(!created.json.to_string().contains(CANARY));
    let secrets = format!("{}/secrets", path(&created));
    let rotated = world.post(&secrets, json!({ "secret": own() })).await;
    assert_eq!(rotated.status, 201, "{}", rotated.json);
    assert!(!rotated.json.to_string().contains(CANARY));
    // Sealed, and not as it came.
    let sealed = world.store.state().secrets.clone();
    assert_eq!(sealed.len(), 2);
    let bytes = format!("{:?}", sealed[0].0.sealed.bytes);
    assert!(!bytes.contains(CANARY), "{bytes}");
}

#[tokio::test]
async fn ed25519_shows_its_public_key_and_nothing_else() {
    let world = World::new();
    let created = create(&world, json!({})).await;
    let secrets = format!("{}/secrets", path(&created));
    let added = world.post(&secrets, json!({ "kind": "ed25519" })).await;
    assert_eq!(added.status, 201, "{}", added.json);
    assert_eq!(added.json["kind"], "ed25519");
    let public = added.json["public_key"].as_str().unwrap();
    assert!(public.starts_with("whpk_"), "{public}");
    assert_eq!(added.json.get("secret"), None);
    let listed = world.get(&secrets).await;
    assert_eq!(listed.json["secrets"][0]["public_key"], public);
    // Without a kind it stays what it is: the old one ends.
    let next = world.post(&secrets, json!({})).await;
    assert_eq!(next.json["kind"], "ed25519", "{}", next.json);
    assert_ne!(next.json["public_key"], public);
}

#[tokio::test]
async fn secrets_are_deleted_but_not_the_last() {
    let world = World::new();
    let created = create(&world, json!({})).await;
    let secrets = format!("{}/secrets", path(&created));
    let first = created.json["secret"]["id"].as_str().unwrap();
    let delete = |id: &str| {
        let path = format!("{secrets}/{id}");
        async { world.send(Method::DELETE, &{ path }, "").await }
    };
    let refused = delete(first).await;
    assert_eq!(refused.status, 409, "{}", refused.json);
    for overlap in [0, 604_800] {
        let body = json!({ "overlap_seconds": overlap });
        assert_eq!(world.post(&secrets, body).await.status, 201);
    }
    assert_eq!(world.post(&secrets, json!({})).await.status, 409);
    assert_eq!(delete(first).await.status, 204);
    assert_eq!(delete(first).await.status, 404);
    delete("not-an-id").await.refuses(422, "secret");
}

#[tokio::test]
async fn headers_are_set_named_and_cleared() {
    let world = World::new();
    let headers = json!({ "Authorization": format!("Bearer {CANARY}"), "x-env": "production" });
    let created = create(&world, json!({ "headers": headers })).await;
    assert_eq!(created.json["headers"], json!(["authorization", "x-env"]));
    let path = path(&created);
    let shown = world.get(&path).await;
    assert_eq!(shown.json["headers"], json!(["authorization", "x-env"]));
    assert!(!shown.json.to_string().contains(CANARY));
    let changed = world.patch(&path, json!({ "name": "other" })).await;
    assert_eq!(changed.json["headers"], json!(["authorization", "x-env"]));
    let changed = world
        .patch(&path, json!({ "headers": { "x-b": "1" } }))
        .await;
    assert_eq!(changed.json["headers"], json!(["x-b"]));
    for none in [json!({}), Value::Null] {
        let set = world
            .patch(&path, json!({ "headers": { "x-b": "1" } }))
            .await;
        assert_eq!(set.json["headers"], json!(["x-b"]));
        let cleared = world.patch(&path, json!({ "headers": none })).await;
        assert_eq!(cleared.json["headers"], json!([]), "{}", cleared.json);
    }
    let left = world.store.state().secrets.clone();
    assert!(
        left.iter()
            .all(|(new, _)| new.place.kind != SealedKind::Headers)
    );
}

/// A wrong field is named, and no answer repeats a secret: a body that is
/// refused is what people paste into tickets.
#[tokio::test]
async fn what_is_refused_is_named_and_not_repeated() {
    let world = World::new();
    let created = create(&world, json!({})).await;
    let destination = path(&created);
    let secrets = format!("{destination}/secrets");
    let mut refused = Vec::new();
    for (body, field) in [
        (json!({ "secret": CANARY }), "secret"),
        (json!({ "secret": format!("whsec_{CANARY}!") }), "secret"),
        (json!({ "secret": [own()] }), "secret"),
        (json!({ "secret": null }), "secret"),
        (json!({ "kind": own() }), "kind"),
        (json!({ "kind": "hmac", "secret": own() }), "kind"),
        (
            json!({ "overlap_seconds": 604_801, "secret": own() }),
            "overlap_seconds",
        ),
        (
            json!({ "overlap_seconds": -1, "secret": own() }),
            "overlap_seconds",
        ),
    ] {
        let answer = world.post(&secrets, body).await;
        answer.refuses(422, field);
        refused.push(answer.json.to_string());
    }
    let value = |text: &str| json!({ "headers": { "x-a": text } });
    for headers in [
        json!({ "headers": own() }),
        json!({ "headers": [own()] }),
        json!({ "headers": { "host": own() } }),
        json!({ "headers": { "Webhook-Signature": own() } }),
        json!({ "headers": { "x-a\r\nhost": own() } }),
        value(&format!("{CANARY}\r\nhost: evil")),
        value(&format!(" {CANARY}")),
        value(&CANARY.repeat(40)),
    ] {
        for answer in [
            create(&world, headers.clone()).await,
            world.patch(&destination, headers.clone()).await,
        ] {
            answer.refuses(422, "headers");
            refused.push(answer.json.to_string());
        }
    }
    let nested = json!({ "headers": { "x-a": { "b": own() } } });
    let answer = world.patch(&destination, nested).await;
    assert_eq!(answer.status, 422);
    refused.push(answer.json.to_string());
    for said in refused {
        assert!(!said.contains(CANARY), "{said}");
    }
    // Nothing was written.
    let listed = world.get(&secrets).await;
    assert_eq!(listed.json["secrets"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn unknown_destinations_are_not_found() {
    let world = World::new();
    let nobody = "/v1/destinations/00000000-0000-7000-8000-000000000009/secrets";
    assert_eq!(world.get(nobody).await.status, 404);
    assert_eq!(world.post(nobody, json!({})).await.status, 404);
    let secret = format!("{nobody}/00000000-0000-7000-8000-000000000008");
    assert_eq!(world.send(Method::DELETE, &secret, "").await.status, 404);
    assert_eq!(world.store.keys_in_use().await.unwrap(), []);
}
