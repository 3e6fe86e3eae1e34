//! Every route of the dashboard, and who reaches what by it. A route that the router has
//! and this table has not is a test that fails.

use std::collections::{BTreeSet, HashMap};

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, HOST, Page, Visitor, World};

/// Where the router is written.
const ROUTER: &str = include_str!("../../src/pages.rs");

/// Whose things are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Nobody's.
    Nothing,
    /// All of the session's own tenant, and nothing of others.
    Own,
    /// What is named, of the session's own tenant.
    Named,
    /// The installation's.
    Any,
}

use Reach::{Any, Named, Nothing, Own};

/// A method, a path, the scope that it takes (none: no session), what it reaches, and what
/// a form says. A field in braces is an id of the tenant whose things are asked for.
type Row = (
    &'static str,
    &'static str,
    Reach,
    &'static [(&'static str, &'static str)],
);

/// Those that delete come after those that need what they delete.
const ROUTES: &[Row] = &[
    ("GET /", "", Nothing, &[]),
    ("GET /dashboard/assets/{name}", "", Nothing, &[]),
    ("GET /dashboard/sign-in", "", Nothing, &[]),
    ("POST /dashboard/sign-in", "", Nothing, &[("key", "wrong")]),
    ("GET /dashboard/links/{token}", "", Nothing, &[]),
    ("POST /dashboard/links/{token}", "", Nothing, &[]),
    ("GET /dashboard", "read", Own, &[]),
    ("GET /dashboard?search=theirs", "read", Own, &[]),
    ("GET /dashboard/live", "read", Own, &[]),
    ("GET /dashboard/destinations/new", "manage", Own, &[]),
    ("GET /dashboard/destinations/{id}", "read", Named, &[]),
    ("GET /dashboard/destinations/{id}/live", "read", Named, &[]),
    (
        "GET /dashboard/destinations/{id}/attempts",
        "read",
        Named,
        &[],
    ),
    (
        "GET /dashboard/destinations/{id}/edit",
        "manage",
        Named,
        &[],
    ),
    (
        "GET /dashboard/destinations/{id}/alerts",
        "read",
        Named,
        &[],
    ),
    ("GET /dashboard/attempts", "read", Own, &[]),
    ("GET /dashboard/attempts?type=a.b", "read", Own, &[]),
    ("GET /dashboard/attempts/{id}", "read", Named, &[]),
    ("GET /dashboard/events", "read", Own, &[]),
    ("GET /dashboard/events?type=a.b", "read", Own, &[]),
    ("GET /dashboard/events/{id}", "read", Named, &[]),
    ("GET /dashboard/event-types", "read", Own, &[]),
    ("GET /dashboard/event-types/{name}", "read", Own, &[]),
    ("GET /dashboard/limit-groups", "read", Own, &[]),
    ("GET /dashboard/limit-groups/{name}", "read", Named, &[]),
    ("GET /dashboard/dead-letters", "read", Own, &[]),
    ("GET /dashboard/replays/{id}", "read", Named, &[]),
    ("GET /dashboard/replays/{id}/live", "read", Named, &[]),
    ("GET /dashboard/audit", "read", Own, &[]),
    ("GET /dashboard/requests", "read", Own, &[]),
    ("GET /dashboard/links", "manage", Own, &[]),
    ("GET /dashboard/alerts", "read", Own, &[]),
    ("GET /dashboard/fleet", "admin", Any, &[]),
    ("GET /dashboard/fleet/live", "admin", Any, &[]),
    ("GET /dashboard/tenants", "admin", Any, &[]),
    ("GET /dashboard/tenants/{id}", "admin", Any, &[]),
    ("GET /dashboard/tenants/{id}/live", "admin", Any, &[]),
    ("GET /dashboard/tenants/{id}/alerts", "admin", Any, &[]),
    ("GET /dashboard/tiers", "admin", Any, &[]),
    ("GET /dashboard/tiers/{name}", "admin", Any, &[]),
    ("GET /dashboard/event-types/{name}/edit", "admin", Any, &[]),
    (
        "POST /dashboard/destinations",
        "manage",
        Own,
        &[("url", "https://example.com/x")],
    ),
    (
        "POST /dashboard/destinations/{id}/edit",
        "manage",
        Named,
        &[("url", "https://x.example/")],
    ),
    (
        "POST /dashboard/destinations/{id}/limits",
        "manage",
        Named,
        &[("preview", "1")],
    ),
    (
        "POST /dashboard/destinations/{id}/limits",
        "manage",
        Named,
        &[("per_second", "1")],
    ),
    (
        "POST /dashboard/destinations/{id}/state",
        "manage",
        Named,
        &[("state", "paused")],
    ),
    (
        "POST /dashboard/destinations/{id}/secrets",
        "manage",
        Named,
        &[],
    ),
    (
        "POST /dashboard/destinations/{id}/secrets/{secret}",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/destinations/{id}/handshake",
        "manage",
        Named,
        &[],
    ),
    (
        "POST /dashboard/destinations/{id}/alerts",
        "manage",
        Named,
        &[("backlog", "7")],
    ),
    (
        "POST /dashboard/destinations/{id}/breaker",
        "manage",
        Named,
        &[("opens_after_failures", "7")],
    ),
    (
        "POST /dashboard/destinations/{id}/resend",
        "manage",
        Named,
        &[("hours", "24")],
    ),
    (
        "POST /dashboard/destinations/{id}/trial",
        "manage",
        Named,
        &[],
    ),
    (
        "POST /dashboard/events/{id}/resend",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/attempts/{id}/cancel",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/destinations/{id}/cancel",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/events/resend",
        "manage",
        Own,
        &[("hours", "24")],
    ),
    (
        "POST /dashboard/events/resend",
        "manage",
        Own,
        &[("hours", "24"), ("sure", "yes")],
    ),
    (
        "POST /dashboard/replays",
        "manage",
        Named,
        &[("destination", "{destinations}")],
    ),
    (
        "POST /dashboard/replays",
        "manage",
        Named,
        &[("attempt", "{attempts}")],
    ),
    (
        "POST /dashboard/replays/{id}/cancel",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/limit-groups",
        "manage",
        Own,
        &[("name", "new"), ("per_second", "7")],
    ),
    (
        "POST /dashboard/limit-groups/{name}",
        "manage",
        Named,
        &[("per_second", "7")],
    ),
    (
        "POST /dashboard/limit-groups/{name}/delete",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/links",
        "manage",
        Own,
        &[("seconds", "3600")],
    ),
    (
        "POST /dashboard/alerts",
        "manage",
        Own,
        &[("success_percent", "1")],
    ),
    (
        "POST /dashboard/alerts/addresses",
        "manage",
        Own,
        &[("form", "email"), ("address", "new@example.com")],
    ),
    (
        "POST /dashboard/alerts/addresses/{id}",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/alerts/destinations",
        "manage",
        Named,
        &[("told", "{destinations}")],
    ),
    (
        "POST /dashboard/alerts/destinations/{id}",
        "manage",
        Named,
        &[],
    ),
    (
        "POST /dashboard/destinations/{id}/delete",
        "manage",
        Named,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/requests",
        "manage",
        Own,
        &[("destinations", "7")],
    ),
    (
        "POST /dashboard/requests/{id}",
        "admin",
        Any,
        &[("decision", "approve")],
    ),
    (
        "POST /dashboard/event-types",
        "admin",
        Any,
        &[("name", "new.type")],
    ),
    (
        "POST /dashboard/event-types/{name}/edit",
        "admin",
        Any,
        &[("archived", "yes")],
    ),
    (
        "POST /dashboard/event-types/{name}/delete",
        "admin",
        Any,
        &[("sure", "yes")],
    ),
    ("POST /dashboard/tenants", "admin", Any, &[("name", "new")]),
    (
        "POST /dashboard/tenants/{id}",
        "admin",
        Any,
        &[("name", "new"), ("tier", "free")],
    ),
    ("POST /dashboard/tenants/{id}/open", "admin", Any, &[]),
    (
        "POST /dashboard/tenants/{id}/keys",
        "admin",
        Any,
        &[("scope_read", "on")],
    ),
    (
        "POST /dashboard/tenants/{id}/keys/{key}",
        "admin",
        Any,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/tenants/{id}/links",
        "admin",
        Any,
        &[("seconds", "3600")],
    ),
    (
        "POST /dashboard/tenants/{id}/links/{link}",
        "manage",
        Any,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/tenants/{id}/alerts",
        "admin",
        Any,
        &[("success_percent", "1")],
    ),
    (
        "POST /dashboard/tenants/{id}/alerts/addresses",
        "admin",
        Any,
        &[("form", "email"), ("address", "new@example.com")],
    ),
    (
        "POST /dashboard/tenants/{id}/alerts/addresses/{address}",
        "admin",
        Any,
        &[("sure", "yes")],
    ),
    (
        "POST /dashboard/tenants/{id}/alerts/destinations",
        "admin",
        Any,
        &[("told", "{destinations}")],
    ),
    (
        "POST /dashboard/tenants/{id}/alerts/destinations/{destination}",
        "admin",
        Any,
        &[],
    ),
    (
        "POST /dashboard/tenants/{id}/delete",
        "admin",
        Any,
        &[("sure", "yes")],
    ),
    ("POST /dashboard/tiers", "admin", Any, &[("name", "new")]),
    (
        "POST /dashboard/tiers/{name}",
        "admin",
        Any,
        &[("per_second", "7")],
    ),
    (
        "POST /dashboard/tiers/{name}/delete",
        "admin",
        Any,
        &[("sure", "yes")],
    ),
    ("POST /dashboard/sign-out", "", Nothing, &[]),
];

