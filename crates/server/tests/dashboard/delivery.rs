//! The part *Delivery* of a destination's form, and its own id.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, World};

on_both! {
    how_it_is_delivered_is_set_when_it_is_added
    how_it_is_delivered_is_changed
    what_makes_no_sense_changes_nothing
    batches_above_the_tiers_ceiling_change_nothing
    an_age_above_the_tiers_ceiling_changes_nothing
    more_than_the_tier_allows_is_asked_for
}

/// What the API says of how a destination is delivered to.
async fn delivery(world: &World, key: &str, id: &str) -> [Value; 3] {
    let path = format!("/v1/destinations/{id}");
    let of = async |path: String| world.api(key, Method::GET, &path, json!({})).await;
    let one = of(path.clone()).await;
    let one = ["handshake", "pass_traceparent", "external_id"].map(|field| one[field].clone());
    [
        json!(one),
        of(format!("{path}/retries")).await,
        of(format!("{path}/batches")).await,
    ]
}

fn id_of(page: &str) -> &str {
    let (_, id) = page.split_once("<code id=\"id\">").unwrap();
    id.split('<').next().unwrap()
}

const URL: (&str, &str) = ("url", "https://example.com/a");
const DELIVERY: (&str, &str) = ("delivery", "yes");

async fn how_it_is_delivered_is_set_when_it_is_added(world: &World) {
    let (_, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let fields = [
        URL,
        DELIVERY,
        ("external_id", "endpoint-7"),
        ("pass_traceparent", "yes"),
        ("timeout_ms", "5000"),
        ("max_tries", "5"),
        ("base_ms", "1000"),
        ("factor", "2.5"),
        ("cap_ms", "60000"),
        ("max_age_ms", "3600000"),
        ("final_statuses", "404, 410"),
        ("max_events", "50"),
        ("max_bytes", "100000"),
        ("max_wait_ms", "2000"),
    ];
    let added = world
        .post(&visitor, "/dashboard/destinations", &fields)
        .await;
    assert_eq!(added.status, 200, "{}", added.text);
    assert!(!added.text.contains("were not set"), "{}", added.text);
    let [one, retries, batches] = delivery(world, &key, id_of(&added.text)).await;
    assert_eq!(one, json!(["none", true, "endpoint-7"]));
    assert_eq!(
        retries,
        json!({"max_tries": 5, "delays_ms": null, "base_ms": 1_000, "factor": 2.5,
            "cap_ms": 60_000, "final_statuses": [404, 410], "timeout_ms": 5_000,
            "max_age_ms": 3_600_000})
    );
    assert_eq!(
        batches,
        json!({"max_events": 50, "max_bytes": 100_000, "max_wait_ms": 2_000})
    );

    // All of it stands in the form that changes it, which is open.
    let edit = format!("/dashboard/destinations/{}/edit", id_of(&added.text));
    let page = world.get(&visitor, &edit).await.text;
    assert!(page.contains("<details id=\"delivery\" open>"), "{page}");
    for (name, value) in &fields[4..] {
        let value = value.replace(',', "");
        let shown = page.contains(&format!("value=\"{value}\""));
        assert!(
            shown && page.contains(&format!("name=\"{name}\"")),
            "{name}: {page}"
        );
    }
    let ticked = "name=\"pass_traceparent\" value=\"yes\" checked";
    assert!(page.contains(ticked), "{page}");

    // With what another one is called so.
    let again = world
        .post(&visitor, "/dashboard/destinations", &fields)
        .await;
    assert_eq!(again.status, 422, "{}", again.text);
    for shown in [
        "id=\"problem\">external_id: ",
        "value=\"2.5\"",
        "value=\"404, 410\"",
    ] {
        assert!(again.text.contains(shown), "{shown}: {}", again.text);
    }
}

async fn how_it_is_delivered_is_changed(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let edit = format!("/dashboard/destinations/{id}/edit");
    let save = async |fields: &[(&str, &str)]| {
        let fields = [&[URL, DELIVERY], fields].concat();
        let saved = world.post(&visitor, &edit, &fields).await;
        assert_eq!(saved.status, 303, "{}", saved.text);
    };
    // A page of before it had this part says nothing of it.
    save(&[
        ("delays_ms", "1000 60000"),
        ("handshake", "yes"),
        ("external_id", "a"),
    ])
    .await;
    let was = delivery(world, &key, &id).await;
    assert_eq!(was[0], json!(["cloud_events", false, "a"]));
    assert_eq!(was[1]["delays_ms"], json!([1_000, 60_000]));
    assert_eq!(was[1]["max_tries"], 3, "as many as there are delays");
    assert_eq!(world.post(&visitor, &edit, &[URL]).await.status, 303);
    assert_eq!(delivery(world, &key, &id).await, was);

    // In whichever order they pass: an age and a wait that neither has beside the other's.
    let with = async |age: &str, wait: &str| {
        save(&[
            ("max_age_ms", age),
            ("max_events", "9"),
            ("max_wait_ms", wait),
        ])
        .await;
        let [one, retries, batches] = delivery(world, &key, &id).await;
        assert_eq!(one, json!(["none", false, "a"]));
        let now = [
            retries["max_age_ms"].to_string(),
            batches["max_wait_ms"].to_string(),
        ];
        assert_eq!(now, [age, wait]);
    };
    with("10000", "1000").await;
    with("60000", "50000").await;
    with("10000", "1000").await;

    // Empty is the default again.
    save(&[]).await;
    let [_, retries, batches] = delivery(world, &key, &id).await;
    let is_null = |found: &Value| found.as_object().unwrap().values().all(Value::is_null);
    assert!(
        is_null(&retries) && is_null(&batches),
        "{retries} {batches}"
    );
}

async fn what_makes_no_sense_changes_nothing(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let was = delivery(world, &key, &id).await;
    for (fields, problem) in [
        (
            [("max_tries", "0"), ("name", "other")],
            "max_tries: must be between",
        ),
        ([("timeout_ms", "1"), ("name", "other")], "timeout_ms: "),
        (
            [("delays_ms", "1 s"), ("name", "other")],
            "delays_ms: must be whole numbers",
        ),
        ([("delays_ms", "1000"), ("base_ms", "5")], "delays_ms: "),
        (
            [("final_statuses", "9"), ("name", "other")],
            "final_statuses",
        ),
        (
            [("max_events", "501"), ("name", "other")],
            "max_events: must be between",
        ),
        (
            [("max_age_ms", "0"), ("name", "other")],
            "max_age_ms: must be between",
        ),
        (
            [("external_id", "a b"), ("name", "other")],
            "external_id: not an external id",
        ),
        // Nothing else of the form is done either.
        ([("max_tries", "7"), ("url", "http://10.0.0.1/")], "url: "),
    ] {
        let fields = [&[URL, DELIVERY], &fields[..]].concat();
        for path in [
            "/dashboard/destinations",
            &format!("/dashboard/destinations/{id}/edit"),
        ] {
            let page = world.post(&visitor, path, &fields).await;
            assert_eq!(page.status, 422, "{path} {problem}: {}", page.text);
            let said = format!("id=\"problem\">{problem}");
            assert!(page.text.contains(&said), "{said}: {}", page.text);
            let typed = format!("value=\"{}\"", fields[2].1);
            assert!(page.text.contains(&typed), "{typed}: {}", page.text);
        }
    }
    assert_eq!(delivery(world, &key, &id).await, was);
    let one = world
        .api(
            &key,
            Method::GET,
            &format!("/v1/destinations/{id}"),
            json!({}),
        )
        .await;
    assert_eq!(one["name"], "ours's");
}

/// Neither is a destination made whose batches are refused then, nor is the rest of one
/// changed.
async fn batches_above_the_tiers_ceiling_change_nothing(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let ceiling = json!({"ceiling": {"batch_events": 20, "batch_bytes": 1_000}});
    let tier = "/v1/tiers/standard";
    world.api(ADMIN, Method::PATCH, tier, ceiling).await;
    let add = "/dashboard/destinations";
    let edit = format!("{add}/{id}/edit");
    for path in [&format!("{add}/new"), &edit] {
        let page = world.get(&visitor, path).await.text;
        let allowed = "The tier allows 20 events and 1,000 bytes a request.";
        assert!(page.contains(allowed), "{path}: {page}");
    }

    let all = async || {
        let all = world.api(&key, Method::GET, "/v1/destinations", json!({}));
        (all.await, delivery(world, &key, &id).await)
    };
    let was = all().await;
    let changed = [
        ("name", "other"),
        ("max_tries", "7"),
        ("headers", "x-api-key: secret"),
        ("replace_headers", "yes"),
    ];
    for (batches, problem) in [
        (
            &[("max_events", "21"), ("max_bytes", "1000")][..],
            "max_events: 21 events in one request are above the ceiling of 20 of",
        ),
        (
            &[("max_events", "20")][..],
            "max_bytes: 1000000 bytes in one request are above the ceiling of 1000 of",
        ),
    ] {
        let fields = [&[URL, DELIVERY], &changed[..], batches].concat();
        for path in [add, &edit] {
            let page = world.post(&visitor, path, &fields).await;
            assert_eq!(page.status, 422, "{path}: {}", page.text);
            let said = format!("id=\"problem\">{problem}");
            assert!(page.text.contains(&said), "{said}: {}", page.text);
            assert_eq!(all().await, was, "{path} {problem}");
        }
    }

    let below = [("max_events", "20"), ("max_bytes", "1000")];
    let fields = [&[URL, DELIVERY], &changed[..], &below].concat();
    let added = world.post(&visitor, add, &fields).await;
    assert_eq!(added.status, 200, "{}", added.text);
    let saved = world.post(&visitor, &edit, &fields).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    for id in [id_of(&added.text), &id] {
        let [_, retries, batches] = delivery(world, &key, id).await;
        assert_eq!(retries["max_tries"], 7);
        assert_eq!(
            batches,
            json!({"max_events": 20, "max_bytes": 1_000, "max_wait_ms": null})
        );
    }
}

/// The same of how old events may become, also for whoever has come by a link.
async fn an_age_above_the_tiers_ceiling_changes_nothing(world: &World) {
    let (tenant, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let ceiling = json!({"ceiling": {"age_seconds": 7_200}});
    let tier = "/v1/tiers/standard";
    world.api(ADMIN, Method::PATCH, tier, ceiling).await;
    let links = format!("/v1/tenants/{tenant}/links");
    let may = json!({"may_change": true});
    let link = world.api(ADMIN, Method::POST, &links, may).await;
    let opened = world.form(link["url"].as_str().unwrap(), None, &[]).await;
    let visitors = [world.sign_in(&key).await, world.visitor(&opened).await];
    let add = "/dashboard/destinations";
    let edit = format!("{add}/{id}/edit");
    let all = async || {
        let all = world.api(&key, Method::GET, "/v1/destinations", json!({}));
        (all.await, delivery(world, &key, &id).await)
    };
    let was = all().await;
    let above = [URL, DELIVERY, ("name", "other"), ("max_age_ms", "7200001")];
    for visitor in &visitors {
        for path in [&format!("{add}/new"), &edit] {
            let page = world.get(visitor, path).await.text;
            let allowed = "The tier allows events of up to 2 h, which holds where no age is said.";
            assert!(page.contains(allowed), "{path}: {page}");
        }
        for path in [add, &edit] {
            let page = world.post(visitor, path, &above).await;
            assert_eq!(page.status, 422, "{path}: {}", page.text);
            let said = "id=\"problem\">max_age_ms: 7200001 ms are above the ceiling of 7200000 ms";
            assert!(page.text.contains(said), "{said}: {}", page.text);
            assert_eq!(all().await, was, "{path}");
        }
    }
    let below = [URL, DELIVERY, ("max_age_ms", "7200000")];
    for visitor in &visitors {
        let saved = world.post(visitor, &edit, &below).await;
        assert_eq!(saved.status, 303, "{}", saved.text);
    }
    let [_, retries, _] = delivery(world, &key, &id).await;
    assert_eq!(retries["max_age_ms"], 7_200_000);
}

/// On the page of requests: of larger batches by a destination's form, else of more
/// destinations; and an operator, who decides, has no such form.
async fn more_than_the_tier_allows_is_asked_for(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let (customer, operator) = (world.sign_in(&key).await, world.sign_in(ADMIN).await);
    let ceiling = json!({"ceiling": {"batch_events": 20}});
    world
        .api(ADMIN, Method::PATCH, "/v1/tiers/standard", ceiling)
        .await;
    let path = "/dashboard/requests";
    let edit = format!("/dashboard/destinations/{id}/edit");
    let edit = world.get(&customer, &edit).await.text;
    let leads = format!("{path}?destination={id}");
    assert!(edit.contains(&leads), "{edit}");
    let form = "name=\"batch_events\"";
    let page = world.get(&customer, &leads).await.text;
    assert!(page.contains(form), "{page}");
    let (_, _, theirs) = world.tenant("theirs", &["read"]).await;
    let of_theirs = format!("{path}?destination={theirs}");
    assert_eq!(world.get(&customer, &of_theirs).await.status, 404);
    let page = world.get(&customer, path).await.text;
    assert!(page.contains("More destinations"), "{page}");
    assert!(!page.contains(form), "{page}");
    let page = world.get(&operator, path).await.text;
    assert!(!page.contains("More destinations"), "{page}");

    for (field, problem) in [
        (("destinations", ""), "destinations: say how many"),
        (("destinations", "many"), "destinations: must be a"),
        (("destination", id.as_str()), "limits: say which are wanted"),
    ] {
        let page = world.post(&customer, path, &[field]).await;
        assert_eq!(page.status, 422, "{problem}: {}", page.text);
        assert!(page.text.contains(problem), "{problem}: {}", page.text);
    }
    let batches = [("destination", id.as_str()), ("batch_events", "60")];
    let more = [("destinations", "1200"), ("note", "one for each shop")];
    for fields in [batches, more] {
        let asked = world.post(&customer, path, &fields).await;
        assert_eq!(asked.status, 303, "{}", asked.text);
    }
    let page = world.get(&customer, path).await.text;
    for said in [
        "<td>no batches, at most 20 events a request</td><td>60 events a request</td>",
        "<td>10,000 destinations</td><td>1,200 destinations",
        "one for each",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let page = world.get(&operator, path).await.text;
    assert_eq!(page.matches("value=\"approve\"").count(), 2, "{page}");
}
