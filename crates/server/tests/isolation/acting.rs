//! A platform's one key, which acts for each of its customers.

use domain::access::Scope;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::walk;
use crate::world::{ADMIN, Answer, TENANTS_OWN, Tenant, World};

const URL: &str = "https://example.com/customer";

async fn platform(world: &World) -> String {
    world.key(&world.ours, &[Scope::Platform]).await
}

/// The destinations that a key sees, by their names.
fn names(list: &Value) -> Vec<&str> {
    let all = list["destinations"].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap()).collect()
}

/// What `?tenant=` lists, by the name of the list and of what tells its rows apart; and one
/// that the tenant has.
fn lists(tenant: &Tenant) -> [(&'static str, &'static str, &str); 12] {
    [
        ("attempts", "id", &tenant.attempt),
        ("compliance", "id", &tenant.destination),
        ("dead-letters", "id", &tenant.dead_letter),
        ("destinations", "id", &tenant.destination),
        ("events", "id", &tenant.event),
        ("limit-groups", "members", &tenant.dying),
        ("limit-requests", "id", &tenant.limit_request),
        ("notice-addresses", "id", &tenant.notice_address),
        (
            "operational-destinations",
            "destination_id",
            &tenant.destination,
        ),
        ("operational-events", "destination_id", &tenant.dying),
        ("replays", "id", &tenant.replay),
        ("standings", "destination_id", &tenant.destination),
    ]
}

/// What tells the rows of such a list apart.
fn rows(list: &str, by: &str, answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, StatusCode::OK, "{list}: {answer:?}");
    let field = match list {
        "compliance" => "destinations".to_owned(),
        _ => list.replace('-', "_"),
    };
    let all = answer.json[&field].as_array();
    let all = all.unwrap_or_else(|| panic!("{list}: {answer:?}"));
    let of = |row: &Value| match &row[by] {
        Value::String(text) => text.clone(),
        Value::Array(one) if one.len() == 1 => one[0].as_str().unwrap().to_owned(),
        other => other.to_string(),
    };
    all.iter().map(of).collect()
}

/// Each of the two has one, with a name and a limit of its own.
async fn in_groups(world: &World) {
    for (tenant, name, most) in [(&world.ours, "ours", 3), (&world.theirs, "theirs", 4)] {
        let key = Some(tenant.key.as_str());
        let group = format!("/v1/limit-groups/{name}");
        let limits = json!({"limits": {"per_second": most}});
        let made = world.call(key, &Method::PUT, &group, Some(limits)).await;
        assert_eq!(made.status, StatusCode::OK, "{made:?}");
        let joins = json!({"limit_group": name});
        let path = format!("/v1/destinations/{}", tenant.dying);
        let joined = world.call(key, &Method::PATCH, &path, Some(joins)).await;
        assert_eq!(joined.status, StatusCode::OK, "{joined:?}");
        let alerts = json!({"success_percent": 50 + most});
        let path = "/v1/alerts";
        let changed = world.call(key, &Method::PATCH, path, Some(alerts)).await;
        assert_eq!(changed.status, StatusCode::OK, "{changed:?}");
    }
}

