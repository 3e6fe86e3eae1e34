//! Two people have the same form open: who is the later one is told what the other has set,
//! and sets nothing back by mistake.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, World};

on_both! {
    a_form_that_is_older_than_a_change_sets_nothing_back
}

const URL: (&str, &str) = ("url", "https://example.com/b");

/// A form, and the same thing over the API.
struct Open {
    /// Where it stands.
    page: String,
    /// Where it goes.
    form: String,
    api: String,
    key: String,
    /// What the API is told meanwhile, and how its form says that.
    change: Value,
    by_now: &'static str,
    /// What the form sets.
    fields: Vec<(&'static str, &'static str)>,
}

/// With what the page says that the form was filled which goes there.
fn was(page: &str, form: &str) -> String {
    let (_, rest) = page.split_once(&format!("action=\"{form}\"")).expect(page);
    let (_, rest) = rest.split_once("name=\"was\" value=\"").expect(page);
    rest.split('"').next().unwrap().to_owned()
}

/// What only operators have forms of: two tiers, a tenant, and a type.
async fn of_operators(world: &World, tenant: &str) -> Vec<Open> {
    let add = async |path: &str, body: Value| world.api(ADMIN, Method::POST, path, body).await;
    let fast = json!({"name": "fast", "unlimited": true});
    add("/v1/tiers", fast).await;
    let sent = json!({"name": "order.sent", "archived": true});
    add("/v1/event-types", sent).await;
    let open = |form: &str, api: &str, change, by_now, fields| Open {
        page: form.to_owned(),
        form: form.to_owned(),
        api: api.to_owned(),
        key: ADMIN.to_owned(),
        change,
        by_now,
        fields,
    };
    let the_type = |change, by_now| {
        open(
            "/dashboard/event-types/order.sent/edit",
            "/v1/event-types/order.sent",
            change,
            by_now,
            vec![("description", "On its way"), ("archived", "yes")],
        )
    };
    vec![
        open(
            "/dashboard/tiers/standard",
            "/v1/tiers/standard",
            json!({"burst": 77}),
            "burst is 77",
            vec![("per_second", "10"), ("burst", "50")],
        ),
        open(
            "/dashboard/tiers/fast",
            "/v1/tiers/fast",
            json!({"unlimited": false}),
            "unlimited is off",
            vec![("unlimited", "yes"), ("tenant_max_destinations", "7")],
        ),
        open(
            &format!("/dashboard/tenants/{tenant}"),
            &format!("/v1/tenants/{tenant}"),
            json!({"tier": "enterprise"}),
            "tier is enterprise",
            vec![("name", "Ours"), ("tier", "free")],
        ),
        the_type(json!({"description": "Sent"}), "description is Sent"),
        the_type(json!({"archived": false}), "archived is off"),
    ]
}

/// What a tenant has forms of: a group, and a destination with what its form shows, what
/// can be ticked there, and what is never shown.
async fn of_the_tenant(world: &World, key: &str, destination: &str) -> Vec<Open> {
    let group = "/v1/limit-groups/acme".to_owned();
    let two = json!({"limits": {"per_second": 2}});
    world.api(key, Method::PUT, &group, two).await;
    let api = format!("/v1/destinations/{destination}");
    let ticked = json!({"pass_traceparent": true});
    world.api(key, Method::PATCH, &api, ticked).await;
    let edit = format!("/dashboard/destinations/{destination}/edit");
    let open = |change, by_now, of: &[(&'static str, &'static str)]| Open {
        page: edit.clone(),
        form: edit.clone(),
        api: api.clone(),
        key: key.to_owned(),
        change,
        by_now,
        fields: [&[URL, ("delivery", "yes")], of].concat(),
    };
    vec![
        Open {
            page: "/dashboard/limit-groups/acme".to_owned(),
            form: "/dashboard/limit-groups/acme".to_owned(),
            api: group,
            key: key.to_owned(),
            change: json!({"limits": {"per_second": 3}}),
            by_now: "per_second is 3",
            fields: vec![("per_second", "4")],
        },
        open(
            json!({"pass_traceparent": false}),
            "pass_traceparent is off",
            &[("pass_traceparent", "yes")],
        ),
        open(
            json!({"event_types": ["order.*", "customer.*"]}),
            "event_types is order.* customer.*",
            &[("event_types", "order.paid")],
        ),
        open(
            json!({"headers": {"x-api-key": "another's"}}),
            "its headers, certificate or client",
            &[("event_types", "order.paid"), ("replace_headers", "yes")],
        ),
        Open {
            page: format!("/dashboard/destinations/{destination}"),
            form: format!("/dashboard/destinations/{destination}/limits"),
            api: api.clone(),
            key: key.to_owned(),
            change: json!({"limits": {"per_second": 3}}),
            by_now: "per_second is 3",
            fields: vec![("per_second", "2")],
        },
    ]
}

