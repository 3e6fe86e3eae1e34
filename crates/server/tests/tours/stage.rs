//! Who is there: the operator's destinations, two customers and theirs, of every kind
//! of receiver, and what was sent to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::place::Place;
use crate::receivers::{Answers, Got, Receivers};
use crate::site::{KEY, Site, wait_until};

/// Between a failed try and the next: nothing is tried again while this runs.
const RETRY_MILLIS: u64 = 45 * 60 * 1_000;

/// One of the operator's own kinds: how many destinations, and events for each.
const KINDS: [(&str, Answers, u32, u32); 10] = [
    ("ok", Answers::Ok, 3, 5),
    ("slow", Answers::Slow, 3, 4),
    ("hang", Answers::Hang, 3, 2),
    ("fail", Answers::Fail, 6, 5),
    ("unprocessable", Answers::Unprocessable, 6, 5),
    ("unauthorized", Answers::Unauthorized, 6, 5),
    ("flaky", Answers::Flaky, 3, 10),
    ("mostly", Answers::Mostly, 1, 10),
    ("too-many", Answers::TooMany, 3, 3),
    ("closed", Answers::Closed, 6, 5),
];

/// The customer's: how they answer, and events for each.
const CUSTOMERS: [(&str, Answers, u32); 5] = [
    ("shop", Answers::Ok, 8),
    ("erp", Answers::Fail, 13),
    ("mill", Answers::Flaky, 10),
    ("ledger", Answers::Unprocessable, 10),
    ("archive", Answers::Unprocessable, 9),
];

/// It takes one request at a time, and its time for each.
pub(crate) const NARROW: &str = "narrow";

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
        let store = (!place.url.starts_with("sqlite:")).then_some(place.url.as_str());
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
        for (name, answers, events) in CUSTOMERS {
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
        // Nothing limits it but how long its requests take.
        let limits = json!({"per_second": 50});
        self.destination(KEY, NARROW, Answers::Slow, &limits);
        self.send(KEY, NARROW, 1_200);
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
        let mut body = json!({"name": name, "url": url, "limits": limits,
            "event_types": [format!("{name}.changed")]});
        // One after the other: of the one it would be chance which comes last, and the
        // other has more to send than it is done with.
        if answers == Answers::Mostly || name == NARROW {
            body["max_in_flight"] = json!(1);
        }
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
        let kinds = KINDS.iter().flat_map(|(kind, answers, count, events)| {
            let asked_to_wait = *answers == Answers::TooMany;
            let names = (1..=*count).filter(move |_| !asked_to_wait);
            names.map(move |place| (format!("{kind}-{place}"), *events))
        });
        let customers = CUSTOMERS.map(|(name, _, events)| (name.to_owned(), events));
        let mut missing: Vec<(String, u32)> = kinds.chain(customers).collect();
        wait_until("all is sent and recorded", || {
            let rest = missing.drain(..).filter(|(name, events)| {
                let found = self.standing(self.key_of(name), name);
                found["answered_lately"] != *events || found["in_flight"] != 0
            });
            missing = rest.collect();
            match missing.is_empty() {
                true => Ok(()),
                false => Err(format!("{missing:?}")),
            }
        });
        wait_until("limits are full, and the breaker is open", || {
            let started = |name: &str| self.starts(self.key_of(name), name);
            let counted = ["per-hour", "per-minute"].map(started);
            let breaker = self.standing(KEY, "breaker");
            let is_so = counted[0] == 1_000 && counted[1] >= 60 && breaker["reason"] == "breaker";
            is_so.then_some(()).ok_or(format!("{counted:?}, {breaker}"))
        });
    }

    fn key_of(&self, name: &str) -> &str {
        match name {
            name if CUSTOMERS.iter().any(|(own, _, _)| *own == name) => &self.customer.key,
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

    /// Starts by what its receiver counted, and what a busy machine did not send: that
    /// counts in its limits as well.
    pub(crate) fn starts(&self, key: &str, name: &str) -> u32 {
        let id = self.id(name);
        let path = format!("/v1/attempts?destination_id={id}&state=not_sent");
        let not_sent = self.site.get(key, &path)["attempts"].clone();
        let not_sent = not_sent.as_array().unwrap().len();
        self.got(name).requests + u32::try_from(not_sent).unwrap()
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
