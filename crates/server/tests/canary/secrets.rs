//! Canaries: strings that stand for what is secret, in every place where that
//! comes in, and in no place where something comes out.

use serde_json::{Value, json};

use crate::listener::{Listener, Request};
use crate::place::Place;

/// Each is in one place; all of them have this in them.
const CANARY: &str = "canary";

/// 24 bytes, `canary-signing-secret-00`, as the header's base64.
const SECRET: &str = "whsec_Y2FuYXJ5LXNpZ25pbmctc2VjcmV0LTAw";

fn answer(path: &str) -> (u16, &'static str) {
    match path.split('?').next() {
        Some("/ok") => (200, "canary-response-of-success"),
        Some("/failing") => (500, "canary-response-of-failure"),
        Some("/token") => (200, r#"{"access_token":"canary-token","expires_in":600}"#),
        Some("/final") => (422, "canary-response-of-refusal"),
        _ => (200, ""),
    }
}

/// A destination with a canary wherever there is room for one.
fn destination(place: &Place, receiver: &Listener, path: &str) -> String {
    let body = json!({
        "url": format!("http://{}/{path}?token=canary-query-{path}", receiver.address),
        "unlimited": true,
        "secret": SECRET,
        "headers": { "authorization": "Bearer canary-authorization", "x-api": "canary-header" },
        "pass_traceparent": true,
    });
    let created = place.done("POST", "/v1/destinations", "", &body);
    let id = created["id"].as_str().unwrap().to_owned();
    let rules = json!({ "max_tries": 2, "delays_ms": [1] });
    place.done("PUT", &format!("/v1/destinations/{id}/retries"), "", &rules);
    id
}

/// One that is let in by a token, at the server that gives them.
fn destination_with_token(place: &Place, login: &Listener) -> String {
    let body = json!({
        "url": format!("http://{}/ok", login.address),
        "unlimited": true,
        "oauth2": {
            "token_url": format!("http://{}/token?query=canary-query", login.address),
            "client_id": "paceline",
            "client_secret": "canary-client-secret",
            "client_auth": "body",
        },
    });
    let created = place.done("POST", "/v1/destinations", "", &body);
    created["id"].as_str().unwrap().to_owned()
}

/// It was asked for by the secret, and carried.
fn let_in(login: &[Request]) {
    let [asked, sent] = login else {
        panic!("a token and a delivery: {login:?}");
    };
    let form = String::from_utf8_lossy(&asked.body);
    assert!(
        form.contains("client_secret=canary-client-secret"),
        "{form}"
    );
    let carried = sent.header("authorization");
    assert_eq!(carried.as_deref(), Some("Bearer canary-token"));
}

fn event(place: &Place, destination: &str, number: u32) -> Value {
    let lines = format!(
        "idempotency-key: canary-idempotency-{number}\r\n\
         traceparent: 00-0123456789abcdef0123456789abcde{number}-0123456789abcdef-01\r\n\
         tracestate: other=canary-tracestate\r\n"
    );
    let body = json!({
        "destination_id": destination,
        "payload": { "card": format!("canary-payload-{number}") },
    });
    place.done("POST", "/v1/events", &lines, &body)
}

/// Requests that are refused, with canaries in them, and what they are answered.
fn refused(place: &Place, destination: &str, other: &str) -> String {
    let with = |key: &str| format!("authorization: Bearer {key}\r\n");
    let path = format!("/v1/destinations/{destination}");
    let userinfo = r#"{"url":"http://canary-user:canary-password@127.0.0.1/"}"#;
    let calls = [
        place.call("GET", &path, &with("pk_canary_wrong-key"), ""),
        place.call("GET", &path, "authorization: Basic canary-basic\r\n", ""),
        place.call("GET", &path, "cookie: session=canary-cookie\r\n", ""),
        place.call("GET", &path, &with(other), ""),
        place.call("GET", &format!("{path}/attempts"), &with(other), ""),
        place.call("POST", "/v1/destinations", &with(&place.key()), userinfo),
    ];
    for answer in &calls {
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    calls.concat()
}

/// Another tenant, and its key.
fn other_tenant(place: &Place) -> String {
    let tenant = place.done("POST", "/v1/tenants", "", &json!({ "name": "other" }));
    let path = format!("/v1/tenants/{}/keys", tenant["id"].as_str().unwrap());
    let scopes = json!({ "scopes": ["ingest", "manage", "read"] });
    let created = place.done("POST", &path, "", &scopes);
    created["key"].as_str().unwrap().to_owned()
}

#[test]
fn nothing_secret_comes_out() {
    let receiver = Listener::start(answer);
    let collector = Listener::start(answer);
    let login = Listener::start(answer);
    let endpoint = format!("http://{}", collector.address);
    let mut place = Place::start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary-collector"),
    ]);
    let other = other_tenant(&place);
    let taking = destination(&place, &receiver, "ok");
    let failing = destination(&place, &receiver, "failing");
    let refusing = destination(&place, &receiver, "final");
    let let_in_by_token = destination_with_token(&place, &login);
    let taken = event(&place, &taking, 1);
    let carried = event(&place, &let_in_by_token, 4);
    let failed = event(&place, &failing, 2);
    let dead = event(&place, &refusing, 3);
    place.attempts(&taken, |attempts| attempts[0]["state"] == "succeeded");
    place.attempts(&carried, |attempts| attempts[0]["state"] == "succeeded");
    place.attempts(&failed, |attempts| attempts[1]["dead_letter"] == true);
    place.attempts(&dead, |attempts| attempts[0]["dead_letter"] == true);
    let answers = refused(&place, &taking, &other);
    let update = json!({ "headers": { "x-api": "canary-header-2" } });
    place.done("PATCH", &format!("/v1/destinations/{taking}"), "", &update);
    place.done(
        "DELETE",
        &format!("/v1/destinations/{taking}"),
        "",
        &Value::Null,
    );
    let metrics = place.call("GET", "/metrics", "", "");
    let key = place.key();
    let (code, printed) = place.stop();
    assert_eq!(code, Some(0), "drained: {printed}");

    let exported = collector.requests();
    came_in(&receiver.requests(), &exported);
    let_in(&login.requests());

    // What comes out has ids, and so would have had canaries.
    let bodies: Vec<u8> = exported
        .iter()
        .flat_map(|request| request.body.clone())
        .collect();
    let traces = String::from_utf8_lossy(&bodies).into_owned();
    for (what, text) in [("printed", &printed), ("traces", &traces)] {
        for id in [&taking, &failing, &refusing] {
            assert!(text.contains(id.as_str()), "{what}: {id} is missing");
        }
    }
    assert!(
        metrics.contains("paceline_dead_letters_total 2"),
        "{metrics}"
    );
    let places = [
        ("printed", &printed),
        ("metrics", &metrics),
        ("traces", &traces),
        ("refusals", &answers),
    ];
    for (what, text) in places {
        for secret in [CANARY, SECRET, "Y2FuYXJ5", other.as_str()] {
            assert_eq!(found(text, secret), None, "{what}: {secret}");
        }
    }
    // The key that was made is shown once, to whoever starts the server.
    for (what, text) in &places[1..] {
        assert_eq!(found(text, &key), None, "{what}: the key");
    }
}

/// The canaries did come in, and went where they belong.
fn came_in(sent: &[Request], exported: &[Request]) {
    assert_eq!(sent.len(), 4, "one, two tries, and one");
    for request in sent {
        let whole = request.head.clone() + &String::from_utf8_lossy(&request.body);
        for canary in ["query", "authorization", "header", "tracestate", "payload"] {
            assert!(
                whole.contains(&format!("canary-{canary}")),
                "{canary}: {whole}"
            );
        }
    }
    assert!(!exported.is_empty());
    for request in exported {
        assert_eq!(request.header("x-key").as_deref(), Some("canary-collector"));
    }
}

/// The line that has it.
fn found<'a>(text: &'a str, secret: &str) -> Option<&'a str> {
    text.lines().find(|line| line.contains(secret))
}