/// Both forms of when people are told of it and when its breaker opens.
fn of_one_page(key: &str, destination: &str) -> [Open; 2] {
    let page = format!("/dashboard/destinations/{destination}/alerts");
    let open = |what: &str, change, by_now, fields| Open {
        page: page.clone(),
        form: format!("/dashboard/destinations/{destination}/{what}"),
        api: format!("/v1/destinations/{destination}/{what}"),
        key: key.to_owned(),
        change,
        by_now,
        fields,
    };
    [
        open(
            "alerts",
            json!({"backlog": 7_000}),
            "backlog is 7000",
            vec![("backlog", "9000"), ("failing_percent", "51")],
        ),
        open(
            "breaker",
            json!({"opens_after_failures": 21}),
            "opens_after_failures is 21",
            vec![("opens_after_failures", "22")],
        ),
    ]
}

/// As the API has it: of tiers it has a list alone, and a breaker within the health.
async fn standing(world: &World, open: &Open) -> Value {
    let of = async |path: &str| world.api(&open.key, Method::GET, path, json!({})).await;
    if let Some(destination) = open.api.strip_suffix("/breaker") {
        return of(&format!("{destination}/health")).await;
    }
    let Some(name) = open.api.strip_prefix("/v1/tiers/") else {
        return of(&open.api).await;
    };
    let tiers = of("/v1/tiers").await;
    let tiers = tiers["tiers"].as_array().unwrap().iter();
    let mut found = tiers.filter(|tier| tier["name"] == name).cloned();
    found.next().unwrap()
}

async fn a_form_that_is_older_than_a_change_sets_nothing_back(world: &World) {
    let (tenant, key, destination) = world.tenant("ours", &["manage", "read"]).await;
    let mut all = of_operators(world, &tenant).await;
    all.extend(of_the_tenant(world, &key, &destination).await);
    all.extend(of_one_page(&key, &destination));
    for open in all {
        let visitor = world.sign_in(&open.key).await;
        let page = world.get(&visitor, &open.page).await.text;
        let old = was(&page, &open.form);
        let method = match open.api.contains("limit-groups") {
            true => Method::PUT,
            false => Method::PATCH,
        };
        let change = open.change.clone();
        world.api(&open.key, method, &open.api, change).await;
        let before = standing(world, &open).await;
        let post = async |was: &str| {
            let fields = [&open.fields[..], &[("was", was)]].concat();
            world.post(&visitor, &open.form, &fields).await
        };
        let told = post(&old).await;
        assert_eq!(told.status, 409, "{}: {}", open.form, told.text);
        for shown in ["Somebody has changed it meanwhile", open.by_now] {
            assert!(told.text.contains(shown), "{shown}: {}", told.text);
        }
        for (name, text) in &open.fields {
            assert!(told.text.contains(text), "{name} as typed: {}", told.text);
        }
        let after = standing(world, &open).await;
        assert_eq!(after, before, "{}", open.form);
        // Whoever has read that may set it all the same.
        let set = post(&was(&told.text, &open.form)).await;
        assert_eq!(set.status, 303, "{}: {}", open.form, set.text);
        let set = standing(world, &open).await;
        assert_ne!(set, before, "{}", open.form);
    }
}
