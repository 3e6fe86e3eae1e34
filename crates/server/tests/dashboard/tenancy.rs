//! Tenants and tiers are added, changed and deleted on the pages of operators, as over the
//! API.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{ADMIN, Page, Visitor, World};

const TENANTS: &str = "/dashboard/tenants";
const TIERS: &str = "/dashboard/tiers";

on_both! {
    a_tier_is_added_changed_and_deleted
    a_wrong_tier_comes_again_as_it_was_typed
    a_tier_is_paused_only_by_who_is_sure
    a_tenant_is_added_and_changed
    a_wrong_tenant_comes_again_as_it_was_typed
    a_deletion_is_asked_about_and_shows_how_far_it_is
}

fn says(page: &Page, texts: &[&str]) {
    for text in texts {
        assert!(page.text.contains(text), "{text} is not in {}", page.text);
    }
}

fn leads_to(page: &Page, path: &str) {
    assert_eq!(page.status, 303, "{}", page.text);
    assert_eq!(page.headers["location"], path);
}

/// As the API has it; `null` if it is none.
async fn tier(world: &World, name: &str) -> Value {
    let tiers = world.api(ADMIN, Method::GET, "/v1/tiers", json!({})).await;
    let tiers = tiers["tiers"].as_array().unwrap().iter();
    let mut found = tiers.filter(|tier| tier["name"] == name).cloned();
    found.next().unwrap_or_default()
}

/// All that the API can say of one, but its shape.
const LARGE: [(&str, &str); 16] = [
    ("name", "large & fast"),
    ("per_second", "50"),
    ("per_minute", "1000"),
    ("per_hour", ""),
    ("burst", "100"),
    ("max_in_flight", "20"),
    ("tenant_max_in_flight", "200"),
    ("tenant_ingest_per_second", "300"),
    ("tenant_max_destinations", "400"),
    ("ceiling_per_second", "99.5"),
    ("ceiling_at_once", "150"),
    ("ceiling_max_in_flight", "30"),
    ("ceiling_batch_events", "60"),
    ("ceiling_batch_bytes", "70000"),
    ("ceiling_age_seconds", "7200"),
    ("shape", "token_bucket"),
];

async fn a_tier_is_added_changed_and_deleted(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let path = format!("{TIERS}/large%20%26%20fast");
    let added = world.post(&operator, TIERS, &LARGE).await;
    leads_to(&added, &format!("{path}?done=added"));
    let large = json!({
        "name": "large & fast", "unlimited": false, "burst": 100, "shape": "token_bucket",
        "limits": {"per_second": 50, "per_minute": 1_000, "per_hour": null, "per_day": null},
        "max_in_flight": 20, "tenant_max_in_flight": 200, "tenant_ingest_per_second": 300,
        "tenant_max_destinations": 400,
        "ceiling": {"per_second": 99.5, "at_once": 150, "max_in_flight": 30,
            "batch_events": 60, "batch_bytes": 70_000, "age_seconds": 7_200},
    });
    assert_eq!(tier(world, "large & fast").await, large);
    let list = world.get(&operator, TIERS).await;
    let line = format!("<a href=\"{path}\">large &#38; fast</a>");
    says(
        &list,
        &[
            &line,
            "99.5/s, 150 at once, 30 in flight, 60 events and 70,000 bytes a request, \
            events of up to 2 h",
        ],
    );
    says(&world.get(&operator, TENANTS).await, &[&line]);

    // The form says what there is, and sent as it stands it changes nothing.
    let page = world.get(&operator, &path).await;
    for (name, value) in &LARGE[1..15] {
        says(
            &page,
            &[&format!(
                "name=\"{name}\" inputmode=\"decimal\" maxlength=\"20\" value=\"{value}\""
            )],
        );
    }
    says(&page, &["<option value=\"token_bucket\" selected>"]);
    let again = world.post(&operator, &path, &LARGE[1..]).await;
    leads_to(&again, &format!("{path}?done=changed"));
    assert_eq!(tier(world, "large & fast").await, large);

    // What is empty bounds nothing any more.
    let less = [("unlimited", "yes"), ("tenant_max_destinations", "7")];
    leads_to(
        &world.post(&operator, &path, &less).await,
        &format!("{path}?done=changed"),
    );
    let now = tier(world, "large & fast").await;
    let none = json!({"per_second": null, "per_minute": null, "per_hour": null, "per_day": null});
    assert_eq!((&now["limits"], &now["unlimited"]), (&none, &json!(true)));
    let bounds = [
        &now["burst"],
        &now["ceiling"]["at_once"],
        &now["tenant_max_in_flight"],
    ];
    assert_eq!(bounds, [&Value::Null; 3]);
    assert_eq!(now["tenant_max_destinations"], 7);

    // One that a tenant has stays.
    let body = json!({"name": "Acme", "tier": "large & fast"});
    let tenant = world.api(ADMIN, Method::POST, "/v1/tenants", body).await;
    let delete = format!("{path}/delete");
    let asked = world.post(&operator, &delete, &[]).await;
    says(&asked, &["Delete the tier large &#38; fast?"]);
    let refused = world.post(&operator, &delete, &[("sure", "yes")]).await;
    assert_eq!(refused.status, 409);
    says(&refused, &["tenants have this tier"]);
    let free = format!("/v1/tenants/{}", tenant["id"].as_str().unwrap());
    world
        .api(ADMIN, Method::PATCH, &free, json!({"tier": "free"}))
        .await;
    let deleted = world.post(&operator, &delete, &[("sure", "yes")]).await;
    leads_to(&deleted, &format!("{TIERS}?done=deleted"));
    assert_eq!(tier(world, "large & fast").await, Value::Null);
    assert_eq!(world.get(&operator, &path).await.status, 404);
}