/// The paths of all that is looked at.
pub(crate) fn looked_at() -> BTreeSet<&'static str> {
    let looks = ROUTES
        .iter()
        .filter_map(|(route, ..)| route.strip_prefix("GET "));
    looks.map(|path| path.split('?').next().unwrap()).collect()
}

on_both! {
    another_tenants_session_reaches_nothing
    a_session_does_what_its_scopes_say
}

/// The paths as they are written, the methods as the router tells them to whoever asks
/// with another one.
#[tokio::test]
async fn the_table_has_all_routes_of_the_router() {
    let world = World::over(Place::sqlite()).await;
    let written = ROUTER.split(".route(").skip(1);
    let paths = written.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    let paths: BTreeSet<_> = paths.collect();
    assert!(paths.len() > 50, "{paths:?}");
    let mut has = BTreeSet::new();
    for path in paths {
        let asked = path.replace(['{', '}'], "");
        let asked = Request::builder().method(Method::TRACE).uri(asked);
        let asked = asked.header("host", HOST).body(Body::empty());
        let answer = world.request(asked.unwrap()).await;
        assert_eq!(answer.status, 405, "{path}");
        let allowed = answer.headers["allow"].to_str().unwrap().split(',');
        let allowed = allowed.filter(|method| *method != "HEAD");
        has.extend(allowed.map(|method| format!("{method} {path}")));
    }
    let table = ROUTES.iter();
    let table = table.map(|(route, ..)| route.split('?').next().unwrap().to_owned());
    let table: BTreeSet<_> = table.collect();
    let differ: Vec<_> = has.symmetric_difference(&table).collect();
    assert!(differ.is_empty(), "in one of them alone: {differ:#?}");
}

