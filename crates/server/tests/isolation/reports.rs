//! Standings, explanations, plans and compliance reports say what is so, of the
//! caller's own destinations and no others.

use std::collections::BTreeSet;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::walk::judged;
use crate::world::{Tenant, World};

/// What a tenant's key gets.
async fn ask(world: &World, who: &Tenant, method: Method, path: &str, body: Value) -> Value {
    let body = (!body.is_null()).then_some(body);
    let answer = world.call(Some(&who.key), &method, path, body).await;
    assert!(answer.status.is_success(), "{path}: {answer:?}");
    answer.json
}

async fn get(world: &World, who: &Tenant, path: &str) -> Value {
    ask(world, who, Method::GET, path, Value::Null).await
}

async fn refused(world: &World, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
    let body = (!body.is_null()).then_some(body);
    let answer = world.call(Some(&world.ours.key), &method, path, body).await;
    (answer.status, answer.json["field"].clone())
}

fn ids(list: &Value, field: &str) -> BTreeSet<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|one| one[field].as_str().unwrap().to_owned())
        .collect()
}

/// Twenty events more wait at the destination.
async fn twenty(world: &World) {
    let event = json!({"destination_id": world.ours.destination, "payload": 1});
    let events = json!({"events": vec![event; 20]});
    ask(world, &world.ours, Method::POST, "/v1/events/batch", events).await;
}

pub(crate) async fn standings_are_the_own_and_say_what_binds(world: &World) {
    let ours = &world.ours;
    twenty(world).await;
    let standings = get(world, ours, "/v1/standings").await;
    let own = BTreeSet::from([ours.destination.clone(), ours.dying.clone()]);
    assert_eq!(ids(&standings["standings"], "destination_id"), own);
    assert_eq!(standings["next"], Value::Null);
    let first = get(world, ours, "/v1/standings?limit=1").await;
    let after = first["next"].as_str().unwrap();
    let second = get(world, ours, &format!("/v1/standings?limit=1&after={after}")).await;
    let both = [&first, &second].map(|page| ids(&page["standings"], "destination_id"));
    assert_eq!(&both[0] | &both[1], own);
    let (status, field) = refused(world, Method::GET, "/v1/standings?limit=201", Value::Null).await;
    assert_eq!((status.as_u16(), field), (422, json!("limit")));

    let path = format!("/v1/destinations/{}", ours.destination);
    let explain = async || get(world, ours, &format!("{path}/explanation")).await;
    let explained = explain().await;
    assert_eq!(
        explained["reason"], "no_workers",
        "none has ever lived here"
    );
    assert!(explained["backlog"].as_u64().unwrap() >= 21, "{explained}");
    assert!(explained["oldest_since"].is_string(), "{explained}");
    let two = json!({"limits": {"per_second": 2}});
    ask(world, ours, Method::PATCH, &path, two).await;
    // SQLite holds it until the millisecond of the change is over.
    let explained = loop {
        let explained = explain().await;
        if explained["reason"] != "asked" {
            break explained;
        }
    };
    assert_eq!(explained["limit"], "2/second");
    assert_eq!(explained["configured_per_second"], 2.0);
    // Nobody sends, so nobody can say.
    assert_eq!(explained["drains_in_seconds"], Value::Null);

    ask(
        world,
        ours,
        Method::POST,
        &format!("{path}/pause"),
        Value::Null,
    )
    .await;
    let explained = explain().await;
    assert_eq!(explained["reason"], "paused");
    assert_eq!(explained["drains_in_seconds"], Value::Null);
}

