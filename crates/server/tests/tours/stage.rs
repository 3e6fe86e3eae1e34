//! Who is there: the operator's destinations, two customers and theirs, of every kind
//! of receiver, and what was sent to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::place::Place;
use crate::receivers::{Answers, Got, Receivers};
use crate::site::{KEY, Site, wait_for};

/// Between a failed try and the next: nothing is tried again while this runs.
const RETRY_MILLIS: u64 = 45 * 60 * 1_000;

/// One of the operator's own kinds: how many destinations, and events for each.
const KINDS: [(&str, Answers, u32, u32); 9] = [
    ("ok", Answers::Ok, 3, 5),
    ("slow", Answers::Slow, 3, 4),
    ("hang", Answers::Hang, 3, 2),
    ("fail", Answers::Fail, 6, 5),
    ("unprocessable", Answers::Unprocessable, 6, 5),
    ("unauthorized", Answers::Unauthorized, 6, 5),
    ("flaky", Answers::Flaky, 3, 10),
    ("too-many", Answers::TooMany, 3, 3),
    ("closed", Answers::Closed, 6, 5),
];

pub(crate) const CUSTOMER: &str = "Müller & Söhne";
pub(crate) const OTHER: &str = "Naïve Café";

pub(crate) struct Stage {
    pub(crate) site: Site,
    pub(crate) receivers: Receivers,
    /// Its tenant's own; the destinations of all of them by their names.
    pub(crate) customer: Tenant,
    pub(crate) other: Tenant,
    destinations: BTreeMap<&'static str, Destination>,
    numbers: u32,
    pub(crate) is_sqlite: bool,
    _runtime: Runtime,
    /// Dropped after the program, which is connected to it.
    _place: Place,
}

pub(crate) struct Tenant {
    pub(crate) id: String,
    pub(crate) key: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Destination {
    pub(crate) id: String,
    /// Its endpoint's.
    pub(crate) number: u32,
}

impl Stage {
    pub(crate) fn set(place: Place) -> Self {
        let runtime = Runtime::new().unwrap();
        let store = place.database.as_ref().map(|_| place.url.as_str());
        let site = Site::start(store);
        let mut stage = Self {
            receivers: runtime.block_on(Receivers::start()),
            customer: tenant(&site, CUSTOMER),
            other: tenant(&site, OTHER),
            destinations: BTreeMap::new(),
            numbers: 0,
            is_sqlite: store.is_none(),
            site,
            _runtime: runtime,
            _place: place,
        };
        stage.furnish();
        stage.settle();
        stage
    }

    fn furnish(&mut self) {
        for (kind, answers, count, events) in KINDS {
            for place in 1..=count {
                let name = format!("{kind}-{place}").leak();
                self.destination(KEY, name, answers, &json!({"per_second": 50}));
                self.send(KEY, name, events);
            }
        }
        let customer = self.customer.key.clone();
        let of_customer = [
            ("shop", Answers::Ok, 8),
            ("erp", Answers::Fail, 13),
            ("mill", Answers::Flaky, 10),
            ("ledger", Answers::Unprocessable, 10),
            ("archive", Answers::Unprocessable, 9),
        ];
        for (name, answers, events) in of_customer {
            self.destination(&customer, name, answers, &json!({"per_second": 10}));
            self.send(&customer, name, events);
        }
        let other = self.other.key.clone();
        for (name, answers) in [("till", Answers::Ok), ("oven", Answers::Fail)] {
            self.destination(&other, name, answers, &json!({"per_second": 10}));
            self.send(&other, name, 4);
        }
        // Limits of every length, and more to send than they allow.
        let two = json!({"per_second": 2, "per_day": 50_000});
        for (name, limits, events) in [
            ("two-limits", two, 400),
            ("per-minute", json!({"per_minute": 60}), 200),
            ("per-hour", json!({"per_hour": 1_000}), 1_040),
        ] {
            self.destination(KEY, name, Answers::Ok, &limits);
            self.send(KEY, name, events);
        }
        let limits = json!({"per_second": 5});
        let id = self.destination(KEY, "breaker", Answers::Unauthorized, &limits);
        let opens = json!({"opens_after_failures": 3, "opens_after_failing_for_seconds": 0});
        let path = format!("/v1/destinations/{id}/breaker");
        self.site.api(KEY, "PATCH", &path, &opens);
        self.send(KEY, "breaker", 40);
    }