/// A tenant with one of everything that a path can name.
struct Tenant {
    id: String,
    key: String,
    /// By the part of a path that they follow.
    ids: HashMap<&'static str, String>,
}

impl Tenant {
    async fn with_everything(world: &World, name: &str) -> Self {
        let all = ["ingest", "manage", "read"];
        let (id, key, destination) = world.tenant(name, &all).await;
        let post = async |path: &str, body: Value| world.api(&key, Method::POST, path, body).await;
        let text = |found: &Value, field: &str| found[field].as_str().unwrap().to_owned();
        let event = json!({"destination_id": destination, "type": "a.b", "payload": {}});
        let event = post("/v1/events", event).await;
        // It came too early for whoever wants its type now.
        let early = json!({"type": "early", "payload": {}});
        post("/v1/events", early).await;
        let wants = json!({"event_types": ["early"]});
        let path = format!("/v1/destinations/{destination}");
        world.api(&key, Method::PATCH, &path, wants).await;
        let attempts = format!("/v1/destinations/{destination}/attempts");
        let attempts = world.api(&key, Method::GET, &attempts, json!({})).await;
        let secrets = format!("/v1/destinations/{destination}/secrets");
        let secrets = world.api(&key, Method::GET, &secrets, json!({})).await;
        let address = json!({"form": "email", "address": format!("{name}@example.com")});
        let address = post("/v1/notice-addresses", address).await;
        let group = format!("group-of-{name}");
        let limits = json!({"limits": {"per_second": 5}});
        let put = format!("/v1/limit-groups/{group}");
        world.api(&key, Method::PUT, &put, limits).await;
        let links = format!("/v1/tenants/{id}/links");
        let link = world.api(ADMIN, Method::POST, &links, json!({})).await;
        let visitor = world.sign_in(&key).await;
        let page = format!("/dashboard/destinations/{destination}");
        let more = [("per_second", "11"), ("note", name)];
        world.post(&visitor, &format!("{page}/limits"), &more).await;
        let requests = world.api(&key, Method::GET, "/v1/limit-requests", json!({}));
        let requests = requests.await;
        let missed = [("hours", "24"), ("sure", "yes")];
        let resend = format!("{page}/resend");
        let begun = world.post(&visitor, &resend, &missed).await;
        let replay = begun.headers["location"].to_str().unwrap().to_owned();
        let ids = HashMap::from([
            ("events", text(&event, "id")),
            ("attempts", attempts["attempts"][0]["id"].to_string()),
            ("secrets", text(&secrets["secrets"][0], "id")),
            ("addresses", text(&address, "id")),
            ("requests", text(&requests["limit_requests"][0], "id")),
            ("replays", replay.rsplit('/').next().unwrap().to_owned()),
            ("destinations", destination),
            ("limit-groups", group),
            ("tenants", id.clone()),
            ("keys", key[3..19].to_owned()),
            ("links", text(&link, "id")),
            // The installation's.
            ("event-types", "order.paid".to_owned()),
            ("tiers", "standard".to_owned()),
            ("assets", "none".to_owned()),
        ]);
        Self { id, key, ids }
    }