/// Of another tenant's by the query, for an operator alone.
pub(crate) async fn an_operator_lists_the_things_of_the_tenant_that_it_names(world: &World) {
    let theirs = &world.theirs;
    let list = async |key: &str, path: &str| world.call(Some(key), &Method::GET, path, None).await;
    let renamed = json!({"external_id": "customer:9"});
    let path = format!("/v1/tenants/{}", theirs.id);
    let renamed = world.call(Some(ADMIN), &Method::PATCH, &path, Some(renamed));
    assert_eq!(renamed.await.status, StatusCode::OK);
    in_groups(world).await;
    for (tenant, called) in [
        (theirs, theirs.id.as_str()),
        (theirs, "customer:9"),
        (theirs, "customer%3A9"),
        (&world.ours, world.ours.id.as_str()),
    ] {
        for (name, by, one) in lists(tenant) {
            let path = format!("/v1/{name}");
            let own = rows(name, by, &list(&tenant.key, &path).await);
            let path = format!("{path}?tenant={called}");
            let found = rows(name, by, &list(ADMIN, &path).await);
            assert!(found.iter().any(|row| row == one), "{path}: {found:?}");
            assert_eq!(found, own, "{path}");
            let refused = list(&world.ours.key, &path).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
        }
        let path = format!("/v1/alerts?tenant={called}");
        let alerts = list(ADMIN, &path).await;
        assert_eq!(alerts.json, list(&tenant.key, "/v1/alerts").await.json);
        let refused = list(&world.ours.key, &path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    }
    let ours = list(&world.ours.key, "/v1/alerts").await.json;
    assert_ne!(list(&theirs.key, "/v1/alerts").await.json, ours);
    for (query, status) in [
        ("tenant=nobody", StatusCode::NOT_FOUND),
        ("tenant=", StatusCode::UNPROCESSABLE_ENTITY),
        ("tenant=a&tenant=b", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let answer = list(ADMIN, &format!("/v1/events?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
    }
    // Without it they are the key's own.
    let own = list(ADMIN, "/v1/destinations").await;
    let found = own.json["destinations"].as_array().unwrap();
    assert!(!found.iter().any(|one| one["id"] == *theirs.destination));
}

/// Whatever else its query names: also the own tenant, which is as good as another.
pub(crate) async fn a_tenant_that_is_named_is_the_one_that_is_looked_at(world: &World) {
    let home = engine::ports::DEFAULT_TENANT.to_string();
    let dying = &world.theirs.dying;
    let list = async |path: &str| world.call(Some(ADMIN), &Method::GET, path, None).await;
    for called in [home.as_str(), world.ours.id.as_str()] {
        for name in ["attempts", "dead-letters", "events"] {
            let path = format!("/v1/{name}?tenant={called}&destination_id={dying}");
            let found = rows(name, "id", &list(&path).await);
            assert!(found.is_empty(), "{path}: {found:?}");
        }
        let path = format!("/v1/compliance?tenant={called}&destination_id={dying}");
        let audit = list(&path).await;
        assert_eq!(audit.status, StatusCode::NOT_FOUND, "{path}: {audit:?}");
    }
    let path = format!("/v1/compliance?destination_id={dying}");
    let found = rows("compliance", "id", &list(&path).await);
    assert_eq!(found, [dying.as_str()], "by itself it is whoever's it is");
}

/// By our id or by its own; and what it makes there is that tenant's and nobody else's.
pub(crate) async fn a_platforms_key_acts_for_the_tenant_that_it_names(world: &World) {
    let key = platform(world).await;
    let path = "/v1/tenants/customer:7";
    let tenant = json!({"name": "Customer 7", "tier": "free"});
    let tenant = world
        .call(Some(ADMIN), &Method::PUT, path, Some(tenant))
        .await;
    assert_eq!(tenant.status, StatusCode::CREATED, "{tenant:?}");
    let id = tenant.json["id"].as_str().unwrap().to_owned();
    let draft = json!({"url": URL, "name": "by the platform", "event_types": ["*"]});
    let created = world
        .call_for(
            (&key, "customer:7"),
            &Method::PUT,
            "/v1/destinations/ep-1",
            Some(draft),
        )
        .await;
    assert_eq!(created.status, StatusCode::CREATED, "{created:?}");

    for called in [id.as_str(), "customer:7"] {
        let list = world.call_for((&key, called), &Method::GET, "/v1/destinations", None);
        assert_eq!(names(&list.await.json), ["by the platform"]);
    }
    let event = json!({"type": "order.paid", "payload": {"n": 1}});
    let event = world.call_for(
        (&key, "customer:7"),
        &Method::POST,
        "/v1/events",
        Some(event),
    );
    let event = event.await;
    assert_eq!(event.json["destinations"], json!([created.json["id"]]));

    // The customer sees it with a key of its own, and the others see nothing of it.
    let keys = format!("{path}/keys");
    let own = json!({"scopes": ["read"]});
    let own = world
        .call(Some(ADMIN), &Method::POST, &keys, Some(own))
        .await;
    let own = own.json["key"].as_str().unwrap().to_owned();
    for of in [created.json["id"].as_str().unwrap(), "ep-1"] {
        let path = format!("/v1/destinations/{of}");
        let seen = world.call(Some(&own), &Method::GET, &path, None).await;
        assert_eq!(seen.json["external_id"], "ep-1", "{seen:?}");
        for other in [&world.ours, &world.theirs] {
            let seen = world
                .call(Some(&other.key), &Method::GET, &path, None)
                .await;
            assert_eq!(seen.status, StatusCode::NOT_FOUND);
            let seen = world.call_for((&key, &other.id), &Method::GET, &path, None);
            assert_eq!(seen.await.status, StatusCode::NOT_FOUND);
        }
    }
    let at_home = world.call_for(
        (&key, &world.theirs.id),
        &Method::GET,
        "/v1/destinations",
        None,
    );
    assert!(!names(&at_home.await.json).contains(&"by the platform"));
}

/// It is no administrator, and nobody else names tenants.
pub(crate) async fn who_acts_may_do_what_a_customer_may_and_no_more(world: &World) {
    let key = world.key(&world.ours, &Scope::ALL).await;
    let ours = world.ours.id.as_str();
    let get = async |key: &str, tenant: &str, path: &str| {
        let answer = world.call_for((key, tenant), &Method::GET, path, None);
        answer.await
    };
    assert_eq!(
        get(&key, ours, "/v1/destinations").await.status,
        StatusCode::OK
    );
    for path in ["/v1/tenants", "/v1/fleet"] {
        assert_eq!(
            get(&key, ours, path).await.status,
            StatusCode::FORBIDDEN,
            "{path}"
        );
    }
    // What an administrator reaches by its id, whoever's it is, is out of reach too.
    let theirs = format!("/v1/destinations/{}", world.theirs.destination);
    assert_eq!(get(&key, ours, &theirs).await.status, StatusCode::NOT_FOUND);
    let mut lacking = vec![world.ours.key.clone()];
    let without = Scope::ALL
        .into_iter()
        .filter(|scope| *scope != Scope::Platform);
    lacking.push(world.key(&world.ours, &without.collect::<Vec<_>>()).await);
    for lacking in &lacking {
        for tenant in [ours, world.theirs.id.as_str()] {
            let refused = get(lacking, tenant, "/v1/destinations").await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
            assert_eq!(refused.json["detail"], "the key lacks the scope platform");
        }
    }
    for nobody in ["00000000-0000-0000-0000-0000000000ff", "nobody"] {
        let refused = get(&key, nobody, "/v1/destinations").await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND, "{refused:?}");
    }
    let refused = get(&key, "a customer", "/v1/destinations").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(refused.json["field"], "Paceline-Tenant");
    // Nor more at home than it has anyway.
    let alone = platform(world).await;
    let home = engine::ports::DEFAULT_TENANT.to_string();
    let refused = get(&alone, &home, "/v1/destinations").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    // Nor is it a tenant's to have.
    let keys = format!("/v1/tenants/{ours}/keys");
    let wanted = json!({"scopes": ["platform"]});
    let refused = world
        .call(Some(ADMIN), &Method::POST, &keys, Some(wanted))
        .await;
    assert_eq!(refused.json["field"], "scopes", "{refused:?}");
}

/// In the header, or by the key: nobody's but that one's is counted or sent.
pub(crate) async fn a_resend_to_all_is_of_the_tenant_that_is_named(world: &World) {
    let key = platform(world).await;
    let (ours, theirs) = (&world.ours, &world.theirs);
    let which = json!({"since": "2020-01-01T00:00:00Z"});
    let post = async |tenant: &Tenant, path: &str| {
        let of = (key.as_str(), tenant.id.as_str());
        let answer = world.call_for(of, &Method::POST, path, Some(which.clone()));
        answer.await
    };
    let replays = async |tenant: &Tenant| {
        let answer = world.call(Some(&tenant.key), &Method::GET, "/v1/replays", None);
        answer.await
    };
    for tenant in [ours, theirs] {
        let found = post(tenant, "/v1/events/resend/preview").await;
        assert_eq!(found.status, StatusCode::OK, "{found:?}");
        assert_eq!(found.json["deliveries"], 1, "{found:?}");
        let destination = &found.json["destinations"][0]["destination_id"];
        assert_eq!(*destination, tenant.dying);
    }
    let path = "/v1/events/resend/preview";
    let own = world.call(Some(ADMIN), &Method::POST, path, Some(which.clone()));
    let own = own.await;
    assert_eq!(own.json["deliveries"], 0, "an operator's own: {own:?}");
    let of_ours = replays(ours).await;
    let begun = post(theirs, "/v1/events/resend").await;
    assert_eq!(begun.status, StatusCode::CREATED, "{begun:?}");
    let to = begun.json["replays"].as_array().unwrap();
    let to: Vec<_> = to.iter().map(|one| &one["destination_id"]).collect();
    assert_eq!(to, [&theirs.dying], "what waits is left alone");
    assert_eq!(replays(ours).await, of_ours);
}

/// Byte for byte, to those with the scope; and to a platform's key that has it too.
pub(crate) async fn what_an_event_carries_is_for_those_who_may_see_it(world: &World) {
    let sent = [
        (json!({"payload": null}), "payload"),
        (json!({"payload": {"b": 1, "a": [1.50, "é"]}}), "payload"),
        (
            json!({"payload_base64": "AAH/", "content_type": "application/x-raw"}),
            "payload_base64",
        ),
    ];
    let post = async |body: &Value| {
        let mut body = body.clone();
        body["destination_id"] = json!(world.ours.destination);
        let posted = world.call(
            Some(&world.ours.key),
            &Method::POST,
            "/v1/events",
            Some(body),
        );
        posted.await.json["id"].as_str().unwrap().to_owned()
    };
    let all = world.key(&world.ours, &Scope::ALL).await;
    let without = Scope::ALL
        .into_iter()
        .filter(|scope| *scope != Scope::ReadPayloads);
    let blind = world.key(&world.ours, &without.collect::<Vec<_>>()).await;
    for (body, field) in &sent {
        let path = format!("/v1/events/{}/payload", post(body).await);
        let seen = world
            .call(Some(&world.ours.key), &Method::GET, &path, None)
            .await;
        assert_eq!(seen.json[field], body[field], "{seen:?}");
        let other = if *field == "payload" {
            "payload_base64"
        } else {
            "payload"
        };
        assert!(seen.json.get(other).is_none(), "{seen:?}");
        let as_ours = world
            .call_for((&all, &world.ours.id), &Method::GET, &path, None)
            .await;
        assert_eq!(as_ours, seen);
        let refused = world.call_for((&blind, &world.ours.id), &Method::GET, &path, None);
        assert_eq!(refused.await.status, StatusCode::FORBIDDEN);
        let theirs = world
            .call(Some(&world.theirs.key), &Method::GET, &path, None)
            .await;
        assert_eq!(theirs.status, StatusCode::NOT_FOUND);
    }
}

/// The newest first, page by page, of a type or with an attempt in a state.
pub(crate) async fn events_are_listed_by_type_and_state(world: &World) {
    let key = Some(world.ours.key.as_str());
    let mut posted = Vec::new();
    for number in 0..5 {
        let event_type = if number % 2 == 0 { "even" } else { "odd" };
        let body = json!({"destination_id": world.ours.destination, "type": event_type,
            "payload": number});
        let event = world
            .call(key, &Method::POST, "/v1/events", Some(body))
            .await;
        posted.push((event.json["id"].as_str().unwrap().to_owned(), event_type));
    }
    // Ids are by the millisecond, and two may be of one.
    posted.sort_unstable_by(|a, b| b.cmp(a));
    let of_type = |wanted: &str| -> Vec<Value> {
        let those = posted
            .iter()
            .filter(|(_, event_type)| *event_type == wanted);
        those.map(|(id, _)| id.clone().into()).collect()
    };
    let (odd, even) = (of_type("odd"), of_type("even"));
    let posted: Vec<Value> = posted.iter().map(|(id, _)| id.clone().into()).collect();
    let list = async |query: &str| {
        let path = format!("/v1/events?{query}");
        world.call(key, &Method::GET, &path, None).await.json
    };
    let ids = |page: &Value| -> Vec<Value> {
        let events = page["events"].as_array().unwrap().iter();
        events.map(|event| event["id"].clone()).collect()
    };
    let first = list("limit=2").await;
    assert_eq!(ids(&first), posted[..2]);
    let second = list(&format!(
        "limit=3&before={}",
        first["next"].as_str().unwrap()
    ))
    .await;
    assert_eq!(ids(&second), posted[2..]);
    assert_eq!(ids(&list("type=odd").await), odd);
    assert_eq!(
        ids(&list("type=odd&state=succeeded").await),
        [Value::Null; 0]
    );
    let waits = list("type=even&state=waiting").await;
    assert_eq!(ids(&waits), even);
    assert_eq!(waits["events"][0]["last_state"], "waiting");
    assert_eq!(
        waits["events"][0]["destination_id"],
        json!(world.ours.destination)
    );
}

/// It is created once, and what is left out later is as if it never had been said, but for
/// what nobody is shown and so cannot send again; another's of the same name is another.
pub(crate) async fn what_is_put_twice_is_one_thing(world: &World) {
    let (ours, theirs) = (&world.ours, &world.theirs);
    let put = async |key: &str, path: &str, body: Value| {
        world.call(Some(key), &Method::PUT, path, Some(body)).await
    };
    let path = "/v1/destinations/ep-7";
    let draft = json!({"url": URL, "name": "first", "limits": {"per_second": 1},
        "headers": {"x-env": "test"}});
    let first = put(&ours.key, path, draft.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED);
    assert!(first.json["secret"]["secret"].is_string(), "{first:?}");
    let again = put(&ours.key, path, draft).await;
    assert_eq!(
        (again.status, &again.json["id"]),
        (StatusCode::OK, &first.json["id"])
    );
    assert!(again.json.get("secret").is_none(), "it is shown once");
    // Which revokes nothing: no change of it is in the history of its limits.
    walk::judged(world, ours).await;
    let audit = format!(
        "/v1/compliance?destination_id={}",
        first.json["id"].as_str().unwrap()
    );
    let audit = world
        .call(Some(&ours.key), &Method::GET, &audit, None)
        .await;
    let history = audit.json["destinations"][0]["limits"].as_array();
    assert_eq!(history.map(Vec::len), Some(1), "{audit:?}");
    // What is below it is reached by its name as well.
    let secrets = format!("{path}/secrets");
    world
        .call(Some(&ours.key), &Method::POST, &secrets, Some(json!({})))
        .await;
    let secret = format!("{secrets}/{}", first.json["secret"]["id"].as_str().unwrap());
    let deleted = world
        .call(Some(&ours.key), &Method::DELETE, &secret, None)
        .await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{deleted:?}");
    let pause = format!("{path}/pause");
    world
        .call(Some(&ours.key), &Method::POST, &pause, None)
        .await;
    let changed = put(&ours.key, path, json!({"url": URL})).await;
    for (field, value) in [
        ("id", first.json["id"].clone()),
        ("name", json!("")),
        ("headers", json!(["x-env"])),
        ("state", json!("paused")),
    ] {
        assert_eq!(changed.json[field], value, "{field}: {changed:?}");
    }
    assert_eq!(changed.json["limits"]["per_second"], Value::Null);
    let bare = put(&ours.key, path, json!({"url": URL, "headers": null})).await;
    assert_eq!(bare.json["headers"], json!([]), "{bare:?}");
    let other = put(&theirs.key, path, json!({"url": URL})).await;
    assert_eq!(other.status, StatusCode::CREATED);
    assert_ne!(other.json["id"], first.json["id"]);
}

/// And it is no id of ours.
pub(crate) async fn a_name_is_taken_until_what_has_it_is_gone(world: &World) {
    let (ours, path) = (&world.ours, "/v1/destinations/ep-9");
    let put = async |key: &str, path: &str, body: Value| {
        world.call(Some(key), &Method::PUT, path, Some(body)).await
    };
    let first = put(&ours.key, path, json!({"url": URL})).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let draft = json!({"url": URL, "external_id": "ep-9"});
    let create = async || {
        let create = world.call(
            Some(&ours.key),
            &Method::POST,
            "/v1/destinations",
            Some(draft.clone()),
        );
        create.await
    };
    let refused = create().await;
    assert_eq!(refused.json["field"], "external_id", "{refused:?}");
    let gone = world
        .call(Some(&ours.key), &Method::DELETE, path, None)
        .await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(create().await.status, StatusCode::CREATED);

    let by_id = format!("/v1/destinations/{}", ours.destination);
    let wrong = put(&ours.key, &by_id, json!({"url": URL})).await;
    assert_eq!(wrong.json["field"], "id");
    let wrong = put(&ours.key, path, json!({"url": URL, "external_id": "ep-8"})).await;
    assert_eq!(wrong.json["field"], "external_id");
}

/// A tenant is put as a destination is.
pub(crate) async fn a_tenant_that_is_put_twice_is_one(world: &World) {
    let put = async |path: &str, body: Value| {
        let put = world.call(Some(ADMIN), &Method::PUT, path, Some(body));
        put.await
    };
    let tenant = "/v1/tenants/customer-9";
    let named = |name: &str| json!({"name": name, "tier": "free"});
    let first = put(tenant, named("one")).await;
    let second = put(tenant, named("two")).await;
    assert_eq!(
        (first.status, second.status),
        (StatusCode::CREATED, StatusCode::OK)
    );
    assert_eq!(first.json["id"], second.json["id"]);
    assert_eq!(second.json["name"], "two");
    let refused = json!({"name": "three", "external_id": "customer-9"});
    let refused = world
        .call(Some(ADMIN), &Method::POST, "/v1/tenants", Some(refused))
        .await;
    assert_eq!(refused.json["field"], "external_id", "{refused:?}");
}

/// Whoever sends it, by the API or by a page: within that tenant's limit for events.
pub(crate) async fn a_trial_is_charged_to_whose_destination_it_is(world: &World) {
    let slow = world.tenant("slow").await;
    let tenant = format!("/v1/tenants/{}", slow.id);
    let one = json!({"ingest_per_second": 1});
    let changed = world.call(Some(ADMIN), &Method::PATCH, &tenant, Some(one));
    assert_eq!(changed.await.status, StatusCode::OK);
    let key = world.key(&slow, &TENANTS_OWN).await;
    let path = format!("/v1/destinations/{}/test", slow.destination);
    let tries = async |key: &str, path: &str| {
        let trial = json!({"wait_seconds": 0});
        let answer = world.call(Some(key), &Method::POST, path, Some(trial));
        answer.await.status
    };
    assert_eq!(tries(ADMIN, &path).await, StatusCode::ACCEPTED);

    // Minutes of what it may hand in.
    let event = json!({"destination_id": slow.destination, "payload": 1});
    let events = json!({"events": vec![event; 500]});
    loop {
        let answer = world.call(
            Some(&key),
            &Method::POST,
            "/v1/events/batch",
            Some(events.clone()),
        );
        match answer.await.status {
            StatusCode::ACCEPTED => break,
            status => assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "the trial's second"),
        }
        tokio::task::yield_now().await;
    }
    for whose in [key.as_str(), ADMIN] {
        let status = tries(whose, &path).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{whose}");
    }
    let form = format!("key={}", ADMIN.replace(' ', "+"));
    let entered = world.page("", "/dashboard/sign-in", Some(&form)).await;
    let page = format!("/dashboard/destinations/{}", slow.destination);
    let shown = world.page(&entered.cookie, &page, None).await.html;
    let token = shown.split_once("name=\"token\" value=\"");
    let token = token.and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let form = format!("token={token}");
    let trial = format!("{page}/trial");
    let refused = world.page(&entered.cookie, &trial, Some(&form)).await;
    assert_eq!(
        refused.status,
        StatusCode::TOO_MANY_REQUESTS,
        "{}",
        refused.html
    );
    let other = format!("/v1/destinations/{}/test", world.ours.destination);
    assert_eq!(tries(ADMIN, &other).await, StatusCode::ACCEPTED);
}