/// All that need somebody are counted, and the rest is a link away.
pub(crate) async fn the_overview_counts_all_that_need_somebody(world: &World) {
    let many = world.tenant("many").await;
    for number in 0..24 {
        let new =
            json!({"url": format!("https://{number}.example/"), "name": format!("no {number}")});
        let made = ask(world, &many, Method::POST, "/v1/destinations", new).await;
        let path = format!("/v1/destinations/{}", made["id"].as_str().unwrap());
        ask(
            world,
            &many,
            Method::PATCH,
            &path,
            json!({"state": "disabled"}),
        )
        .await;
    }
    let key = format!("key={}", many.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let page = async |path| world.page(&entered.cookie, path, None).await.html;
    let first = page("/dashboard").await;
    let attention = |page: &str| {
        let part = page
            .split("<section aria-labelledby=\"all\">")
            .next()
            .unwrap();
        part.matches("<th scope=\"row\">").count()
    };
    assert_eq!(attention(&first), 20);
    let more = first
        .split_once("<a href=\"/dashboard?all=true\">")
        .unwrap()
        .1;
    let more: usize = more.split(" more").next().unwrap().parse().unwrap();
    // Beside those of ours there may be what the tenant came with.
    assert!(more >= 4, "{more}");
    let all = page("/dashboard?all=true").await;
    assert_eq!(attention(&all), 20 + more);
    assert!(!all.contains("id=\"more-trouble\""));
}

/// A dead letter and what operators are told name the destination, and whose it is.
pub(crate) async fn what_is_told_names_destination_and_tenant(world: &World) {
    let ours = &world.ours;
    let path = format!("/v1/destinations/{}", ours.dying);
    let named = json!({"name": "the dying shop"});
    ask(world, ours, Method::PATCH, &path, named).await;
    let key = format!("key={}", ours.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let dead = world
        .page(&entered.cookie, "/dashboard/dead-letters", None)
        .await;
    let link = format!(
        "<a href=\"/dashboard/destinations/{}\">the dying shop</a>",
        ours.dying
    );
    assert!(dead.html.contains(&link), "{}", dead.html);
    let told = get(world, ours, "/v1/operational-events").await;
    let told = told["operational_events"].as_array().unwrap();
    let of_it = told
        .iter()
        .find(|one| one["destination_id"] == ours.dying.as_str());
    let of_it = of_it.unwrap_or_else(|| panic!("{told:?}"));
    assert_eq!(of_it["destination_name"], "the dying shop");
    assert_eq!(of_it["tenant_name"], "ours");
}

/// Of all destinations; one that is deleted has dead letters that nothing replays.
pub(crate) async fn a_replay_of_all_is_shown_before_it_begins(world: &World) {
    let ours = world.tenant("replaying").await;
    let key = format!("key={}", ours.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let list = world
        .page(&entered.cookie, "/dashboard/dead-letters", None)
        .await;
    let token = list.html.split_once("name=\"token\" value=\"");
    let token = token.and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let form = format!("token={token}&destination=&type=&status=");
    let preview = async || {
        world
            .page(&entered.cookie, "/dashboard/replays", Some(&form))
            .await
    };
    let shown = preview().await;
    assert_eq!(shown.status, 200, "{}", shown.html);
    assert!(
        shown.html.contains("<h1>Replay 1 dead letters?</h1>"),
        "{}",
        shown.html
    );
    assert!(shown.html.contains(&ours.dying), "{}", shown.html);
    let path = format!("/v1/destinations/{}", ours.dying);
    let deleted = world
        .call(Some(&ours.key), &Method::DELETE, &path, None)
        .await;
    assert!(deleted.status.is_success(), "{deleted:?}");
    let shown = preview().await;
    assert_eq!(shown.status, 200, "{}", shown.html);
    assert!(shown.html.contains("None match."), "{}", shown.html);
}

pub(crate) async fn a_running_replay_is_ended_when_one_is_sure(world: &World) {
    let ours = world.tenant("ending").await;
    let key = format!("key={}", ours.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let path = format!("/dashboard/replays/{}", ours.replay);
    let shown = world.page(&entered.cookie, &path, None).await;
    let token = shown.html.split_once("name=\"token\" value=\"");
    let token = token.and_then(|(_, rest)| rest.split('"').next()).unwrap();
    let end = async |form: String| {
        let path = format!("{path}/cancel");
        world.page(&entered.cookie, &path, Some(&form)).await
    };
    let state = async || {
        let path = format!("/v1/replays/{}", ours.replay);
        let replay = world.call(Some(&ours.key), &Method::GET, &path, None).await;
        replay.json["state"].clone()
    };
    let asked = end(format!("token={token}")).await;
    assert_eq!(asked.status, 200, "{}", asked.html);
    let says = "About 1 dead letters that it has not moved stay dead letters";
    assert!(asked.html.contains(says), "{}", asked.html);
    assert_eq!(state().await, "running");
    let ended = end(format!("token={token}&sure=yes")).await;
    assert_eq!(ended.status, 303, "{}", ended.html);
    assert_eq!(state().await, "cancelled");
}

pub(crate) async fn a_plan_replays_what_waits(world: &World) {
    let ours = &world.ours;
    twenty(world).await;
    let path = format!("/v1/destinations/{}/plan", ours.destination);
    let slow = json!({"limits": {"per_second": 1}, "last_seconds": 3_600});
    let plan = ask(world, ours, Method::POST, &path, slow).await;
    let waiting = plan["actual"]["waiting"].as_u64().unwrap();
    assert!(waiting >= 21, "{plan}");
    assert_eq!(plan["replayed"]["starts"], waiting);
    assert_eq!(plan["replayed"]["waiting"], 0);
    // Twenty came at once, and go one by one.
    assert!(
        plan["replayed"]["wait_p99_seconds"].as_f64().unwrap() >= 18.0,
        "{plan}"
    );
    let busiest = plan["replayed"]["busiest_second"].as_u64().unwrap();
    assert!(busiest <= 2, "of the clock: {plan}");
    assert_eq!(plan["proposed"]["limits"]["per_second"], 1);
    let curves = plan["curves"].as_array().unwrap();
    let due: u64 = curves
        .iter()
        .map(|point| point["due"].as_u64().unwrap())
        .sum();
    assert_eq!(due, waiting);
    // It changed nothing.
    let shown = get(
        world,
        ours,
        &format!("/v1/destinations/{}", ours.destination),
    )
    .await;
    assert_eq!(shown["limits"]["per_second"], Value::Null);

    let fast = json!({"unlimited": true});
    let plan = ask(world, ours, Method::POST, &path, fast).await;
    assert_eq!(plan["drains_in_seconds"], 0.0);
    assert_eq!(
        plan["expected_refused"],
        Value::Null,
        "it was never sent any"
    );

    for (body, wrong) in [
        (json!({"last_seconds": 0}), "last_seconds"),
        (json!({"last_seconds": 700_000}), "last_seconds"),
        (json!({"burst": 0}), "burst"),
    ] {
        let (status, field) = refused(world, Method::POST, &path, body).await;
        assert_eq!((status.as_u16(), field), (422, json!(wrong)));
    }
}

pub(crate) async fn a_report_is_of_the_own_destinations(world: &World) {
    let ours = &world.ours;
    let report = get(world, ours, "/v1/compliance?points=10").await;
    let own = BTreeSet::from([ours.destination.clone(), ours.dying.clone()]);
    assert_eq!(ids(&report["destinations"], "id"), own);
    assert_eq!(
        (&report["compliant"], &report["next"]),
        (&json!(true), &Value::Null)
    );
    let one = format!(
        "/v1/compliance?points=10&destination_id={}",
        ours.destination
    );
    judged(world, ours).await;
    let report = get(world, ours, &one).await;
    let found = &report["destinations"][0];
    assert_eq!(found["id"], ours.destination);
    assert_eq!(found["limits"].as_array().unwrap().len(), 1);
    assert!(found["curve"]["points"].as_array().unwrap().len() <= 10);

    let first = get(world, ours, "/v1/compliance?limit=1").await;
    assert!(first["destinations"][0].get("curve").is_none());
    let after = first["next"].as_str().unwrap();
    let second = get(
        world,
        ours,
        &format!("/v1/compliance?limit=1&after={after}"),
    )
    .await;
    let both = [&first, &second].map(|page| ids(&page["destinations"], "id"));
    assert_eq!(&both[0] | &both[1], own);

    let of_theirs = format!("/v1/compliance?destination_id={}", world.theirs.destination);
    let (status, _) = refused(world, Method::GET, &of_theirs, Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    for (query, wrong) in [
        ("since=yesterday", "since"),
        (
            "until=2026-01-01T00:00:00Z&since=2026-01-02T00:00:00Z",
            "since",
        ),
        // Nothing of it can be judged yet.
        (
            "until=2200-03-01T00:00:00Z&since=2200-02-28T00:00:00Z",
            "since",
        ),
        (
            "until=2026-03-01T00:00:00Z&since=2026-01-02T00:00:00Z",
            "since",
        ),
        ("points=301", "points"),
        ("limit=0", "limit"),
    ] {
        let path = format!("/v1/compliance?{query}");
        let (status, field) = refused(world, Method::GET, &path, Value::Null).await;
        assert_eq!((status.as_u16(), field), (422, json!(wrong)), "{query}");
    }
}