    /// Where a route leads among its things.
    fn path(&self, route: &str) -> String {
        let (_, path) = route.split_once(' ').unwrap();
        let mut before = "";
        let parts = path.split('/').map(|part| {
            let filled = match part.starts_with('{') {
                true => self.ids[before].as_str(),
                false => part,
            };
            before = part;
            filled
        });
        parts.collect::<Vec<_>>().join("/")
    }

    async fn asked(&self, world: &World, visitor: &Visitor, row: &Row) -> Page {
        let (route, _, _, fields) = row;
        let path = self.path(route);
        if route.starts_with("GET ") {
            return world.get(visitor, &path).await;
        }
        let named = |value: &'static str| value.strip_prefix('{')?.strip_suffix('}');
        let fields = fields.iter().map(|(name, value)| {
            let value = named(value).map_or(*value, |kind| &self.ids[kind]);
            (*name, value)
        });
        let fields: Vec<_> = fields.collect();
        world.post(visitor, &path, &fields).await
    }

    /// What others must not have changed.
    async fn standing(&self, world: &World) -> Vec<Value> {
        let mut found = Vec::new();
        let destination = format!("/v1/destinations/{}", self.ids["destinations"]);
        for path in [
            destination.clone(),
            format!("{destination}/alerts"),
            format!("{destination}/attempts"),
            format!("{destination}/health"),
            format!("{destination}/secrets"),
            format!("/v1/limit-groups/{}", self.ids["limit-groups"]),
            format!("/v1/replays/{}", self.ids["replays"]),
            "/v1/replays".to_owned(),
            "/v1/limit-groups".to_owned(),
            "/v1/limit-requests".to_owned(),
            "/v1/notice-addresses".to_owned(),
            "/v1/operational-destinations".to_owned(),
            "/v1/alerts".to_owned(),
        ] {
            found.push(world.api(&self.key, Method::GET, &path, json!({})).await);
        }
        for path in ["", "/keys", "/links"] {
            let path = format!("/v1/tenants/{}{path}", self.id);
            found.push(world.api(ADMIN, Method::GET, &path, json!({})).await);
        }
        found
    }
}

async fn describe(world: &World) {
    let paid = json!({"name": "order.paid", "description": "An order was paid"});
    world
        .api(ADMIN, Method::POST, "/v1/event-types", paid)
        .await;
}

