//! The walk: one row per route.

use std::collections::BTreeSet;

use domain::access::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{ADMIN, Answer, DESCRIBED, TENANTS_OWN, Tenant, Things, World};

/// What a route can reach with a key of another tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Its path or its body names a thing: one of another tenant is answered
    /// like one that never was.
    Named,
    /// It shows or makes only what is the caller's own, and nothing in the
    /// answer is another tenant's.
    Own,
    /// The whole installation: for `admin` alone, which no tenant's key has.
    Installation,
}

/// A route, what it is called with, and what it can reach.
pub(crate) struct Row {
    pub(crate) route: &'static str,
    /// `DESTINATION`, `ELSEWHERE` and `DEAD_LETTER` stand for the owner's; the same in the
    /// path.
    body: Option<&'static str>,
    reach: Reach,
}

const fn row(route: &'static str, body: Option<&'static str>, reach: Reach) -> Row {
    Row { route, body, reach }
}

const CREATE: &str = r#"{"url": "https://example.com/walk"}"#;
const EVENT: &str = r#"{"destination_id": "DESTINATION", "payload": 1}"#;
const EVENTS: &str = r#"{"events": [{"destination_id": "DESTINATION", "payload": 1},
    {"type": "walk", "payload": 2}]}"#;
const TENANT: &str = r#"{"name": "walk"}"#;
const KEY: &str = r#"{"scopes": ["read"]}"#;
const LINK: &str = r#"{"expires_in_seconds": 600}"#;

