//! What its owner does with one destination: secrets end, its receiver is asked, what waits
//! is cancelled, and it is said when people are told and when its breaker opens.

use std::time::Duration;

use domain::handshake::Answer;
use engine::ports::ReapRules;
use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, Visitor, World};
use crate::walk::form_of;

on_both! {
    a_secret_is_deleted_but_not_the_last_one
    a_customer_sees_what_a_receiver_said_and_has_it_asked
    nobody_asks_the_receiver_of_a_disabled_destination
    one_delivery_is_cancelled_where_it_is_listed
    what_is_over_is_not_asked_about
    what_waits_is_cancelled_as_far_as_it_was_asked_about
    alerts_and_breaker_are_set
    an_alert_or_a_breaker_that_makes_no_sense_comes_again
}

async fn list(world: &World, key: &str, path: &str, of: &str) -> Vec<Value> {
    let found = world.api(key, Method::GET, path, json!({})).await;
    found[of].as_array().unwrap().clone()
}

/// Asks, does nothing until it is answered, and then leads there.
async fn asked(world: &World, visitor: &Visitor, path: &str, asks: &str) -> String {
    let page = world.post(visitor, path, &[]).await;
    assert_eq!(page.status, 200, "{path}: {}", page.text);
    assert!(page.text.contains(asks), "{asks}: {}", page.text);
    page.text
}

async fn sent(world: &World, visitor: &Visitor, path: &str, question: &str) -> String {
    let done = world
        .form(path, Some(visitor), &form_of(question, path))
        .await;
    assert_eq!(done.status, 303, "{path}: {}", done.text);
    done.headers["location"].to_str().unwrap().to_owned()
}

async fn a_secret_is_deleted_but_not_the_last_one(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let page = format!("/dashboard/destinations/{id}");
    let api = format!("/v1/destinations/{id}/secrets");
    let secrets = async || list(world, &key, &api, "secrets").await;
    let path = |secret: &Value| format!("{page}/secrets/{}", secret["id"].as_str().unwrap());

    let first = secrets().await.remove(0);
    let shown = world.get(&visitor, &page).await.text;
    assert!(!shown.contains(&path(&first)), "it is the last: {shown}");
    let sure = [("sure", "yes")];
    let last = world.post(&visitor, &path(&first), &sure).await;
    assert_eq!(last.status, 409, "{}", last.text);
    let says = "it is the last secret that signs";
    assert!(last.text.contains(says), "{}", last.text);

    let rotate = format!("{page}/secrets");
    let rotated = world.post(&visitor, &rotate, &[]).await.text;
    let both = secrets().await;
    assert_eq!(both.len(), 2);
    for one in &both {
        let form = format!("action=\"{}\"", path(one));
        assert!(rotated.contains(&form), "{form}: {rotated}");
    }
    let question = asked(world, &visitor, &path(&first), "Delete the hmac secret of ").await;
    assert_eq!(secrets().await, both, "it asks first");
    let to = sent(world, &visitor, &path(&first), &question).await;
    assert_eq!(to, format!("{page}?done=secret-deleted"));
    assert_eq!(secrets().await, both[..1]);
    for (secret, fields) in [
        ("nonsense", &sure[..]),
        (id.as_str(), &sure[..]),
        (id.as_str(), &sure[..0]),
    ] {
        let gone = format!("{page}/secrets/{secret}");
        let gone = world.post(&visitor, &gone, fields).await;
        assert_eq!(gone.status, 404, "{secret}: {}", gone.text);
    }
}

