//! Things that are there, by the names that `seeded.toml` has for their ids.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::site::Site;

/// What is looked at is one thing, and what an operation does away with another.
const DESTINATIONS: [(&str, &str); 8] = [
    ("DESTINATION", "kept"),
    ("DELETED_DESTINATION", "to be deleted"),
    ("ASKED_DESTINATION", "asked first"),
    ("ROTATED_DESTINATION", "with two secrets"),
    ("TOLD_DESTINATION", "told of alerts"),
    ("PAUSED_DESTINATION", "paused"),
    ("APPROVED", "gets more"),
    ("DECLINED", "gets no more"),
];

/// Whose they are: our own tenant's, or those of one that we act for.
struct Owner<'a> {
    site: &'a Site,
    tenant: Option<&'a str>,
}

impl Owner<'_> {
    fn post(&self, path: &str, body: &Value) -> Value {
        match self.tenant {
            Some(tenant) => self.site.acting(tenant, "POST", path, body),
            None => self.site.post(path, body),
        }
    }

    fn put(&self, path: &str, body: &Value) -> Value {
        match self.tenant {
            Some(tenant) => self.site.acting(tenant, "PUT", path, body),
            None => self.site.put(path, body),
        }
    }

    fn get(&self, path: &str) -> Value {
        match self.tenant {
            Some(tenant) => self.site.acting(tenant, "GET", path, &json!({})),
            None => self.site.get(path),
        }
    }
}

fn id(thing: &Value) -> String {
    match &thing["id"] {
        Value::String(id) => id.clone(),
        other => other.to_string(),
    }
}

fn destination(owner: &Owner<'_>, name: &str, settings: &Value) -> String {
    // Nobody is there.
    let mut body = json!({"url": "http://127.0.0.1:9/hooks", "name": name, "event_types": ["*"]});
    let settings = settings.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(settings);
    id(&owner.post("/v1/destinations", &body))
}

/// Plants them, for ourselves or for this tenant.
pub(crate) fn planted(site: &Site, tenant: Option<&str>) -> Vec<(&'static str, String)> {
    let owner = &Owner { site, tenant };
    let mut seeds = Vec::new();
    for (variable, name) in DESTINATIONS {
        let settings = match variable {
            "ASKED_DESTINATION" => json!({"handshake": "cloud_events"}),
            "PAUSED_DESTINATION" => json!({"limits": {"per_second": 0}}),
            _ => json!({}),
        };
        let mut planted = destination(owner, name, &settings);
        let path = format!("/v1/destinations/{planted}");
        match variable {
            "ROTATED_DESTINATION" => {
                owner.post(&format!("{path}/secrets"), &json!({}));
                let secrets = owner.get(&format!("{path}/secrets"));
                let oldest = secrets["secrets"].as_array().unwrap().last();
                seeds.push(("SECRET", id(oldest.unwrap())));
            }
            "TOLD_DESTINATION" => {
                let path = format!("/v1/operational-destinations/{planted}");
                owner.put(&path, &json!({}));
            }
            "APPROVED" | "DECLINED" => {
                let wanted = json!({"limits": {"per_second": 7}, "note": "for the sale"});
                planted = id(&owner.post(&format!("{path}/limit-requests"), &wanted));
            }
            _ => {}
        }
        seeds.push((variable, planted));
    }
    destination(owner, "yours", &json!({"external_id": "endpoint-7"}));
    let address = json!({"form": "email", "address": "someone@example.com"});
    seeds.push(("ADDRESS", id(&owner.post("/v1/notice-addresses", &address))));
    seeds.extend(delivered(owner, &seeds));
    seeds.extend(administered(site));
    for name in ["kept.one", "deleted.one"] {
        site.post("/v1/tiers", &json!({ "name": name }));
        site.post("/v1/event-types", &json!({ "name": name }));
        let group = format!("/v1/limit-groups/{name}");
        owner.put(&group, &json!({"limits": {"per_second": 5}}));
    }
    seeds
}

fn of<'a>(seeds: &'a [(&str, String)], name: &str) -> &'a str {
    let found = seeds.iter().find(|(variable, _)| *variable == name);
    &found.unwrap().1
}

/// An event that was given up, one that waits, and a replay that goes on.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn delivered(owner: &Owner<'_>, seeds: &[(&str, String)]) -> Vec<(&'static str, String)> {
    let kept = of(seeds, "DESTINATION");
    let retries = format!("/v1/destinations/{kept}/retries");
    owner.put(&retries, &json!({"max_tries": 1}));
    let event = json!({"destination_id": kept, "type": "order.paid", "payload": {"order": 17}});
    let event = id(&owner.post("/v1/events", &event));
    let dead = (0..600).find_map(|_| {
        let dead = owner.get("/v1/dead-letters")["dead_letters"][0].clone();
        if dead.is_null() {
            thread::sleep(Duration::from_millis(100));
            return None;
        }
        Some(id(&dead))
    });
    let paused = of(seeds, "PAUSED_DESTINATION");
    owner.post(
        "/v1/events",
        &json!({"destination_id": paused, "payload": 1}),
    );
    let waiting = owner.get(&format!("/v1/attempts?destination_id={paused}"));
    let waiting = id(&waiting["attempts"][0]);
    let again = json!({ "destination_id": paused });
    let begun = owner.post(&format!("/v1/events/{event}/resend"), &again);
    let replay = id(&begun["replays"][0]);
    vec![
        ("EVENT", event),
        ("DEAD_LETTER", dead.expect("it is given up within a minute")),
        ("WAITING", waiting),
        ("REPLAY", replay),
    ]
}

/// A tenant with a key and a link that can be revoked, and another one.
fn administered(site: &Site) -> Vec<(&'static str, String)> {
    let tenant = json!({"name": "Acme", "external_id": "customer-42"});
    site.post("/v1/tenants", &tenant);
    let other = site.post("/v1/tenants", &json!({"name": "to be deleted"}));
    let of = "/v1/tenants/customer-42";
    let key = site.post(&format!("{of}/keys"), &json!({"scopes": ["read"]}));
    let link = site.post(&format!("{of}/links"), &json!({}));
    vec![
        ("DELETED_TENANT", id(&other)),
        ("KEY_ID", id(&key)),
        ("LINK_ID", id(&link)),
    ]
}