async fn a_wrong_tier_comes_again_as_it_was_typed(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let was = tier(world, "standard").await;
    let standard = format!("{TIERS}/standard");
    for (name, value, problem) in [
        ("name", "", "name: "),
        ("name", "standard", "name"),
        (
            "per_second",
            "many",
            "per_second: must be a whole number, or empty",
        ),
        (
            "per_minute",
            "1.5",
            "per_minute: must be a whole number, or empty",
        ),
        ("shape", "square", "shape: no such shape"),
        ("unlimited", "yes", "unlimited: cannot stand beside a limit"),
        ("burst", "0", "burst: must be at least 1"),
        (
            "tenant_max_destinations",
            "0",
            "tenant_max_destinations: must be 1",
        ),
        (
            "ceiling_per_second",
            "fast",
            "ceiling_per_second: must be a number, or empty",
        ),
        (
            "ceiling_per_second",
            "0",
            "ceiling.per_second: must be above 0",
        ),
    ] {
        let others = LARGE.iter().filter(|(other, _)| *other != name);
        let fields: Vec<_> = others.copied().chain([(name, value)]).collect();
        for path in [TIERS, &standard] {
            if path != TIERS && name == "name" {
                continue;
            }
            let page = world.post(&operator, path, &fields).await;
            assert_eq!(page.status, 422, "{path} {name}: {}", page.text);
            let said = format!("id=\"problem\">{problem}");
            says(&page, &[&said, "value=\"200\"", "value=\"150\""]);
        }
    }
    assert_eq!(tier(world, "standard").await, was);
    assert_eq!(tier(world, "large & fast").await, Value::Null);
}

async fn a_tier_is_paused_only_by_who_is_sure(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let path = format!("{TIERS}/standard");
    let fields = [
        ("per_second", "0"),
        ("burst", "5"),
        ("ceiling_at_once", "9"),
    ];
    let asked = world.post(&operator, &path, &fields).await;
    assert_eq!(asked.status, 200);
    says(
        &asked,
        &[
            "Pause the tier standard with a limit of 0?",
            "name=\"burst\" value=\"5\"",
        ],
    );
    assert_eq!(tier(world, "standard").await["limits"]["per_second"], 10);
    let sure = [&fields[..], &[("sure", "yes")]].concat();
    leads_to(
        &world.post(&operator, &path, &sure).await,
        &format!("{path}?done=changed"),
    );
    let now = tier(world, "standard").await;
    assert_eq!(now["limits"]["per_second"], 0);
    assert_eq!(
        (&now["burst"], &now["ceiling"]["at_once"]),
        (&json!(5), &json!(9))
    );
}

/// As the API has it.
async fn tenant(world: &World, path: &str) -> Value {
    let path = format!("/v1/tenants/{}", path.rsplit('/').next().unwrap());
    world.api(ADMIN, Method::GET, &path, json!({})).await
}

async fn a_wrong_tenant_comes_again_as_it_was_typed(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    for (name, external_id, problem) in [
        ("", "acme", "name: must not be empty"),
        ("Acme <1>", "a b", "external_id: not an external id"),
    ] {
        let fields = [
            ("name", name),
            ("external_id", external_id),
            ("tier", "free"),
        ];
        let page = world.post(&operator, TENANTS, &fields).await;
        assert_eq!(page.status, 422, "{}", page.text);
        let said = format!("id=\"problem\">{problem}");
        let typed = format!("value=\"{external_id}\"");
        says(&page, &[&said, &typed, "<option selected>free</option>"]);
    }
}

