//! What only a router does: tenants of two shards, behind one address.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use domain::access::Scope;
use engine::ports::DEFAULT_TENANT;
use futures_util::stream;
use http::{HeaderMap, Method, Request, StatusCode, request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::access::key::digest;
use tower::ServiceExt;

use crate::world::{ADMIN, World};

fn ask(key: &str, method: Method, path: &str) -> request::Builder {
    let request = Request::builder().method(method).uri(path);
    request.header("authorization", format!("Bearer {key}"))
}

async fn send(world: &World, request: request::Builder, body: impl Into<Body>) -> Response {
    let request = request.header("content-type", "application/json");
    let answer = world.router().oneshot(request.body(body.into()).unwrap());
    answer.await.unwrap()
}

async fn json_of(response: Response) -> Value {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

fn from(headers: &HeaderMap) -> &str {
    let name = headers.get("paceline-shard");
    name.map_or("", |name| name.to_str().unwrap())
}

/// One that names another shard, with a checksum that is right.
fn forged(key: &str, shard: &str) -> String {
    let digits: Vec<_> = key.split('_').collect();
    let [.., id, secret, _sum] = digits[..] else {
        panic!("{key}");
    };
    let body = format!("pl_{shard}{id}_{secret}");
    let sum = digest(&body);
    let sum = sum[..4].iter().map(|byte| format!("{byte:02x}"));
    format!("{body}_{}", sum.collect::<String>())
}

pub(crate) async fn a_shard_that_a_key_or_a_cookie_lies_about_knows_nothing_of_it(world: &World) {
    let (ours, theirs) = (&world.ours.key, &world.theirs.key);
    assert!(theirs.starts_with("pl_b_"), "{theirs}");
    assert_eq!(forged(theirs, "b_"), *theirs, "forged well");
    let lies = [
        forged(theirs, ""),
        forged(theirs, "a_"),
        forged(ours, "b_"),
        forged(ours, "c_"),
    ];
    for (key, status) in [(ours, 200), (theirs, 200)]
        .into_iter()
        .chain(lies.iter().map(|key| (key, 401)))
    {
        for path in ["/v1/destinations", "/v1/tenants"] {
            let answer = world.call(Some(key), &Method::GET, path, None).await;
            let wanted = if path == "/v1/tenants" && status == 200 {
                403
            } else {
                status
            };
            assert_eq!(answer.status.as_u16(), wanted, "{path} {key}");
        }
    }
    // A browser that has signed in holds what its shard knows, and no other.
    for (key, shard) in [(ours, ""), (theirs, "b-")] {
        let form = format!("key={key}");
        let signed_in = world.page("", "/dashboard/sign-in", Some(&form)).await;
        assert_eq!(signed_in.status, StatusCode::SEE_OTHER);
        let (name, held) = signed_in.cookie.split_once('=').unwrap();
        assert!(held.starts_with(shard), "{held}");
        let page = world.page(&signed_in.cookie, "/dashboard", None).await;
        assert_eq!(page.status, StatusCode::OK);
        let digits = held.trim_start_matches("b-");
        for lie in [format!("a-{digits}"), format!("c-{digits}")] {
            let page = world
                .page(&format!("{name}={lie}"), "/dashboard", None)
                .await;
            assert_eq!(page.status, StatusCode::SEE_OTHER, "to sign in");
        }
    }
    // And so does a link.
    let path = format!("/v1/tenants/{}/links", world.theirs.id);
    let made = world
        .call(Some(ADMIN), &Method::POST, &path, Some(json!({})))
        .await;
    let path = made.json["url"].as_str().unwrap();
    assert!(path.starts_with("/dashboard/links/b-"), "{path}");
    assert_eq!(world.page("", path, None).await.status, StatusCode::OK);
    let lie = path.replace("/b-", "/");
    assert_eq!(
        world.page("", &lie, None).await.status,
        StatusCode::NOT_FOUND
    );
}

/// The ids of all tenants, page by page.
async fn listed_by_threes(world: &World) -> Vec<String> {
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/tenants?limit=3{after}");
        let page = world
            .call(Some(ADMIN), &Method::GET, &path, None)
            .await
            .json;
        let tenants = page["tenants"].as_array().unwrap();
        assert!(tenants.len() <= 3);
        seen.extend(
            tenants
                .iter()
                .map(|one| one["id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    seen
}

pub(crate) async fn tenants_are_on_both_shards_and_in_one_list(world: &World) {
    let mut on = [0, 0];
    for number in 0..12 {
        let path = format!("/v1/tenants/customer-{number}");
        let request = ask(ADMIN, Method::PUT, &path);
        let made = send(world, request, r#"{"name": "one of many"}"#).await;
        assert_eq!(made.status(), StatusCode::CREATED);
        let shard = from(made.headers()).to_owned();
        on[usize::from(shard == "b")] += 1;
        // It stays there, whatever is asked for.
        let other = if shard == "a" { "b" } else { "a" };
        let elsewhere = ask(ADMIN, Method::PUT, &path).header("paceline-shard", other);
        let refused = send(world, elsewhere, r#"{"name": "twice"}"#).await;
        assert_eq!(refused.status(), StatusCode::CONFLICT);
        let again = json!({"name": "twice", "external_id": format!("customer-{number}")});
        let again = send(
            world,
            ask(ADMIN, Method::POST, "/v1/tenants"),
            again.to_string(),
        )
        .await;
        let taken = StatusCode::UNPROCESSABLE_ENTITY;
        assert_eq!((again.status(), from(again.headers())), (taken, &*shard));
        let renamed = json!({"external_id": format!("customer-{number}")}).to_string();
        let (own, others) = (&world.ours.id, &world.theirs.id);
        for tenant in [own, others] {
            let path = format!("/v1/tenants/{tenant}");
            let refused = send(world, ask(ADMIN, Method::PATCH, &path), renamed.clone()).await;
            assert_eq!(refused.status(), taken);
            assert_eq!(json_of(refused).await["field"], "external_id");
        }
    }
    assert!(on.iter().all(|count| *count > 0), "{on:?}");
    let named = ask(ADMIN, Method::POST, "/v1/tenants").header("paceline-shard", "b");
    let named = send(world, named, r#"{"name": "where it was told to go"}"#).await;
    assert_eq!(
        (named.status(), from(named.headers())),
        (StatusCode::CREATED, "b")
    );

    let seen = listed_by_threes(world).await;
    // Twelve, one more, ours, theirs, the one before it, and the one that each shard has.
    assert_eq!(seen.len(), 17);
    assert!(
        seen.is_sorted_by(|one, next| one < next),
        "each once, in order"
    );
    for id in [&world.ours.id, &world.theirs.id] {
        assert!(seen.contains(id));
    }
    let of_b = ask(ADMIN, Method::GET, "/v1/tenants").header("paceline-shard", "b");
    let of_b = json_of(send(world, of_b, "").await).await;
    assert_eq!(of_b["tenants"].as_array().unwrap().len(), on[1] + 4);
    let wrong = world
        .call(Some(ADMIN), &Method::GET, "/v1/tenants?limit=0", None)
        .await;
    assert_eq!(wrong.json["field"], "limit", "{wrong:?}");
}

pub(crate) async fn a_platforms_key_of_one_shard_acts_on_the_other_and_does_no_more(world: &World) {
    let theirs = world.theirs.id.as_str();
    let payload = format!("/v1/events/{}/payload", world.theirs.event);
    let key = world.key(&world.ours, &[Scope::Platform]).await;
    let list = world
        .call_for((&key, theirs), &Method::GET, "/v1/destinations", None)
        .await;
    assert_eq!(list.status, StatusCode::OK, "{list:?}");
    // The router's own key could.
    let lacks = world
        .call_for((&key, theirs), &Method::GET, &payload, None)
        .await;
    assert_eq!(
        lacks.json["detail"],
        "the key lacks the scope read-payloads"
    );
    let tenant = format!("/v1/tenants/{theirs}");
    let lacks = world.call(Some(&key), &Method::DELETE, &tenant, None).await;
    assert_eq!(lacks.status, StatusCode::FORBIDDEN);
    let reads = world
        .key(&world.ours, &[Scope::Platform, Scope::ReadPayloads])
        .await;
    let read = world
        .call_for((&reads, theirs), &Method::GET, &payload, None)
        .await;
    assert_eq!(read.status, StatusCode::OK);
    // It says itself that it wants to do less.
    let less = ask(&reads, Method::GET, &payload)
        .header("paceline-tenant", theirs)
        .header("paceline-scopes", "platform");
    assert_eq!(send(world, less, "").await.status(), StatusCode::FORBIDDEN);
    let admin = world.key(&world.ours, &[Scope::Admin]).await;
    let shown = world.call(Some(&admin), &Method::GET, &tenant, None).await;
    assert_eq!(shown.status, StatusCode::OK, "{shown:?}");
    for path in ["/v1/fleet", "/v1/tiers"] {
        let unsaid = send(world, ask(&admin, Method::GET, path), "").await;
        let unsaid = json_of(unsaid).await;
        assert_eq!(unsaid["field"], "Paceline-Shard", "{unsaid}");
        assert!(
            unsaid["detail"].as_str().unwrap().contains("one of a, b"),
            "{unsaid}"
        );
        let said = ask(&admin, Method::GET, path).header("paceline-shard", "b");
        let said = send(world, said, "").await;
        assert_eq!((said.status(), from(said.headers())), (StatusCode::OK, "b"));
    }
    // Revoked, it is refused on the other shard as well, within the time that it is believed.
    let id = admin.split('_').nth(1).unwrap();
    let path = format!("/v1/tenants/{DEFAULT_TENANT}/keys/{id}");
    let revoked = world.call(Some(ADMIN), &Method::DELETE, &path, None).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT);
    tokio::time::pause();
    tokio::time::advance(server::access::REMEMBERED).await;
    tokio::time::resume();
    let refused = world.call(Some(&admin), &Method::GET, &tenant, None).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
}

pub(crate) async fn what_is_passed_on_is_what_was_sent(world: &World) {
    let key = &world.theirs.key;
    let request = ask(key, Method::GET, "/v1/events?limit=1")
        .header("x-request-id", "of-the-caller")
        .header("connection", "x-mine")
        .header("x-mine", "1");
    let answer = send(world, request, "").await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(answer.headers()["x-request-id"], "of-the-caller");
    assert_eq!(from(answer.headers()), "b");
    assert!(answer.headers().get("connection").is_none());
    // A body that comes while its answer goes: the first line is answered before the
    // second one is there.
    let (more, lines) = tokio::sync::mpsc::channel::<Bytes>(1);
    let line = |number: u32| {
        let line = format!("{{\"type\": \"walk\", \"payload\": {number}}}\n");
        Bytes::from(line)
    };
    more.send(line(1)).await.unwrap();
    let body = stream::unfold(lines, |mut lines| async move {
        let line = lines.recv().await?;
        Some((Ok::<_, std::io::Error>(line), lines))
    });
    let request = Request::post("/v1/events/bulk")
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/x-ndjson");
    let request = request.body(Body::from_stream(body)).unwrap();
    let answer = world.router().oneshot(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let mut answers = answer.into_body();
    let first = answers.frame().await.unwrap().unwrap().into_data().unwrap();
    let first: Value = serde_json::from_slice(&first).unwrap();
    assert!(first["id"].is_string(), "{first}");
    more.send(line(2)).await.unwrap();
    drop(more);
    let rest = answers.collect().await.unwrap().to_bytes();
    let end = rest
        .trim_ascii_end()
        .rsplit(|byte| *byte == b'\n')
        .next()
        .unwrap();
    let end: Value = serde_json::from_slice(end).unwrap();
    assert_eq!(end["accepted"], 2, "{end}");
    // What is anybody's is the router's own.
    let described = send(world, Request::get("/openapi.json"), "").await;
    assert_eq!(described.status(), StatusCode::OK);
    let nowhere = world
        .call(Some(key), &Method::GET, "/v1/nowhere", None)
        .await;
    assert_eq!(nowhere.json["type"], "urn:paceline:problem:no-such-route");
}

async fn the_others_go_on(world: &World, platform: &str) {
    let path = "/v1/destinations";
    let ours = world
        .call(Some(&world.ours.key), &Method::GET, path, None)
        .await;
    assert_eq!(ours.status, StatusCode::OK);
    let acting = world
        .call_for((platform, &world.ours.id), &Method::GET, path, None)
        .await;
    assert_eq!(acting.status, StatusCode::OK);
    // A tenant without a name of its own is nowhere yet, and goes where somebody is.
    for _ in 0..4 {
        let new = send(
            world,
            ask(platform, Method::POST, "/v1/tenants"),
            r#"{"name": "x"}"#,
        )
        .await;
        assert_eq!(
            (new.status(), from(new.headers())),
            (StatusCode::CREATED, "a")
        );
    }
}

/// As it was last known, for tenants of the other one.
async fn a_key_outlasts_its_shard(world: &World, platform: &str) {
    let (shards, path) = (world.shards(), "/v1/destinations");
    let theirs = world.theirs.id.as_str();
    let of_theirs = world.call_for((platform, theirs), &Method::GET, path, None);
    // The shard of the platform's key is away: it goes on for tenants of the other.
    shards.doors[0].shut().await;
    tokio::time::pause();
    tokio::time::advance(server::access::REMEMBERED + Duration::from_secs(1)).await;
    tokio::time::resume();
    assert_eq!(of_theirs.await.status, StatusCode::OK);
    let ours = world
        .call(Some(&world.ours.key), &Method::GET, path, None)
        .await;
    assert_eq!(ours.status, StatusCode::SERVICE_UNAVAILABLE);
}

pub(crate) async fn a_shard_that_is_away_is_its_own_tenants_trouble(world: &World) {
    let shards = world.shards();
    let theirs = world.theirs.id.as_str();
    let platform = world
        .key(&world.ours, &[Scope::Platform, Scope::Admin])
        .await;
    let of_theirs = async || {
        let list = world.call_for((&platform, theirs), &Method::GET, "/v1/destinations", None);
        list.await
    };
    assert_eq!(of_theirs().await.status, StatusCode::OK);
    shards.doors[1].shut().await;
    shards.routing.look_once().await;
    // Their own keys, whoever acts for them, and what asks all shards.
    let own = world
        .call(
            Some(&world.theirs.key),
            &Method::GET,
            "/v1/destinations",
            None,
        )
        .await;
    let list = world
        .call(Some(&platform), &Method::GET, "/v1/tenants", None)
        .await;
    // It could be there.
    let new = json!({"name": "new"});
    let new = async || {
        let path = "/v1/tenants/new-one";
        world
            .call(Some(&platform), &Method::PUT, path, Some(new.clone()))
            .await
    };
    for answer in [own, of_theirs().await, list, new().await] {
        assert_eq!(
            answer.json["type"], "urn:paceline:problem:shard-away",
            "{answer:?}"
        );
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            answer.json["detail"].as_str().unwrap().contains("shard b"),
            "{answer:?}"
        );
    }
    the_others_go_on(world, &platform).await;
    let shutdown = tokio_util::sync::CancellationToken::new();
    let readiness = shards.routing.readiness(&shutdown);
    assert!(readiness.ready, "for the others");
    assert!(!readiness.shards["b"]);

    shards.doors[1].open_again().await;
    shards.routing.look_once().await;
    assert_eq!(of_theirs().await.status, StatusCode::OK);
    assert_eq!(new().await.status, StatusCode::CREATED);
    a_key_outlasts_its_shard(world, &platform).await;
}