/// Every route of the API. One that is described and not here fails the walk:
/// say what it can reach.
pub(crate) const ROWS: &[Row] = &[
    // Before a row changes the limits that it was asked for.
    row(
        "POST /v1/limit-requests/{id}/approve",
        Some("{}"),
        Reach::Installation,
    ),
    // Before a row revokes the key.
    row(
        "POST /v1/keys/identify",
        Some(r#"{"key": "KEY_TEXT"}"#),
        Reach::Installation,
    ),
    row("GET /v1/destinations", None, Reach::Own),
    row("POST /v1/destinations", Some(CREATE), Reach::Own),
    row("GET /v1/destinations/{id}", None, Reach::Named),
    row("PUT /v1/destinations/{id}", Some(CREATE), Reach::Own),
    row("GET /v1/destinations/{id}/attempts", None, Reach::Named),
    row(
        "PATCH /v1/destinations/{id}",
        Some(r#"{"state": "paused", "limits": {"per_second": 0}, "handshake": "cloud_events"}"#),
        Reach::Named,
    ),
    row("GET /v1/destinations/{id}/health", None, Reach::Named),
    row(
        "PATCH /v1/destinations/{id}/breaker",
        Some(r#"{"opens_after_failures": 7, "disable_after_seconds": 7}"#),
        Reach::Named,
    ),
    row(
        "GET /v1/destinations/{id}/smart-delivery",
        None,
        Reach::Named,
    ),
    row(
        "PATCH /v1/destinations/{id}/smart-delivery",
        Some(r#"{"enabled": true}"#),
        Reach::Named,
    ),
    row("GET /v1/destinations/{id}/handshake", None, Reach::Named),
    row(
        "POST /v1/destinations/{id}/handshake",
        Some("{}"),
        Reach::Named,
    ),
    row("GET /v1/destinations/{id}/explanation", None, Reach::Named),
    row("GET /v1/destinations/{id}/statistics", None, Reach::Named),
    row("GET /v1/standings", None, Reach::Own),
    row("GET /v1/compliance", None, Reach::Own),
    row(
        "POST /v1/destinations/{id}/plan",
        Some(r#"{"limits": {"per_second": 7}}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/destinations/{id}/test",
        Some(r#"{"wait_seconds": 0}"#),
        Reach::Named,
    ),
    row("POST /v1/destinations/{id}/pause", None, Reach::Named),
    row("POST /v1/destinations/{id}/resume", None, Reach::Named),
    row("GET /v1/destinations/{id}/retries", None, Reach::Named),
    row(
        "PUT /v1/destinations/{id}/retries",
        Some(r#"{"max_tries": 7}"#),
        Reach::Named,
    ),
    row("GET /v1/destinations/{id}/batches", None, Reach::Named),
    row(
        "PUT /v1/destinations/{id}/batches",
        Some(r#"{"max_events": 7}"#),
        Reach::Named,
    ),
    row("GET /v1/attempts", None, Reach::Own),
    row("GET /v1/attempts/{id}", None, Reach::Named),
    row("GET /v1/dead-letters", None, Reach::Own),
    row("GET /v1/dead-letters/{id}", None, Reach::Named),
    row(
        "POST /v1/replays",
        Some(r#"{"destination_id": "DESTINATION"}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/replays",
        Some(r#"{"attempt_id": DEAD_LETTER}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/replays",
        Some(r#"{"all_destinations": true}"#),
        Reach::Own,
    ),
    row("GET /v1/replays", None, Reach::Own),
    row("GET /v1/replays/preview", None, Reach::Own),
    row("GET /v1/replays/{id}", None, Reach::Named),
    row("GET /v1/destinations/{id}/alerts", None, Reach::Named),
    row(
        "PATCH /v1/destinations/{id}/alerts",
        Some(r#"{"backlog": 7, "under_delivery_seconds": 7}"#),
        Reach::Named,
    ),
    row("GET /v1/alerts", None, Reach::Own),
    row(
        "PATCH /v1/alerts",
        Some(r#"{"success_percent": 7}"#),
        Reach::Own,
    ),
    row("GET /v1/operational-events", None, Reach::Own),
    row("GET /v1/operational-destinations", None, Reach::Own),
    row(
        "PUT /v1/operational-destinations/{id}",
        Some("{}"),
        Reach::Named,
    ),
    row("GET /v1/notice-addresses", None, Reach::Own),
    row(
        "POST /v1/notice-addresses",
        Some(r#"{"form": "email", "address": "walk@example.com"}"#),
        Reach::Own,
    ),
    row("GET /v1/destinations/{id}/secrets", None, Reach::Named),
    row(
        "POST /v1/destinations/{id}/secrets",
        Some(r#"{"overlap_seconds": 0}"#),
        Reach::Named,
    ),
    row("POST /v1/events", Some(EVENT), Reach::Named),
    row("POST /v1/events/batch", Some(EVENTS), Reach::Own),
    row("POST /v1/events/bulk", Some(EVENT), Reach::Own),
    row("GET /v1/events", None, Reach::Own),
    row("GET /v1/events/{id}", None, Reach::Named),
    row("GET /v1/events/{id}/payload", None, Reach::Named),
    row("GET /v1/event-types", None, Reach::Own),
    row("GET /v1/event-types/{name}", None, Reach::Own),
    row(
        "POST /v1/event-types",
        Some(r#"{"name": "walk", "description": "walks"}"#),
        Reach::Installation,
    ),
    row("DELETE /v1/event-types/{name}", None, Reach::Installation),
    row(
        "PATCH /v1/event-types/{name}",
        Some(r#"{"description": "walked"}"#),
        Reach::Installation,
    ),
    row(
        "PUT /v1/limit-groups/{name}",
        Some(r#"{"limits": {"per_second": 3}}"#),
        Reach::Own,
    ),
    row("GET /v1/limit-groups", None, Reach::Own),
    row("GET /v1/limit-groups/{name}", None, Reach::Own),
    row("DELETE /v1/limit-groups/{name}", None, Reach::Own),
    row(
        "POST /v1/events/{id}/resend",
        Some(r#"{"destination_id": "ELSEWHERE"}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/destinations/{id}/resend",
        Some(r#"{"since": "2026-01-31T12:00:00Z"}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/destinations/{id}/resend/preview",
        Some(r#"{"since": "2026-01-31T12:00:00Z"}"#),
        Reach::Named,
    ),
    row(
        "POST /v1/events/resend",
        Some(r#"{"since": "2026-01-31T12:00:00Z"}"#),
        Reach::Own,
    ),
    row(
        "POST /v1/events/resend/preview",
        Some(r#"{"since": "2026-01-31T12:00:00Z", "only_failed": false}"#),
        Reach::Own,
    ),
    row(
        "POST /v1/limit-requests/{id}/decline",
        Some(r#"{"reason": "walk"}"#),
        Reach::Installation,
    ),
    // One that is open takes the place of another.
    row(
        "POST /v1/destinations/{id}/limit-requests",
        Some(r#"{"limits": {"per_second": 7}}"#),
        Reach::Named,
    ),
    row("GET /v1/limit-requests", None, Reach::Own),
    row(
        "POST /v1/limit-requests",
        Some(r#"{"destinations": 7}"#),
        Reach::Own,
    ),
    row("GET /v1/fleet/limit-requests", None, Reach::Installation),
    row("GET /v1/fleet", None, Reach::Installation),
    row("GET /v1/tenants", None, Reach::Installation),
    row("POST /v1/tenants", Some(TENANT), Reach::Installation),
    row("GET /v1/tenants/{id}", None, Reach::Installation),
    row("PUT /v1/tenants/{id}", Some(TENANT), Reach::Installation),
    row("PATCH /v1/tenants/{id}", Some(TENANT), Reach::Installation),
    row("GET /v1/tenants/{id}/keys", None, Reach::Installation),
    row("POST /v1/tenants/{id}/keys", Some(KEY), Reach::Installation),
    row(
        "DELETE /v1/tenants/{id}/keys/{key_id}",
        None,
        Reach::Installation,
    ),
    row("GET /v1/tenants/{id}/links", None, Reach::Installation),
    row(
        "POST /v1/tenants/{id}/links",
        Some(LINK),
        Reach::Installation,
    ),
    row(
        "DELETE /v1/tenants/{id}/links/{link_id}",
        None,
        Reach::Installation,
    ),
    row("GET /v1/tiers", None, Reach::Installation),
    row(
        "POST /v1/tiers",
        Some(r#"{"name": "walk"}"#),
        Reach::Installation,
    ),
    row("DELETE /v1/tiers/{name}", None, Reach::Installation),
    row(
        "PATCH /v1/tiers/{name}",
        Some(r#"{"tenant_max_in_flight": 7}"#),
        Reach::Installation,
    ),
    // What takes things away comes last.
    row("POST /v1/replays/{id}/cancel", None, Reach::Named),
    row("POST /v1/attempts/{id}/cancel", None, Reach::Named),
    row(
        "POST /v1/destinations/{id}/cancel",
        Some("{}"),
        Reach::Named,
    ),
    row(
        "DELETE /v1/operational-destinations/{id}",
        None,
        Reach::Named,
    ),
    row("DELETE /v1/notice-addresses/{id}", None, Reach::Named),
    row(
        "DELETE /v1/destinations/{id}/secrets/{secret}",
        None,
        Reach::Named,
    ),
    row("DELETE /v1/destinations/{id}", None, Reach::Named),
    // Nothing of it is left then.
    row("DELETE /v1/tenants/{id}", None, Reach::Installation),
];

/// An id that nothing has.
const NOTHING: &str = "00000000-0000-7000-8000-00000000dead";

/// The same, of an attempt.
const NO_ATTEMPT: &str = "9007199254740991";

impl Row {
    fn method(&self) -> Method {
        let (method, _) = self.route.split_once(' ').unwrap();
        method.parse().unwrap()
    }

    fn template(&self) -> &'static str {
        self.route.split_once(' ').unwrap().1
    }

    fn scope(&self) -> Scope {
        let scope = server::api::required().scope(self.template(), &self.method());
        scope.unwrap_or_else(|| panic!("{} asks for no scope", self.route))
    }

    /// The path and the body that name this tenant's things; what is in
    /// neither is the same for all.
    fn of(&self, tenant: &Tenant) -> (String, Option<Value>) {
        let id = match self.kind() {
            "events" => &tenant.event,
            "tenants" => &tenant.id,
            "attempts" => &tenant.attempt,
            "dead-letters" => &tenant.dead_letter,
            "replays" => &tenant.replay,
            "limit-requests" if self.route.ends_with("decline") => &tenant.other_limit_request,
            "limit-requests" => &tenant.limit_request,
            "notice-addresses" => &tenant.notice_address,
            _ => &tenant.destination,
        };
        self.filled(id, tenant.things())
    }

    /// What its id is of: `/v1/KIND/{id}`.
    fn kind(&self) -> &'static str {
        self.template().split('/').nth(2).unwrap()
    }

    /// The same for things that never were.
    fn of_nothing(&self) -> (String, Option<Value>) {
        let id = match self.kind() {
            "attempts" | "dead-letters" => NO_ATTEMPT,
            _ => NOTHING,
        };
        let things = Things {
            destination: NOTHING,
            secret: NOTHING,
            api_key: "00000000000000ff",
            key: "pl_",
            link: "00000000000000ff",
            dead_letter: NO_ATTEMPT,
            elsewhere: NOTHING,
        };
        self.filled(id, things)
    }

    fn filled(&self, id: &str, things: Things<'_>) -> (String, Option<Value>) {
        // What is put is called by its caller.
        let id = match self.route {
            "PUT /v1/destinations/{id}" | "PUT /v1/tenants/{id}" => "walk-7",
            _ => id,
        };
        // A tier that tenants have stays, and a type that is read; these were made a row
        // before.
        let called = match self.route {
            "DELETE /v1/tiers/{name}" | "DELETE /v1/event-types/{name}" => "walk",
            _ if self.kind() == "event-types" => DESCRIBED,
            _ => "free",
        };
        let path = self
            .template()
            .replace("{id}", id)
            .replace("{key_id}", things.api_key)
            .replace("{link_id}", things.link)
            .replace("{secret}", things.secret)
            .replace("{name}", called);
        assert!(!path.contains('{'), "{path}: say what stands there");
        let body = self.body.map(|body| {
            let body = body
                .replace("DESTINATION", things.destination)
                .replace("KEY_TEXT", things.key)
                .replace("DEAD_LETTER", things.dead_letter)
                .replace("ELSEWHERE", things.elsewhere);
            serde_json::from_str(&body).unwrap()
        });
        (path, body)
    }

    async fn call(
        &self,
        world: &World,
        key: &str,
        (path, body): (String, Option<Value>),
    ) -> Answer {
        world.call(Some(key), &self.method(), &path, body).await
    }
}

pub(crate) fn described() -> BTreeSet<String> {
    let document = serde_json::to_value(server::api::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    let ours = operations.filter(|route| route.contains(" /v1/"));
    ours.collect()
}

pub(crate) fn every_described_route_is_walked() {
    let walked: BTreeSet<String> = ROWS.iter().map(|row| row.route.to_owned()).collect();
    let described = described();
    let missing: Vec<_> = described.difference(&walked).collect();
    assert!(
        missing.is_empty(),
        "add a row to ROWS in tests/isolation/walk.rs for {missing:?}"
    );
    let gone: Vec<_> = walked.difference(&described).collect();
    assert!(gone.is_empty(), "not described any more: {gone:?}");
}

/// All that another tenant could tell its things by.
fn traces(tenant: &Tenant) -> [&str; 10] {
    [
        &tenant.id,
        &tenant.destination,
        &tenant.secret,
        &tenant.event,
        &tenant.api_key,
        &tenant.link,
        &tenant.dying,
        &tenant.replay,
        &tenant.limit_request,
        &tenant.notice_address,
    ]
}

/// What an answer says of now differs from look to look.
fn without_clock(json: &mut Value) {
    const OF_NOW: [&str; 3] = ["at", "since", "until"];
    match json {
        Value::Object(fields) => {
            fields.retain(|field, _| !OF_NOW.contains(&field.as_str()));
            fields.values_mut().for_each(without_clock);
        }
        Value::Array(list) => list.iter_mut().for_each(without_clock),
        _ => {}
    }
}

/// All that can be read of a tenant, with the audit until then.
async fn shown(world: &World, tenant: &Tenant, until: &str) -> Vec<Answer> {
    let mut shown = Vec::new();
    for row in ROWS.iter().filter(|row| row.method() == Method::GET) {
        let key = match row.reach {
            Reach::Installation => ADMIN,
            Reach::Named | Reach::Own => &tenant.key,
        };
        // The other tenant's walk may well have made tenants' things of its own.
        if !matches!(
            row.route,
            "GET /v1/tenants" | "GET /v1/tiers" | "GET /v1/fleet" | "GET /v1/fleet/limit-requests"
        ) {
            let (mut path, body) = row.of(tenant);
            if row.route == AUDIT {
                path += &format!("?until={until}");
            }
            let mut answer = row.call(world, key, (path, body)).await;
            without_clock(&mut answer.json);
            shown.push(answer);
        }
    }
    shown
}

const AUDIT: &str = "GET /v1/compliance";

/// Until the audit judges all that there is by now: half a second later. Until when it
/// does, as it says so.
pub(crate) async fn judged(world: &World, tenant: &Tenant) -> String {
    let row = ROWS.iter().find(|row| row.route == AUDIT);
    let row = row.expect("the audit is a route");
    let until = async || {
        let answer = row.call(world, &tenant.key, row.of(tenant)).await;
        let until = answer.json["until"].as_str().expect("it has an end");
        let parsed = chrono::DateTime::parse_from_rfc3339(until);
        (parsed.expect("a time"), until.to_owned())
    };
    let all = until().await.0 + domain::admission::MAX_CLAIM_TO_SEND;
    for _ in 0..100_000 {
        let (judged, said) = until().await;
        if judged >= all {
            return said;
        }
    }
    panic!("the audit does not go on");
}

/// Whatever it names, and whatever it asks for; and ours is as it was.
pub(crate) async fn another_tenants_key_reaches_nothing(world: &World) {
    let until = judged(world, &world.ours).await;
    let before = shown(world, &world.ours, &until).await;
    for row in ROWS {
        let of_ours = row
            .call(world, &world.theirs.key, row.of(&world.ours))
            .await;
        match row.reach {
            Reach::Named => {
                let of_nothing = row.call(world, &world.theirs.key, row.of_nothing()).await;
                assert!(
                    of_ours.status.is_client_error(),
                    "{}: {of_ours:?}",
                    row.route
                );
                assert_eq!(of_ours, of_nothing, "{}", row.route);
            }
            Reach::Own => {
                assert!(of_ours.status.is_success(), "{}: {of_ours:?}", row.route);
                let said = of_ours.json.to_string();
                for trace in traces(&world.ours) {
                    assert!(!said.contains(trace), "{}: {said}", row.route);
                }
            }
            Reach::Installation => {
                assert_eq!(of_ours.status, StatusCode::FORBIDDEN, "{}", row.route);
            }
        }
    }
    let after = shown(world, &world.ours, &until).await;
    assert_eq!(after, before, "ours is as it was");
}

/// What one tenant has called an event, another can call one of its own, with
/// the same content or with another: it is told nothing, and takes nothing.
pub(crate) async fn an_idempotency_key_is_its_tenants(world: &World) {
    let same = r#"{"type": "walk", "payload": 1, "idempotency_key": "walk-1"}"#;
    let other = r#"{"type": "walk", "payload": 2, "idempotency_key": "walk-1"}"#;
    let third = world.tenant("third").await;
    let send = async |tenant: &Tenant, path: &str, event: &str| {
        let body = match path {
            "/v1/events/batch" => format!(r#"{{"events": [{event}]}}"#),
            _ => event.to_owned(),
        };
        let body = serde_json::from_str(&body).unwrap();
        let answer = world.call(Some(&tenant.key), &Method::POST, path, Some(body));
        answer.await
    };
    let first = send(&world.ours, "/v1/events", same).await;
    assert_eq!(first.status, StatusCode::ACCEPTED, "{first:?}");
    let theirs = send(&world.theirs, "/v1/events", same).await;
    assert_eq!(theirs.status, StatusCode::ACCEPTED, "{theirs:?}");
    let at_third = send(&third, "/v1/events", other).await;
    assert_eq!(at_third.status, StatusCode::ACCEPTED, "no conflict");
    for (tenant, theirs) in [(&world.theirs, theirs), (&third, at_third)] {
        assert_ne!(theirs.json["id"], first.json["id"]);
        assert_eq!(theirs.json["destinations"], json!([tenant.destination]));
    }
    // Each one's own is known again, and only so.
    assert_eq!(send(&world.ours, "/v1/events", same).await, first);
    let conflict = send(&world.ours, "/v1/events", other).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    let batch = send(&third, "/v1/events/batch", same).await;
    assert_eq!(batch.json["results"][0]["problem"]["status"], 409);
    let bulk = send(&third, "/v1/events/bulk", same).await;
    assert_eq!(bulk.json[0]["problem"]["status"], 409, "{bulk:?}");
    let bulk = send(&world.theirs, "/v1/events/bulk", same).await;
    assert_eq!(bulk.json[1]["accepted"], 1, "{bulk:?}");
    assert_ne!(bulk.json[0]["id"], first.json["id"]);
}

/// With every other scope, and of the right tenant.
pub(crate) async fn a_key_without_the_routes_scope_is_refused(world: &World) {
    for row in ROWS {
        let missing = row.scope();
        let others = TENANTS_OWN.into_iter().filter(|scope| *scope != missing);
        let mut keys = vec![world.key(&world.ours, &others.collect::<Vec<_>>()).await];
        if missing != Scope::Admin {
            let with_admin = Scope::ALL.into_iter().filter(|scope| *scope != missing);
            let with_admin: Vec<_> = with_admin.collect();
            keys.push(world.key(&world.ours, &with_admin).await);
        }
        for key in keys {
            let answer = row.call(world, &key, row.of(&world.ours)).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{}", row.route);
            let detail = answer.json["detail"].as_str().unwrap();
            assert_eq!(detail, format!("the key lacks the scope {missing}"));
        }
    }
}

/// No key, an unknown one, one with a typing error, one that was revoked.
pub(crate) async fn without_a_good_key_nothing_is_answered(world: &World) {
    let revoked = world.key(&world.ours, &TENANTS_OWN).await;
    let good = world
        .call(Some(&revoked), &Method::GET, "/v1/destinations", None)
        .await;
    assert_eq!(good.status, StatusCode::OK);
    let id = revoked.split('_').nth(1).unwrap();
    let path = format!("/v1/tenants/{}/keys/{id}", world.ours.id);
    let answer = world.call(Some(ADMIN), &Method::DELETE, &path, None).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let unknown = server::access::MintedKey::new(None, [9; 8], [9; 32]);
    let unknown = secrecy::ExposeSecret::expose_secret(&unknown.text).to_owned();
    let typo = format!("{}0", world.ours.key);
    for row in ROWS {
        for key in [None, Some(&unknown), Some(&typo), Some(&revoked)] {
            let (path, body) = row.of(&world.ours);
            let key = key.map(String::as_str);
            let answer = world.call(key, &row.method(), &path, body).await;
            assert_eq!(
                answer.status,
                StatusCode::UNAUTHORIZED,
                "{} with {key:?}",
                row.route
            );
        }
    }
}

/// The same calls with the owner's key are answered, so that the refusals
/// above are for whose key it was. With the route's scope and no other.
pub(crate) async fn the_owner_gets_through(world: &World) {
    let goes_through = async |row: &Row| {
        let key = world.key(&world.ours, &[row.scope()]).await;
        let answer = row.call(world, &key, row.of(&world.ours)).await;
        assert!(answer.status.is_success(), "{}: {answer:?}", row.route);
    };
    let (ends_it, others) = ROWS.split_last().unwrap();
    for row in others {
        goes_through(row).await;
        let admins = row.reach == Reach::Installation;
        assert_eq!(row.scope() == Scope::Admin, admins, "{}", row.route);
    }
    // What one made is the caller's.
    let made = json!({"url": "https://example.com/own"});
    let theirs = &world.theirs;
    let made = world
        .call(
            Some(&theirs.key),
            &Method::POST,
            "/v1/destinations",
            Some(made),
        )
        .await;
    let path = format!("/v1/destinations/{}", made.json["id"].as_str().unwrap());
    let look = async |key: &str| {
        world
            .call(Some(key), &Method::GET, &path, None)
            .await
            .status
    };
    assert_eq!(look(&theirs.key).await, StatusCode::OK);
    // Its first key was revoked on the way.
    let ours = world.key(&world.ours, &TENANTS_OWN).await;
    assert_eq!(look(&ours).await, StatusCode::NOT_FOUND);
    let by_operator = world.operator_sees_theirs(&path).await;
    assert_eq!(by_operator.status, StatusCode::OK, "but the administrator");
    goes_through(ends_it).await;
    assert_eq!(look(&ours).await, StatusCode::UNAUTHORIZED);
}

/// Whatever a path or a replay names by its id, as its owner would: what is shown is the same, and
/// what is changed is. It had been answered 404, and each command of the runbook with
/// it.
pub(crate) async fn an_operator_reaches_what_a_path_names(world: &World) {
    let ours = &world.ours;
    let by_id = |row: &Row| row.template().contains("{id}") || row.kind() == "replays";
    let named = |row: &&Row| row.reach == Reach::Named && by_id(row);
    // Of the operator's own tenant's register, whoever asks.
    let registers = ["operational-destinations", "notice-addresses"];
    let named = |row: &&Row| named(row) && !registers.contains(&row.kind());
    for row in ROWS.iter().filter(named) {
        let mut by_owner = None;
        if row.method() == Method::GET {
            by_owner = Some(row.call(world, &ours.key, row.of(ours)).await);
        }
        let mut by_admin = row.call(world, ADMIN, row.of(ours)).await;
        assert!(by_admin.status.is_success(), "{}: {by_admin:?}", row.route);
        if let Some(mut by_owner) = by_owner {
            for shown in [&mut by_owner.json, &mut by_admin.json] {
                without_clock(shown);
                // How much may be set is by who asks.
                if let Some(fields) = shown.as_object_mut() {
                    fields.remove("ceiling");
                }
            }
            assert_eq!(by_admin, by_owner, "{}", row.route);
        }
        let of_nothing = row.call(world, ADMIN, row.of_nothing()).await;
        assert!(of_nothing.status.is_client_error(), "{}", row.route);
    }
    let path = format!("/v1/destinations/{}", ours.destination);
    let gone = world.call(Some(&ours.key), &Method::GET, &path, None).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND, "it was the owner's");
    let dying = &ours.dying;
    for list in ["dead-letters", "compliance", "replays/preview"] {
        let path = format!("/v1/{list}?destination_id={dying}");
        let by_admin = world.call(Some(ADMIN), &Method::GET, &path, None).await;
        assert_eq!(by_admin.status, StatusCode::OK, "{list}: {by_admin:?}");
        assert!(by_admin.json.to_string().contains(dying.as_str()), "{list}");
    }
}

/// What is no list is not answered of the own tenant as if none had been named.
pub(crate) async fn a_tenant_is_named_for_lists_alone(world: &World) {
    let document = serde_json::to_value(server::api::openapi()).unwrap();
    let is_named = |row: &Row| {
        let method = row.method().as_str().to_ascii_lowercase();
        let parameters = &document["paths"][row.template()][&method]["parameters"];
        let mut parameters = parameters.as_array().into_iter().flatten();
        parameters.any(|one| one["name"] == "tenant" && one["in"] == "query")
    };
    let theirs = &world.theirs;
    let mut lists = 0;
    for row in ROWS.iter().filter(|row| row.scope() != Scope::Admin) {
        let (path, body) = row.of(theirs);
        let path = format!("{path}?tenant={}", theirs.id);
        let answer = world.call(Some(ADMIN), &row.method(), &path, body).await;
        if is_named(row) {
            assert_eq!(answer.status, StatusCode::OK, "{}: {answer:?}", row.route);
            lists += 1;
            continue;
        }
        let refused = StatusCode::UNPROCESSABLE_ENTITY;
        assert_eq!(answer.status, refused, "{}: {answer:?}", row.route);
        assert_eq!(answer.json["field"], "tenant", "{}", row.route);
    }
    assert_eq!(lists, 13);
}

/// The scope is what reaches: another key of the operator's own tenant is answered of
/// what there is as of what never was.
pub(crate) async fn an_operators_tenant_reaches_nothing_without_the_scope(world: &World) {
    let path = format!("/v1/tenants/{}/keys", engine::ports::DEFAULT_TENANT);
    let new = json!({"name": "no operator", "scopes": ["ingest", "manage", "read"]});
    let made = (world.call(Some(ADMIN), &Method::POST, &path, Some(new))).await;
    let key = made.json["key"].as_str().unwrap().to_owned();
    for row in ROWS.iter().filter(|row| row.reach == Reach::Named) {
        let of_ours = row.call(world, &key, row.of(&world.ours)).await;
        let of_nothing = row.call(world, &key, row.of_nothing()).await;
        assert!(of_ours.status.is_client_error(), "{}", row.route);
        assert_eq!(of_ours, of_nothing, "{}", row.route);
    }
}