async fn a_tenant_is_added_and_changed(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    let fields = [
        ("name", "Acme <1>"),
        ("external_id", "acme"),
        ("tier", "free"),
    ];
    let added = world.post(&operator, TENANTS, &fields).await;
    assert_eq!(added.status, 303, "{}", added.text);
    let path = added.headers["location"].to_str().unwrap().to_owned();
    let now = tenant(world, &path).await;
    let is = |now: &Value| ["name", "external_id", "tier"].map(|field| now[field].clone());
    assert_eq!(is(&now), ["Acme <1>", "acme", "free"]);
    let twice = world.post(&operator, TENANTS, &fields).await;
    assert_eq!(twice.status, 422, "{}", twice.text);
    says(
        &twice,
        &["id=\"problem\">external_id: ", "Acme &#60;1&#62;"],
    );

    let page = world.get(&operator, &path).await;
    says(
        &page,
        &[
            "value=\"Acme &#60;1&#62;\"",
            "value=\"acme\"",
            "<option selected>free<",
        ],
    );
    let fields = [
        ("name", "Acme Ltd"),
        ("external_id", "acme-2"),
        ("tier", "standard"),
        ("max_in_flight", "30"),
        ("ingest_per_second", "40"),
    ];
    for (at, value, problem) in [
        (0, "", "name: must not be empty"),
        (1, "", "external_id: can be changed, and not taken away"),
        (2, "none", "tier: "),
        (3, "0", "max_in_flight: must be 1 to"),
        (
            4,
            "x",
            "ingest_per_second: must be a whole number, or empty",
        ),
    ] {
        let mut wrong = fields;
        wrong[at].1 = value;
        let page = world.post(&operator, &path, &wrong).await;
        assert_eq!(page.status, 422, "{problem}: {}", page.text);
        says(&page, &[&format!("id=\"problem\">{problem}")]);
        let typed = if at == 0 { "acme-2" } else { "Acme Ltd" };
        says(&page, &[&format!("value=\"{typed}\"")]);
    }
    assert_eq!(tenant(world, &path).await, now);
    let saved = world.post(&operator, &path, &fields).await;
    leads_to(&saved, &format!("{path}?done=changed"));
    let changed = tenant(world, &path).await;
    assert_eq!(is(&changed), ["Acme Ltd", "acme-2", "standard"]);
    let bounds = [&changed["max_in_flight"], &changed["ingest_per_second"]];
    assert_eq!(bounds, [30, 40]);
    an_empty_bound_is_the_tiers(world, &operator, &path).await;
}

async fn an_empty_bound_is_the_tiers(world: &World, operator: &Visitor, path: &str) {
    let own = [
        ("name", "Acme Ltd"),
        ("external_id", "acme-2"),
        ("tier", "standard"),
    ];
    leads_to(
        &world.post(operator, path, &own).await,
        &format!("{path}?done=changed"),
    );
    let cleared = tenant(world, path).await;
    assert_eq!(cleared["max_in_flight"], Value::Null, "the tier's");
}

async fn a_deletion_is_asked_about_and_shows_how_far_it_is(world: &World) {
    let (id, key, destination) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let body = json!({"destination_id": destination, "type": "a.b", "payload": {}});
    world.api(&key, Method::POST, "/v1/events", body).await;
    let operator = world.sign_in(ADMIN).await;
    let path = format!("{TENANTS}/{id}");
    let delete = format!("{path}/delete");
    let asked = world.post(&operator, &delete, &[]).await;
    says(
        &asked,
        &[
            "Delete ours, with all that it has?",
            "None of it can be brought back",
        ],
    );
    assert_eq!(tenant(world, &path).await["deletion"], Value::Null);
    let done = world.post(&operator, &delete, &[("sure", "yes")]).await;
    leads_to(&done, &path);
    let page = world.get(&operator, &path).await;
    let live = format!("data-stream=\"{path}/live\"");
    says(
        &page,
        &[
            "It is being deleted, since",
            "data-live=\"tenant.left\">",
            &live,
        ],
    );
    let forms = [
        format!("{path}/keys\""),
        format!("{path}/links\""),
        "external_id".to_owned(),
    ];
    for form in forms {
        assert!(!page.text.contains(&form), "{form}: {}", page.text);
    }
    let left = tenant(world, &path).await["deletion"]["destinations_left"].clone();
    says(&page, &[&format!("data-live=\"tenant.left\">{left}<")]);
    assert_eq!(
        world.get(&operator, &format!("{path}/live")).await.status,
        200
    );
    says(&world.get(&operator, TENANTS).await, &["being deleted"]);
    // Nothing of it can be changed any more, and its key opens nothing.
    let late = [("name", "x"), ("tier", "free")];
    assert!(
        world
            .post(&operator, &path, &late)
            .await
            .status
            .is_client_error()
    );
    let signed = world
        .form("/dashboard/sign-in", None, &[("key", &key)])
        .await;
    assert_eq!(signed.status, 401);
    // The installation's own tenant is none to delete.
    let own = format!("{TENANTS}/00000000-0000-0000-0000-000000000001");
    assert!(
        !world
            .get(&operator, &own)
            .await
            .text
            .contains("id=\"delete\"")
    );
    let kept = world
        .post(&operator, &format!("{own}/delete"), &[("sure", "yes")])
        .await;
    assert_eq!(kept.status, 409);
}