    /// Makes one; its id.
    fn destination(
        &mut self,
        key: &str,
        name: &'static str,
        answers: Answers,
        limits: &Value,
    ) -> String {
        self.numbers += 1;
        let number = self.numbers;
        let url = self.receivers.url(number, answers);
        let body = json!({"name": name, "url": url, "limits": limits,
            "event_types": [format!("{name}.changed")]});
        let made = self.site.api(key, "POST", "/v1/destinations", &body);
        let id = text(&made["id"]);
        let path = format!("/v1/destinations/{id}/retries");
        let rules = json!({"delays_ms": [RETRY_MILLIS]});
        self.site.api(key, "PUT", &path, &rules);
        let destination = Destination {
            id: id.clone(),
            number,
        };
        self.destinations.insert(name, destination);
        id
    }

    fn send(&self, key: &str, name: &str, events: u32) {
        let one = json!({"destination_id": self.id(name), "type": format!("{name}.changed"),
            "payload": {"total_cents": 4200}});
        let mut left = events as usize;
        while left > 0 {
            let some = left.min(500);
            left -= some;
            let batch = json!({"events": vec![&one; some]});
            self.site.api(key, "POST", "/v1/events/batch", &batch);
        }
    }

    /// Until all that goes out at once has gone out and was recorded.
    fn settle(&self) {
        let in_flight = |key: &str| {
            let all = self.standings(key);
            all.iter()
                .map(|one| one["in_flight"].as_u64().unwrap())
                .sum::<u64>()
        };
        wait_for("all is sent and recorded", || {
            let sent = KINDS.iter().flat_map(|(kind, answers, count, events)| {
                (1..=*count).map(move |place| (format!("{kind}-{place}"), *answers, *events))
            });
            let sent = sent.filter(|(_, answers, _)| *answers != Answers::TooMany);
            let is_known = |name: &str, events: u32| {
                let found = self.standing(self.key_of(name), name);
                found["answered_lately"] == events
            };
            let of_others = [("erp", 13), ("mill", 10), ("ledger", 10), ("archive", 9)];
            let done = sent
                .clone()
                .all(|(name, _, events)| is_known(&name, events))
                && of_others
                    .iter()
                    .all(|(name, events)| is_known(name, *events))
                && self.got("per-hour").requests == 1_000
                && self.got("per-minute").requests >= 60
                && self.standing(KEY, "breaker")["reason"] == "breaker";
            (done && in_flight(&self.customer.key) == 0).then_some(())
        });
    }

    fn key_of(&self, name: &str) -> &str {
        match name {
            "shop" | "erp" | "mill" | "ledger" | "archive" => &self.customer.key,
            "till" | "oven" => &self.other.key,
            _ => KEY,
        }
    }

    #[track_caller]
    pub(crate) fn id(&self, name: &str) -> &str {
        let found = self.destinations.get(name);
        &found
            .unwrap_or_else(|| panic!("no destination is called {name}"))
            .id
    }

    /// What its receiver counted.
    pub(crate) fn got(&self, name: &str) -> Got {
        self.receivers.got(self.destinations[name].number)
    }

    /// Its receiver takes everything from now on.
    pub(crate) fn mend(&self, name: &str) {
        self.receivers.mend(self.destinations[name].number);
    }

    pub(crate) fn standing(&self, key: &str, name: &str) -> Value {
        let path = format!("/v1/destinations/{}/explanation", self.id(name));
        self.site.get(key, &path)
    }

    pub(crate) fn standings(&self, key: &str) -> Vec<Value> {
        let found = self.site.get(key, "/v1/standings?limit=100");
        found["standings"].as_array().unwrap().clone()
    }
}

fn tenant(site: &Site, name: &str) -> Tenant {
    let tenant = json!({"name": name, "tier": "standard"});
    let made = site.api(KEY, "POST", "/v1/tenants", &tenant);
    let id = text(&made["id"]);
    let path = format!("/v1/tenants/{id}/keys");
    let scopes = json!({"scopes": ["ingest", "manage", "read"]});
    let key = text(&site.api(KEY, "POST", &path, &scopes)["key"]);
    Tenant { id, key }
}

#[track_caller]
pub(crate) fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("{value} is no text"))
        .to_owned()
}
