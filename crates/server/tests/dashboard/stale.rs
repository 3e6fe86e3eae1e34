//! Two people have the same form open: who is the later one is told what the other has set,
//! and sets nothing back by mistake.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, World};

on_both! {
    a_form_that_is_older_than_a_change_sets_nothing_back
}

/// A form, and the same thing over the API.
struct Open {
    form: String,
    api: String,
    key: String,
    /// What the API is told meanwhile, and how its form says that.
    change: Value,
    by_now: &'static str,
    /// What the form sets.
    fields: Vec<(&'static str, &'static str)>,
}

/// With what the page says that its form was filled.
fn was(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"was\" value=\"").expect(page);
    rest.split('"').next().unwrap().to_owned()
}

/// A tier, a tenant, a group, and a destination.
async fn opened(world: &World) -> [Open; 4] {
    let (tenant, key, destination) = world.tenant("ours", &["manage", "read"]).await;
    let group = "/v1/limit-groups/acme".to_owned();
    let two = json!({"limits": {"per_second": 2}});
    world.api(&key, Method::PUT, &group, two).await;
    let admin = ADMIN.to_owned();
    [
        Open {
            form: "/dashboard/tiers/standard".to_owned(),
            api: "/v1/tiers/standard".to_owned(),
            key: admin.clone(),
            change: json!({"burst": 77}),
            by_now: "burst is 77",
            fields: vec![("per_second", "10"), ("burst", "50")],
        },
        Open {
            form: format!("/dashboard/tenants/{tenant}"),
            api: format!("/v1/tenants/{tenant}"),
            key: admin,
            change: json!({"tier": "enterprise"}),
            by_now: "tier is enterprise",
            fields: vec![("name", "Ours"), ("tier", "free")],
        },
        Open {
            form: "/dashboard/limit-groups/acme".to_owned(),
            api: group,
            key: key.clone(),
            change: json!({"limits": {"per_second": 3}}),
            by_now: "per_second is 3",
            fields: vec![("per_second", "4")],
        },
        Open {
            form: format!("/dashboard/destinations/{destination}/edit"),
            api: format!("/v1/destinations/{destination}"),
            key,
            change: json!({"event_types": ["order.*", "customer.*"]}),
            by_now: "event_types is order.* customer.*",
            fields: vec![
                ("url", "https://example.com/b"),
                ("event_types", "order.paid"),
            ],
        },
    ]
}

async fn a_form_that_is_older_than_a_change_sets_nothing_back(world: &World) {
    for open in opened(world).await {
        let visitor = world.sign_in(&open.key).await;
        let page = world.get(&visitor, &open.form).await.text;
        let old = was(&page);
        let method = match open.api.contains("limit-groups") {
            true => Method::PUT,
            false => Method::PATCH,
        };
        world.api(&open.key, method, &open.api, open.change).await;
        let now = async || {
            world
                .api(&open.key, Method::GET, &open.api, json!({}))
                .await
        };
        let is_tier = open.api.starts_with("/v1/tiers");
        let before = if is_tier { Value::Null } else { now().await };
        let with = |was: &str| {
            let was = ("was".to_owned(), was.to_owned());
            let fields = open.fields.iter();
            let fields = fields.map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
            fields.chain([was]).collect::<Vec<_>>()
        };
        let post = async |was: &str| {
            let fields = with(was);
            let fields: Vec<_> = (fields.iter())
                .map(|(name, text)| (name.as_str(), text.as_str()))
                .collect();
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
        if !is_tier {
            assert_eq!(now().await, before, "{}", open.form);
        }
        // Whoever has read that may set it all the same.
        let set = post(&was(&told.text)).await;
        assert_eq!(set.status, 303, "{}: {}", open.form, set.text);
    }
}