/// By link, as whoever has to mend it.
async fn a_customer_sees_what_a_receiver_said_and_has_it_asked(world: &World) {
    let (tenant, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let links = format!("/v1/tenants/{tenant}/links");
    let link = json!({"may_change": true});
    let link = world.api(ADMIN, Method::POST, &links, link).await;
    let opened = world.form(link["url"].as_str().unwrap(), None, &[]).await;
    let guest = world.visitor(&opened).await;
    let page = format!("/dashboard/destinations/{id}");
    let ask = format!("{page}/handshake");
    let shows = async |all: &[&str]| {
        let shown = world.get(&guest, &page).await.text;
        for says in all {
            assert!(shown.contains(says), "{says}: {shown}");
        }
        shown
    };

    assert!(!shows(&[]).await.contains("id=\"handshake\""), "it is off");
    let off = world.post(&guest, &ask, &[]).await;
    assert_eq!(off.status, 422, "{}", off.text);
    assert!(off.text.contains("handshake: "), "{}", off.text);

    let on = json!({"handshake": "cloud_events"});
    let api = format!("/v1/destinations/{id}");
    world.api(&key, Method::PATCH, &api, on).await;
    shows(&["not answered yet", "<dd>nothing</dd>", "<dd>at once</dd>"]).await;
    let question = world
        .stored
        .take_handshakes(None, 10)
        .await
        .unwrap()
        .taken
        .remove(0);
    let refused = Answer::Refused("it answered 405".to_owned());
    let recorded = world.stored.record_handshake(&question, &refused).await;
    recorded.unwrap();
    let shown = shows(&[">refused</span>", "it answered 405"]).await;
    assert!(!shown.contains("<dd>at once</dd>"), "in a minute: {shown}");
    let due = async || world.stored.take_handshakes(None, 10).await.unwrap().taken;
    assert!(due().await.is_empty());

    let asked = world.post(&guest, &ask, &[]).await;
    assert_eq!(asked.headers["location"], format!("{page}?done=asked"));
    shows(&[">refused</span>", "<dd>at once</dd>"]).await;
    assert_eq!(due().await, std::slice::from_ref(&question));
    let allowed = Answer::Allowed(std::num::NonZeroU32::new(60));
    let recorded = world.stored.record_handshake(&question, &allowed).await;
    recorded.unwrap();
    shows(&[">allowed</span>", "<dd>60 a minute</dd>"]).await;
}

async fn nobody_asks_the_receiver_of_a_disabled_destination(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let page = format!("/dashboard/destinations/{id}");
    let api = format!("/v1/destinations/{id}");
    let on = json!({"handshake": "cloud_events"});
    world.api(&key, Method::PATCH, &api, on).await;
    let shown = world.get(&visitor, &page).await.text;
    assert!(shown.contains("id=\"ask\""), "{shown}");
    let off = json!({"state": "disabled"});
    world.api(&key, Method::PATCH, &api, off).await;
    let shown = world.get(&visitor, &page).await.text;
    assert!(shown.contains("id=\"handshake\""), "{shown}");
    assert!(!shown.contains("id=\"ask\""), "{shown}");
    let ask = format!("{page}/handshake");
    let refused = world.post(&visitor, &ask, &[]).await;
    assert_eq!(refused.status, 409, "{}", refused.text);
    let says = "its receiver is not asked while it is disabled";
    assert!(refused.text.contains(says), "{}", refused.text);
}

/// Nor cancelled, whatever it is by then: the answer is by what was read.
async fn what_is_over_is_not_asked_about(world: &World) {
    let all = ["ingest", "manage", "read"];
    let (_, key, id) = world.tenant("ours", &all).await;
    let visitor = world.sign_in(&key).await;
    let retries = format!("/v1/destinations/{id}/retries");
    let age = json!({"max_age_ms": 1});
    world.api(&key, Method::PUT, &retries, age).await;
    let body = json!({"destination_id": id, "payload": {}});
    world.api(&key, Method::POST, "/v1/events", body).await;
    let api = format!("/v1/destinations/{id}/attempts");
    let only = async || list(world, &key, &api, "attempts").await.remove(0);
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    while only().await["state"] != "expired" {
        world.stored.reap(&rules, 100).await.unwrap();
    }
    let cancel = format!("/dashboard/attempts/{}/cancel", only().await["id"]);
    for fields in [&[][..], &[("sure", "yes")]] {
        let refused = world.post(&visitor, &cancel, fields).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        let says = "it is expired and cannot be cancelled any more";
        assert!(refused.text.contains(says), "{}", refused.text);
    }
}

async fn one_delivery_is_cancelled_where_it_is_listed(world: &World) {
    let all = ["ingest", "manage", "read"];
    let (_, key, id) = world.tenant("ours", &all).await;
    let visitor = world.sign_in(&key).await;
    let body = json!({"destination_id": id, "type": "a.b", "payload": {}});
    let event = world.api(&key, Method::POST, "/v1/events", body).await;
    let api = format!("/v1/destinations/{id}/attempts");
    let only = async || list(world, &key, &api, "attempts").await.remove(0);
    let attempt = format!("/dashboard/attempts/{}", only().await["id"]);
    let cancel = format!("{attempt}/cancel");
    let form = format!("action=\"{cancel}\"");
    let pages = [
        attempt.clone(),
        format!("/dashboard/destinations/{id}/attempts"),
        format!("/dashboard/events/{}", event["id"].as_str().unwrap()),
    ];
    for page in &pages {
        let shown = world.get(&visitor, page).await.text;
        assert!(shown.contains(&form), "{page}: {shown}");
    }
    let asks = "Cancel the delivery to ours&#39;s?";
    let question = asked(world, &visitor, &cancel, asks).await;
    assert_eq!(only().await["state"], "waiting", "it asks first");
    assert_eq!(sent(world, &visitor, &cancel, &question).await, attempt);
    assert_eq!(only().await["state"], "cancelled");
    for page in &pages {
        let shown = world.get(&visitor, page).await.text;
        assert!(!shown.contains(&form), "{page}: {shown}");
        assert!(shown.contains(">cancelled</span>"), "{page}: {shown}");
    }
    // It is so already: nothing is asked.
    let again = world.post(&visitor, &cancel, &[]).await;
    assert_eq!(again.status, 303, "{}", again.text);
    for nobody in ["9999999999", "nonsense"] {
        let path = format!("/dashboard/attempts/{nobody}/cancel");
        assert_eq!(world.post(&visitor, &path, &[]).await.status, 404);
    }
}

async fn what_waits_is_cancelled_as_far_as_it_was_asked_about(world: &World) {
    let all = ["ingest", "manage", "read"];
    let (_, key, id) = world.tenant("ours", &all).await;
    let visitor = world.sign_in(&key).await;
    let send = async |of: &str| {
        let body = json!({"destination_id": id, "type": of, "payload": {}});
        world.api(&key, Method::POST, "/v1/events", body).await;
    };
    let waiting = async || {
        let path = format!("/v1/destinations/{id}/attempts");
        let attempts = list(world, &key, &path, "attempts").await;
        let waits = |one: &&Value| one["state"] == "waiting";
        attempts.iter().filter(waits).count()
    };
    for of in ["a.b", "a.b", "c.d"] {
        send(of).await;
    }
    let page = format!("/dashboard/destinations/{id}");
    let cancel = format!("{page}/cancel");
    let shown = world.get(&visitor, &page).await.text;
    assert!(shown.contains(&format!("action=\"{cancel}\"")), "{shown}");

    let of_type = [("type", "c.d")];
    let question = world.post(&visitor, &cancel, &of_type).await.text;
    for says in [
        "Cancel what waits for ours&#39;s?",
        "3 deliveries wait now",
        "Those of the type c.d are cancelled",
    ] {
        assert!(question.contains(says), "{says}: {question}");
    }
    send("c.d").await;
    assert_eq!(waiting().await, 4, "it asks first");
    let to = sent(world, &visitor, &cancel, &question).await;
    assert_eq!(to, format!("{page}?done=cancelled&cancelled=1"));
    let done = world.get(&visitor, &to).await.text;
    assert!(done.contains("Deliveries cancelled: 1."), "{done}");
    assert_eq!(waiting().await, 3, "not the one that came meanwhile");

    let asks = "They are cancelled, and not sent.";
    let question = asked(world, &visitor, &cancel, asks).await;
    let to = sent(world, &visitor, &cancel, &question).await;
    assert_eq!(to, format!("{page}?done=cancelled&cancelled=3"));
    assert_eq!(waiting().await, 0);
    for wrong in [("type", "a b"), ("after", "x"), ("accepted_before", "x")] {
        let refused = world.post(&visitor, &cancel, &[wrong]).await;
        assert_eq!(refused.status, 422, "{}", refused.text);
        let says = format!("{}: must be", wrong.0);
        assert!(refused.text.contains(&says), "{says}: {}", refused.text);
    }
}

/// What the API says of a destination's alerts and of its breaker.
async fn watched(world: &World, key: &str, id: &str) -> [Value; 6] {
    let of = async |path: &str| {
        let path = format!("/v1/destinations/{id}/{path}");
        world.api(key, Method::GET, &path, json!({})).await
    };
    let (alerts, health) = (of("alerts").await, of("health").await);
    let breaker = &health["breaker"];
    [
        alerts["backlog"].clone(),
        alerts["under_delivery_seconds"].clone(),
        alerts["failing_percent"].clone(),
        breaker["opens_after_failures"].clone(),
        breaker["opens_after_failing_for_seconds"].clone(),
        breaker["disable_after_seconds"].clone(),
    ]
}

/// Each form sets all that it has, an empty field to its default.
async fn alerts_and_breaker_are_set(world: &World) {
    let (tenant, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let one = format!("/dashboard/destinations/{id}");
    let page = format!("{one}/alerts");
    let link = format!("href=\"{page}\"");
    let shown = world.get(&visitor, &one).await.text;
    assert!(shown.contains(&link), "{shown}");
    let shown = world.get(&visitor, &page).await.text;
    assert!(shown.contains("Nothing is the matter."), "{shown}");
    for default in ["10000", "60", "50", "20", "5", "432000"] {
        let value = format!("value=\"{default}\"");
        assert!(shown.contains(&value), "{value}: {shown}");
    }

    let alerts = [
        ("backlog", "500"),
        ("under_delivery_seconds", ""),
        ("failing_percent", "0"),
    ];
    let set = world.post(&visitor, &page, &alerts).await;
    assert_eq!(set.headers["location"], format!("{page}?done=alerts"));
    let wanted = [500, 60, 0, 20, 5, 432_000].map(|number| json!(number));
    assert_eq!(watched(world, &key, &id).await, wanted);
    let breaker = [
        ("opens_after_failures", "7"),
        ("opens_after_failing_for_seconds", "0"),
        ("disable_after_seconds", ""),
    ];
    let path = format!("{one}/breaker");
    let set = world.post(&visitor, &path, &breaker).await;
    assert_eq!(set.headers["location"], format!("{page}?done=breaker"));
    let wanted = [500, 60, 0, 7, 0, 432_000].map(|number| json!(number));
    assert_eq!(watched(world, &key, &id).await, wanted);

    // Who is told stands where its tenant's alerts do.
    let told = "<a href=\"/dashboard/alerts\">Alerts</a>.</p>";
    assert!(shown.contains(told), "{shown}");
    let operator = world.sign_in(ADMIN).await;
    let shown = world.get(&operator, &page).await.text;
    let told = format!("<a href=\"/dashboard/tenants/{tenant}/alerts\">Alerts</a>.</p>");
    assert!(shown.contains(&told), "{shown}");

    // Who only reads, reads it.
    let (_, reader, theirs) = world.tenant("theirs", &["read"]).await;
    let reader = world.sign_in(&reader).await;
    let path = format!("/dashboard/destinations/{theirs}/alerts");
    let shown = world.get(&reader, &path).await.text;
    assert!(shown.contains("<dd>10000</dd>"), "{shown}");
    assert!(!shown.contains("<form method=\"post\" action=\"/dashboard/dest"));
}

async fn an_alert_or_a_breaker_that_makes_no_sense_comes_again(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let was = watched(world, &key, &id).await;
    for (part, field, typed, problem) in [
        ("alerts", "backlog", "100001", "must be at most 100000"),
        ("alerts", "backlog", "many", "must be a whole number"),
        (
            "alerts",
            "under_delivery_seconds",
            "86401",
            "must be at most 86400",
        ),
        ("alerts", "failing_percent", "101", "must be at most 100"),
        (
            "breaker",
            "opens_after_failures",
            "-1",
            "must be a whole number",
        ),
        (
            "breaker",
            "disable_after_seconds",
            "1000000001",
            "must be at most 1000000000",
        ),
    ] {
        let path = format!("/dashboard/destinations/{id}/{part}");
        let page = world.post(&visitor, &path, &[(field, typed)]).await;
        assert_eq!(page.status, 422, "{field}: {}", page.text);
        // The other form is as it was.
        let other = match part {
            "alerts" => {
                "name=\"opens_after_failures\" inputmode=\"decimal\" maxlength=\"20\" value=\"20\""
            }
            _ => "name=\"backlog\" inputmode=\"decimal\" maxlength=\"20\" value=\"10000\"",
        };
        for shown in [
            format!("id=\"problem\">{field}: {problem}"),
            format!("value=\"{typed}\""),
            other.to_owned(),
        ] {
            assert!(page.text.contains(&shown), "{shown}: {}", page.text);
        }
        assert_eq!(watched(world, &key, &id).await, was, "{field}");
    }
}