async fn another_tenants_session_reaches_nothing(world: &World) {
    describe(world).await;
    let theirs = Tenant::with_everything(world, "theirs").await;
    let ours = Tenant::with_everything(world, "ours").await;
    let [their, our] = [&theirs, &ours].map(|tenant| world.sign_in(&tenant.key));
    let (their, our) = (their.await, our.await);
    let was = theirs.standing(world).await;
    let of_the_installation = ["event-types", "tiers", "assets"];
    let ids = theirs.ids.iter();
    let ids = ids.filter(|(kind, id)| !of_the_installation.contains(kind) && id.len() > 10);
    let ids: Vec<_> = ids.map(|(_, id)| id.as_str()).collect();
    for row in ROUTES.iter().filter(|row| row.2 != Nothing) {
        let (route, _, reach, _) = row;
        if *reach == Named && route.starts_with("GET ") {
            let page = theirs.asked(world, &their, row).await;
            assert_eq!(page.status, 200, "theirs {route}: {}", page.text);
        }
        let page = theirs.asked(world, &our, row).await;
        match reach {
            Named => assert_eq!(page.status, 404, "{route}: {}", page.text),
            Any => assert_eq!(page.status, 403, "{route}: {}", page.text),
            Own | Nothing => {
                let is_done = page.status.is_success() || page.status.is_redirection();
                assert!(is_done, "{route}: {} {}", page.status, page.text);
                for id in &ids {
                    assert!(!page.text.contains(id), "{route} shows {id}");
                }
            }
        }
    }
    assert_eq!(theirs.standing(world).await, was);
    // Who may, finds all of it: it was not refused for a wrong path.
    let forms = ROUTES.iter().filter(|row| row.0.starts_with("POST "));
    // But for a dead letter, which none of the attempts is.
    let forms = forms.filter(|row| !row.3.iter().any(|(name, _)| *name == "attempt"));
    for row in forms.filter(|row| row.2 == Named) {
        let page = theirs.asked(world, &their, row).await;
        let is_there = ![403, 404, 405].contains(&page.status.as_u16());
        assert!(is_there, "{}: {} {}", row.0, page.status, page.text);
    }
}

/// What a key may not do is refused, and its pages have no form for it.
async fn a_session_does_what_its_scopes_say(world: &World) {
    describe(world).await;
    let ours = Tenant::with_everything(world, "ours").await;
    let was = ours.standing(world).await;
    let keys = format!("/v1/tenants/{}/keys", ours.id);
    for scopes in [
        &["read"][..],
        &["read", "manage"],
        &["read", "manage", "ingest"],
    ] {
        let key = json!({"scopes": scopes});
        let key = world.api(ADMIN, Method::POST, &keys, key).await;
        let visitor = world.sign_in(key["key"].as_str().unwrap()).await;
        for row in ROUTES.iter().filter(|row| row.2 != Nothing) {
            let (route, needs, ..) = row;
            let may = scopes.contains(needs);
            let looks = route.starts_with("GET ");
            if may && !looks {
                continue;
            }
            let page = ours.asked(world, &visitor, row).await;
            let wanted = if may { 200 } else { 403 };
            assert_eq!(page.status, wanted, "{scopes:?} {route}: {}", page.text);
            let forms = page.text.split("<form").skip(1);
            let forms = forms.filter(|form| {
                let (tag, _) = form.split_once('>').unwrap();
                tag.contains("method=\"post\"") && !tag.contains("/dashboard/sign-out")
            });
            let forms = forms.count();
            assert!(scopes.len() > 1 || forms == 0, "{route}: {}", page.text);
        }
    }
    // But for the keys themselves.
    let still = ours.standing(world).await;
    let but_keys = |mut found: Vec<Value>| {
        found.remove(found.len() - 2);
        found
    };
    assert_eq!(but_keys(still), but_keys(was));
    let operator = world.sign_in(ADMIN).await;
    for row in ROUTES.iter().filter(|row| row.0.starts_with("GET ")) {
        if row.2 == Any {
            let page = ours.asked(world, &operator, row).await;
            assert_eq!(page.status, 200, "{}: {}", row.0, page.text);
        }
    }
}
