//! What is done on pages, by whom: no form is done without its session's token, and what
//! cannot be taken back is asked first. Which route reaches what is in `routes`.

use std::time::Duration;

use axum::body::Body;
use domain::ids::{DestinationId, ReplayId, TenantId};
use domain::replay::MAX_RUNNING;
use engine::ports::{
    DeadLetterFilter, LimitRequestState, NewDestinationsRequest, NewReplay, ReapRules, Which,
};
use http::{Method, Request};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::place::Place;
use crate::visit::{ADMIN, HOST, Page, Visitor, World};

const ALERTS: &str = "/dashboard/alerts";
const OF_TENANTS: &str = "/dashboard/tenants";
const REPLAYS: &str = "/dashboard/replays";
const RESEND: &str = "/dashboard/events/resend";

on_both! {
    a_form_needs_its_sessions_token_and_our_origin
    an_operator_opens_a_destination_by_its_id
    who_cannot_read_has_no_session
    a_link_opens_its_tenants_pages_and_no_more
    a_link_ends_by_itself_and_with_all_that_it_opened
    limits_go_up_to_the_ceiling_and_beyond_it_are_asked_for
    a_page_says_where_saving_less_lowers_what_may_be_set
    a_margin_is_set_beside_limits_that_are_above_the_ceiling
    by_link_no_tenants_limits_go_beyond_its_tier
    all_that_limits_a_destination_is_set_on_its_page
    what_limits_a_destination_is_refused_or_asked_for_on_its_page
    requests_go_on_to_the_next_page
    a_session_ends_with_its_key
    a_proxy_that_writes_another_host_leaves_the_cookie_secure
    answers_are_guarded
    events_are_found_by_type
    a_search_keeps_what_was_typed
    attempts_are_found_on_their_page
    attempts_at_all_destinations_are_found_on_one_page
    what_an_event_carries_is_shown_to_those_who_may_see_it
    names_stand_where_ids_did
    a_search_of_events_is_of_its_tenants_own
    a_preview_is_the_plan_and_says_what_is_inherited
    what_cannot_be_taken_back_is_asked_first
    what_was_missed_is_sent_again
    what_each_has_missed_is_counted_and_sent_again
    what_is_resent_is_of_a_time_and_at_a_share
    a_wrong_resend_comes_again_as_it_was_typed
    a_page_sends_to_all_in_parts
    a_page_replays_at_all_in_parts
    an_operator_resends_to_all_on_the_tenants_own_pages
    alerts_are_set_by_whose_they_are
    destinations_are_told_by_whose_they_are
    who_is_told_is_found_by_a_whole_name_that_is_in_others
    who_is_told_of_all_tenants_is_for_operators_to_change
    an_alert_that_makes_no_sense_is_named
    alerts_of_others_are_out_of_reach
    a_destination_is_added_changed_and_deleted
}

/// Who is told of a tenant's alerts, by the API.
async fn told(world: &World, key: &str) -> Vec<Value> {
    let list = "/v1/notice-addresses";
    let list = world.api(key, Method::GET, list, json!({})).await;
    list["notice_addresses"].as_array().unwrap().clone()
}

/// By its owner, and by an operator who comes from the tenant's page.
async fn alerts_are_set_by_whose_they_are(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let [ours, operator] = [world.sign_in(&key).await, world.sign_in(ADMIN).await];
    let of_operator = format!("{OF_TENANTS}/{tenant}/alerts");
    for (visitor, path, percent) in [(&ours, ALERTS, 70), (&operator, &*of_operator, 80)] {
        let number = percent.to_string();
        let fields = [("success_percent", &*number), ("success_seconds", "")];
        let set = world.post(visitor, path, &fields).await;
        assert_eq!(set.status, 303, "{path}");
        let alerts = world.api(&key, Method::GET, "/v1/alerts", json!({})).await;
        assert_eq!(alerts["success_percent"], percent);
        assert_eq!(alerts["success_seconds"], 3_600, "the default");
        let address = format!("ops-{percent}@example.com");
        let fields = [
            ("form", "email"),
            ("address", &*address),
            ("every_seconds", "3600"),
            ("type_dead_letters", "on"),
        ];
        let add = format!("{path}/addresses");
        assert_eq!(world.post(visitor, &add, &fields).await.status, 303);
        let last = told(world, &key).await.pop().unwrap();
        assert_eq!(
            (
                &last["address"],
                &last["every_seconds"],
                &last["event_types"]
            ),
            (&json!(address), &json!(3_600), &json!(["dead_letters"]))
        );
        let page = world.get(visitor, path).await.text;
        for part in [&address, &format!("value=\"{percent}\"")] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

/// By a part of the name, as its owner or as an operator.
async fn destinations_are_told_by_whose_they_are(world: &World) {
    let (tenant, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let [ours, operator] = [world.sign_in(&key).await, world.sign_in(ADMIN).await];
    let of_operator = format!("{OF_TENANTS}/{tenant}/alerts");
    let list = async || {
        let list = "/v1/operational-destinations";
        let list = world.api(&key, Method::GET, list, json!({})).await;
        list["operational_destinations"].clone()
    };
    for (visitor, path) in [(&ours, ALERTS), (&operator, &*of_operator)] {
        let add = format!("{path}/destinations");
        let fields = [("told", "OURS"), ("type_dead_letters", "on")];
        assert_eq!(world.post(visitor, &add, &fields).await.status, 303);
        let told = json!([{
            "destination_id": id, "scope": "tenant", "event_types": ["dead_letters"],
        }]);
        assert_eq!(list().await, told, "{path}");
        let page = world.get(visitor, path).await.text;
        let remove = format!("{add}/{id}");
        for part in [
            "ours&#39;s</a></td><td>this tenant</td><td>dead_letters</td>",
            &format!("action=\"{remove}\""),
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(world.post(visitor, &remove, &[]).await.status, 303);
        assert_eq!(list().await, json!([]), "{path}");
        assert_eq!(world.post(visitor, &remove, &[]).await.status, 404);
        for (typed, problem) in [
            (
                "nothing of the kind",
                "destination: there is none with this",
            ),
            (" ", "destination: say which is told"),
        ] {
            let refused = world.post(visitor, &add, &[("told", typed)]).await;
            assert_eq!(refused.status, 422, "{path}");
            assert!(refused.text.contains(problem), "{}", refused.text);
        }
    }
    let all = [("told", "ours"), ("all_tenants", "on")];
    let add = format!("{ALERTS}/destinations");
    assert_eq!(world.post(&ours, &add, &all).await.status, 403);
}

/// Or by a whole URL.
async fn who_is_told_is_found_by_a_whole_name_that_is_in_others(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let body = json!({"name": "not ours's", "url": "https://example.com/hooks/2"});
    world
        .api(&key, Method::POST, "/v1/destinations", body)
        .await;
    let ours = world.sign_in(&key).await;
    let add = format!("{ALERTS}/destinations");
    let refused = world.post(&ours, &add, &[("told", "ours")]).await;
    assert_eq!(refused.status, 422);
    let problem = "destination: several have this";
    assert!(refused.text.contains(problem), "{}", refused.text);
    for typed in ["OURS's", "https://example.com/hooks"] {
        let told = world.post(&ours, &add, &[("told", typed)]).await;
        assert_eq!(told.status, 303, "{typed}: {}", told.text);
        let list = "/v1/operational-destinations";
        let list = world.api(&key, Method::GET, list, json!({})).await;
        let found = list["operational_destinations"].as_array().unwrap();
        let ids: Vec<_> = found.iter().map(|one| &one["destination_id"]).collect();
        assert_eq!(ids, [&json!(id)], "{typed}");
        let remove = format!("{add}/{id}");
        assert_eq!(world.post(&ours, &remove, &[]).await.status, 303);
    }
}

/// Not for everybody who manages the installation's own tenant, on pages or by API.
async fn who_is_told_of_all_tenants_is_for_operators_to_change(world: &World) {
    let own = engine::ports::DEFAULT_TENANT;
    let body = json!({"url": "https://example.com/own", "name": "own"});
    let made = world.api(ADMIN, Method::POST, "/v1/destinations", body);
    let id = made.await["id"].as_str().unwrap().to_owned();
    let told_by = format!("/v1/operational-destinations/{id}");
    let all = json!({"scope": "installation"});
    world.api(ADMIN, Method::PUT, &told_by, all).await;
    let mail = json!({"form": "email", "address": "ops@example.com", "scope": "installation"});
    let mail = world.api(ADMIN, Method::POST, "/v1/notice-addresses", mail);
    let mail = mail.await["id"].as_str().unwrap().to_owned();
    let keys = format!("/v1/tenants/{own}/keys");
    let key = json!({"scopes": ["manage", "read"]});
    let key = world.api(ADMIN, Method::POST, &keys, key).await;
    let key = key["key"].as_str().unwrap();
    let [manages, operator] = [world.sign_in(key).await, world.sign_in(ADMIN).await];
    let sure = ("sure", "yes");
    let forms = [
        (format!("{ALERTS}/destinations"), ("told", "own")),
        (format!("{ALERTS}/destinations/{id}"), sure),
        (format!("{ALERTS}/addresses/{mail}"), sure),
    ];
    for (path, field) in &forms {
        let refused = world.post(&manages, path, &[*field]).await;
        assert_eq!(refused.status, 403, "{path}");
    }
    let of_mail = format!("/v1/notice-addresses/{mail}");
    for (method, path) in [
        (Method::PUT, &told_by),
        (Method::DELETE, &told_by),
        (Method::DELETE, &of_mail),
    ] {
        let request = Request::builder().method(&method).uri(path);
        let request = request
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json");
        let refused = world.request(request.body(Body::from("{}")).unwrap()).await;
        assert_eq!(refused.status, 403, "{method} {path}");
    }
    assert_eq!(told(world, key).await.len(), 1);
    for (path, field) in &forms {
        let done = world.post(&operator, path, &[*field]).await;
        assert_eq!(done.status, 303, "{path}");
    }
    assert_eq!(told(world, key).await.len(), 0);
}

async fn an_alert_that_makes_no_sense_is_named(world: &World) {
    let (_, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let ours = world.sign_in(&key).await;
    let add = format!("{ALERTS}/addresses");
    for (path, fields, field) in [
        (
            ALERTS,
            [("success_percent", "101"), ("x", "")],
            "success_percent",
        ),
        (
            ALERTS,
            [("success_least", "few"), ("x", "")],
            "success_least",
        ),
        (&add, [("form", "email"), ("address", "x")], "address"),
        (&add, [("form", "pigeon"), ("address", "x")], "form"),
    ] {
        let refused = world.post(&ours, path, &fields).await;
        assert_eq!(refused.status, 422, "{path}");
        assert!(refused.text.contains(field), "{}", refused.text);
    }
}

/// Of others nothing is seen, changed or removed, and only an operator is told of all.
async fn alerts_of_others_are_out_of_reach(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let (_, stranger, _) = world.tenant("theirs", &["manage", "read"]).await;
    let ours = world.sign_in(&key).await;
    let strangers = world.sign_in(&stranger).await;
    let operator = world.sign_in(ADMIN).await;
    let add = format!("{ALERTS}/addresses");
    let all = [
        ("form", "email"),
        ("address", "a@example.com"),
        ("all_tenants", "on"),
    ];
    assert_eq!(world.post(&ours, &add, &all).await.status, 403);
    assert_eq!(world.post(&operator, &add, &all).await.status, 303);
    assert_eq!(told(world, ADMIN).await[0]["scope"], "installation");
    let of_operator = format!("{OF_TENANTS}/{tenant}/alerts");
    assert_eq!(world.get(&strangers, &of_operator).await.status, 403);
    let change = world.post(&strangers, &of_operator, &[("x", "")]).await;
    assert_eq!(change.status, 403);
    assert_eq!(world.post(&ours, &add, &all[..2]).await.status, 303);
    let first = told(world, &key).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let remove = format!("{add}/{first}");
    let sure = [("sure", "yes")];
    assert_eq!(world.post(&strangers, &remove, &sure).await.status, 404);
    let asked = world.post(&ours, &remove, &[("x", "")]).await.text;
    assert!(
        asked.contains("Tell a@example.com nothing more?"),
        "{asked}"
    );
    assert_eq!(told(world, &key).await.len(), 1, "it asks first");
    assert_eq!(world.post(&ours, &remove, &sure).await.status, 303);
    assert_eq!(told(world, &key).await, Vec::<Value>::new());
}

/// Asked first, and then a replay that can be followed.
async fn what_was_missed_is_sent_again(world: &World) {
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let body = json!({"destination_id": id, "payload": 1});
    let event = world.api(&key, Method::POST, "/v1/events", body).await;
    let event = event["id"].as_str().unwrap().to_owned();
    let page = world
        .get(&visitor, &format!("/dashboard/events/{event}"))
        .await;
    let path = format!("/dashboard/events/{event}/resend");
    assert!(
        page.text.contains(&format!("action=\"{path}\"")),
        "{}",
        page.text
    );
    let asked = world.post(&visitor, &path, &[("x", "")]).await;
    assert!(
        asked.text.contains("Send this event again?"),
        "{}",
        asked.text
    );
    let waits = world.post(&visitor, &path, &[("sure", "yes")]).await;
    assert_eq!(
        waits.status, 409,
        "it has not been sent yet: {}",
        waits.text
    );
    let path = format!("/dashboard/destinations/{id}/resend");
    let asked = world.post(&visitor, &path, &[("hours", "24")]).await;
    assert!(asked.text.contains("has missed?"), "{}", asked.text);
    let much = "By now 0 match, which takes about 0 ms.";
    assert!(asked.text.contains(much), "{}", asked.text);
    let wrong = world.post(&visitor, &path, &[("hours", "25")]).await;
    assert_eq!(wrong.status, 422);
    let text = |text| [("hours", "24"), ("text", text)];
    let asked = world.post(&visitor, &path, &text(&event)).await;
    assert!(asked.text.contains("has missed?"), "{}", asked.text);
    let nothing = world.post(&visitor, &path, &text("order-4711")).await;
    assert_eq!(nothing.status, 422, "it is not asked about");
    let sure = [("hours", "24"), ("sure", "yes")];
    let begun = world.post(&visitor, &path, &sure).await;
    assert_eq!(begun.status, 303, "{}", begun.text);
    let to = begun.headers["location"].to_str().unwrap().to_owned();
    assert!(to.starts_with("/dashboard/replays/"), "{to}");
    assert_eq!(world.get(&visitor, &to).await.status, 200);
}

/// To all destinations from the page of events: shown first, by destination, and then a
/// replay for each.
async fn what_each_has_missed_is_counted_and_sent_again(world: &World) {
    let (_, key, _) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let post = async |path: &str, body: Value| world.api(&key, Method::POST, path, body).await;
    // Those that come later have missed it.
    post("/v1/events", json!({"type": "a.b", "payload": 1})).await;
    let mut missed = Vec::new();
    for name in ["first", "second"] {
        let url = "https://example.com/late";
        let late = json!({"url": url, "name": name, "event_types": ["a.*"]});
        let late = post("/v1/destinations", late).await;
        missed.push(late["id"].as_str().unwrap().to_owned());
    }
    let page = world.get(&visitor, "/dashboard/events").await;
    let form = format!("action=\"{RESEND}\"");
    assert!(page.text.contains(&form), "{}", page.text);
    let day = ("hours", "24");
    let asked = world.post(&visitor, RESEND, &[day, ("type", "a.b")]).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    for says in [
        "<h1>Resend 2 deliveries?</h1>",
        "Only those with type a.b.",
        "Disabled destinations are left out.",
        ">first</a>",
        ">second</a>",
        "at half of the limit",
        "name=\"since\" value=\"",
        "name=\"type\" value=\"a.b\"",
        "Resend them",
    ] {
        assert!(asked.text.contains(says), "{says}: {}", asked.text);
    }
    let none = world.post(&visitor, RESEND, &[day, ("type", "c.d")]).await;
    assert!(none.text.contains("None match."), "{}", none.text);
    assert!(!none.text.contains("Resend them"), "{}", none.text);
    for wrong in [
        [("hours", "25"), ("type", "")],
        [day, ("state", "asleep")],
        [day, ("status", "6x")],
        [day, ("text", "order-4711")],
        [day, ("since", "noon")],
    ] {
        let refused = world.post(&visitor, RESEND, &wrong).await;
        assert_eq!(refused.status, 422, "{wrong:?}: {}", refused.text);
    }
    let list = async || world.api(&key, Method::GET, "/v1/replays", json!({})).await;
    assert_eq!(list().await["replays"], json!([]), "it asks first");
    let sure = [day, ("type", "a.b"), ("sure", "yes")];
    let begun = world.post(&visitor, RESEND, &sure).await;
    assert_eq!(begun.status, 303, "{}", begun.text);
    let to = begun.headers["location"].to_str().unwrap();
    assert_eq!(to, "/dashboard/dead-letters?begun=2");
    let list = list().await;
    let begun = list["replays"].as_array().unwrap().iter();
    let mut begun: Vec<_> = begun
        .map(|one| (one["destination_id"].as_str().unwrap(), &one["total"]))
        .collect();
    begun.sort_unstable_by_key(|(id, _)| *id);
    missed.sort_unstable();
    let one = json!(1);
    let wanted: Vec<_> = missed.iter().map(|id| (id.as_str(), &one)).collect();
    assert_eq!(begun, wanted);
}

/// With what is wrong beside the form, whichever page it is on; and so it does from whoever
/// is sure.
async fn a_wrong_resend_comes_again_as_it_was_typed(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let of_one = format!("/dashboard/destinations/{id}/resend");
    let typed = [
        ("hours", "24"),
        ("type", "a.b"),
        ("state", "failed"),
        ("delivered", "yes"),
    ];
    for (name, value, problem) in [
        ("since", "noon", "since: must be a time"),
        ("until", "noon", "until: must be a time"),
        ("status", "6x", "status: "),
        ("text", "order-4711", "text: "),
        ("share", "much", "share: must be a number"),
        ("share", "5", "share: must be above 0"),
    ] {
        let wrong = [&typed[..], &[(name, value)]].concat();
        let sure = [&wrong[..], &[("sure", "yes")]].concat();
        for (path, form) in [(&*of_one, &wrong), (RESEND, &wrong), (RESEND, &sure)] {
            let again = world.post(&visitor, path, form).await;
            assert_eq!(again.status, 422, "{path}: {}", again.text);
            for shown in [
                &*format!("id=\"problem\">{problem}"),
                &*format!("name=\"{name}\" value=\"{value}\""),
                "<option value=\"24\" selected>",
                "<details id=\"only-some\" open>",
                "name=\"type\" value=\"a.b\"",
                "<option selected>failed</option>",
                "name=\"delivered\" value=\"yes\" checked",
            ] {
                assert!(again.text.contains(shown), "{shown}: {}", again.text);
            }
        }
    }
    let replays = world.api(&key, Method::GET, "/v1/replays", json!({}));
    assert_eq!(replays.await["replays"], json!([]));
}

/// As API and command line do: of a time with both ends, with what was delivered, and at
/// another part of the limits; each stands in the form by which one is sure.
async fn what_is_resent_is_of_a_time_and_at_a_share(world: &World) {
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let path = format!("/dashboard/destinations/{id}/resend");
    let page = format!("/dashboard/destinations/{id}");
    for page in [page.as_str(), "/dashboard/events"] {
        let page = world.get(&visitor, page).await.text;
        for name in ["since", "until", "share", "delivered"] {
            assert!(page.contains(&format!("name=\"{name}\"")), "{name}: {page}");
        }
    }
    let time = [("since", "2026-01-31 12:00"), ("until", "2026-02-01")];
    let said = [&time[..], &[("delivered", "yes"), ("share", "0.3")]].concat();
    for path in [path.as_str(), RESEND] {
        let asked = world.post(&visitor, path, &said).await;
        assert_eq!(asked.status, 200, "{path}: {}", asked.text);
        for says in [
            "Events since 2026-01-31 12:00:00 and before 2026-02-01 00:00:00 that",
            "delivered or not, are sent again at 30 % of its limit.",
        ] {
            assert!(asked.text.contains(says), "{path}: {says}: {}", asked.text);
        }
    }
    let asked = world.post(&visitor, &path, &said).await;
    let form = form_of(&asked.text, &path);
    for field in [
        ("since", "2026-01-31T12:00:00.000000Z"),
        ("until", "2026-02-01T00:00:00.000000Z"),
        ("delivered", "yes"),
        ("share", "0.3"),
    ] {
        assert!(form.contains(&field), "{field:?}: {form:?}");
    }
    let begun = world.post(&visitor, &path, &form).await;
    assert_eq!(begun.status, 303, "{}", begun.text);
    let replays = world.api(&key, Method::GET, "/v1/replays", json!({})).await;
    assert_eq!(replays["replays"][0]["share"], 0.3, "{replays}");
    for (wrong, says) in [
        (("share", "1.5"), "share: must be above 0, at most 1"),
        (("share", "half"), "share: must be a number"),
        (("until", "noon"), "until: must be a time"),
        (("until", "2026-01-31"), "since: must be before until"),
    ] {
        let refused = world.post(&visitor, &path, &[time[0], wrong]).await;
        assert_eq!(refused.status, 422, "{wrong:?}: {}", refused.text);
        assert!(refused.text.contains(says), "{says}: {}", refused.text);
    }
}

/// A form goes on after each hundred, with the time that was counted and all that has begun.
async fn a_page_sends_to_all_in_parts(world: &World) {
    let scopes = ["ingest", "manage", "read"];
    let (_, key, first) = world.tenant("ours", &scopes).await;
    let visitor = world.sign_in(&key).await;
    // As fast as a tenant may change things.
    let change = async |method: Method, path: &str, body: Value| loop {
        let request = Request::builder().method(method.clone()).uri(path);
        let request = request
            .header("authorization", format!("Bearer {key}"))
            .header("content-type", "application/json")
            .body(Body::from(body.to_string()));
        let answer = world.request(request.unwrap()).await;
        match answer.status.is_success() {
            true => return,
            false => assert_eq!(answer.status, 429, "{}", answer.text),
        }
    };
    let asked = async |fields: &[(&str, &str)]| loop {
        let page = world.post(&visitor, RESEND, fields).await;
        if page.status != 429 {
            return page;
        }
    };
    let missed = json!({"type": "a.b", "payload": 1});
    change(Method::POST, "/v1/events", missed).await;
    let url = "https://example.com/one";
    for _ in 1..100 {
        change(Method::POST, "/v1/destinations", json!({"url": url})).await;
    }
    let (day, sure) = (("hours", "24"), ("sure", "yes"));
    let none = asked(&[day]).await;
    assert!(none.text.contains("None match."), "{}", none.text);
    // It may be asked more often, where all of it takes long.
    let ended = async |mut page: Page| {
        while page.status == 200 {
            let question = page.text;
            page = asked(&form_of(&question, RESEND)).await;
        }
        page.headers["location"].to_str().unwrap().to_owned()
    };
    let begun = ended(asked(&[day, sure]).await).await;
    assert_eq!(begun, "/dashboard/dead-letters?begun=0");

    let wants = json!({"event_types": ["a.*"]});
    let path = format!("/v1/destinations/{first}");
    change(Method::PATCH, &path, wants).await;
    let last = json!({"url": url, "event_types": ["a.*"]});
    change(Method::POST, "/v1/destinations", last).await;
    let counted = asked(&[day]).await.text;
    for says in [
        "<h1>Resend at least 1 deliveries?</h1>",
        "which takes at least about",
    ] {
        assert!(counted.contains(says), "{says}: {counted}");
    }
    let counted = form_of(&counted, RESEND);
    let question = asked(&counted).await;
    let says = "1 replays have begun by now, and there are more destinations.";
    assert!(question.text.contains(says), "{}", question.text);
    let again = form_of(&question.text, RESEND);
    let since = |form: &[(&str, &str)]| {
        let found = form.iter().find(|(name, _)| *name == "since");
        found.unwrap().1.to_owned()
    };
    assert_eq!(since(&again), since(&counted));
    assert_eq!(ended(question).await, "/dashboard/dead-letters?begun=2");
}

/// With what has begun by then, where no more of them may run at once: here there is room for
/// two of three.
async fn a_page_replays_at_all_in_parts(world: &World) {
    let scopes = ["ingest", "manage", "read"];
    let (tenant, key, first) = world.tenant("ours", &scopes).await;
    let visitor = world.sign_in(&key).await;
    let post = async |path: &str, body: Value| world.api(&key, Method::POST, path, body).await;
    let mut dying = vec![first.clone()];
    for _ in 1..3 {
        let another = post(
            "/v1/destinations",
            json!({"url": "https://example.com/one"}),
        )
        .await;
        dying.push(another["id"].as_str().unwrap().to_owned());
    }
    for id in &dying {
        let retries = format!("/v1/destinations/{id}/retries");
        let age = json!({"max_age_ms": 1});
        world.api(&key, Method::PUT, &retries, age).await;
        let event = json!({"destination_id": id, "type": "a.b", "payload": 1});
        post("/v1/events", event).await;
    }
    let rules = ReapRules {
        heartbeat_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        permit_grace: Duration::from_secs(1),
        everything: true,
    };
    let mut dead = 0;
    while dead < dying.len() {
        world.stored.reap(&rules, 100).await.unwrap();
        let list = world
            .api(&key, Method::GET, "/v1/dead-letters", json!({}))
            .await;
        dead = list["dead_letters"].as_array().unwrap().len();
    }
    let tenant: TenantId = tenant.parse().unwrap();
    let first: DestinationId = first.parse().unwrap();
    for number in 2..MAX_RUNNING {
        let new = NewReplay {
            id: ReplayId(Uuid::from_u128(number.into())),
            which: Which::Matching(first, DeadLetterFilter::default()),
            share: 0.5,
        };
        world.stored.create_replay(tenant, &new).await.unwrap();
    }
    let form = [("type", "a.b"), ("sure", "yes")];
    let question = world.post(&visitor, REPLAYS, &form).await;
    let says = "2 replays have begun by now, and there are more destinations.";
    assert!(question.text.contains(says), "{}", question.text);
    let again = form_of(&question.text, REPLAYS);
    assert!(again.contains(&("type", "a.b")), "{again:?}");
    let refused = world.post(&visitor, REPLAYS, &again).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    let cancel = format!("/v1/replays/{}/cancel", Uuid::from_u128(2));
    post(&cancel, json!({})).await;
    let ended = world.post(&visitor, REPLAYS, &again).await;
    assert_eq!(ended.status, 303, "{}", ended.text);
    assert_eq!(ended.headers["location"], "/dashboard/dead-letters?begun=3");
}

/// The form says no tenant: it is on the pages of the one whose pages the session shows.
async fn an_operator_resends_to_all_on_the_tenants_own_pages(world: &World) {
    let (tenant, _, id) = world.tenant("ours", &["manage", "read"]).await;
    let operator = world.sign_in(ADMIN).await;
    let path = format!("/dashboard/events?destination={id}");
    let form = format!("action=\"{RESEND}\"");
    let shown = async |has_form: bool| {
        let page = world.get(&operator, &path).await;
        let says = "You look at <strong>ours</strong>";
        assert!(page.text.contains(says), "{}", page.text);
        assert_eq!(page.text.contains(&form), has_form, "{}", page.text);
    };
    shown(false).await;
    let open = format!("/dashboard/tenants/{tenant}/open");
    assert_eq!(world.post(&operator, &open, &[]).await.status, 303);
    shown(true).await;
}

/// Whichever tenant's it is, by nothing but its address. It had been a 404 until "See
/// its pages" was pressed.
async fn an_operator_opens_a_destination_by_its_id(world: &World) {
    let (tenant, key, id) = world
        .tenant("M\u{fc}ller & S\u{f6}hne", &["ingest", "manage", "read"])
        .await;
    let body = json!({"destination_id": id, "type": "a.b", "payload": {}});
    let event = world.api(&key, Method::POST, "/v1/events", body).await;
    let event = event["id"].as_str().unwrap();
    let operator = world.sign_in(ADMIN).await;
    let says = "You look at <strong>M\u{fc}ller &#38; S\u{f6}hne</strong>";
    let one = format!("/dashboard/destinations/{id}");
    for path in [
        one.clone(),
        format!("{one}/attempts"),
        format!("/dashboard/events/{event}"),
        format!("/dashboard/dead-letters?destination={id}"),
    ] {
        let page = world.get(&operator, &path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert!(page.text.contains(says), "{path}: {}", page.text);
        let back = "<a href=\"/dashboard\">Back to your own pages</a>";
        assert!(page.text.contains(back), "{path}");
    }
    let live = world.get(&operator, &format!("{one}/live")).await;
    assert_eq!(live.status, 200);
    let paused = [("state", "paused")];
    let page = world
        .post(&operator, &format!("{one}/state"), &paused)
        .await;
    assert_eq!(page.status, 303, "{}", page.text);
    let state = format!("/v1/destinations/{id}");
    let state = world.api(&key, Method::GET, &state, json!({})).await;
    assert_eq!(state["state"], "paused");
    // The session has stayed where it was.
    let own = world.get(&operator, "/dashboard").await;
    assert!(!own.text.contains("You look at"), "{}", own.text);
    assert!(!own.text.contains(&id), "{}", own.text);

    // Where it is moved, it says so, and there is a way back.
    let open = format!("/dashboard/tenants/{tenant}/open");
    assert_eq!(world.post(&operator, &open, &[]).await.status, 303);
    let moved = world.get(&operator, "/dashboard").await;
    assert!(moved.text.contains(says), "{}", moved.text);
    let back = "/dashboard/tenants/00000000-0000-0000-0000-000000000001/open";
    assert!(moved.text.contains(back), "{}", moved.text);
    assert_eq!(world.post(&operator, back, &[]).await.status, 303);
    let own = world.get(&operator, "/dashboard").await;
    assert!(!own.text.contains("You look at"), "{}", own.text);

    // The tenant itself is told nothing of this.
    let theirs = world.get(&world.sign_in(&key).await, &one).await;
    assert!(!theirs.text.contains("You look at"), "{}", theirs.text);
}

async fn a_form_needs_its_sessions_token_and_our_origin(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let (one, other) = (world.sign_in(&key).await, world.sign_in(&key).await);
    let path = format!("/dashboard/destinations/{id}/state");
    let paused = ("state", "paused");
    for token in ["", "0", &other.token] {
        let page = world
            .form(&path, Some(&one), &[("token", token), paused])
            .await;
        assert_eq!(page.status, 403, "{token}");
    }
    let fields = [("token", one.token.as_str()), paused];
    for origin in ["http://evil.example", "null", "http://127.0.0.1:9999"] {
        let page = world.form_from(origin, &path, Some(&one), &fields).await;
        assert_eq!(page.status, 403, "{origin}");
        let page = world
            .form_from(origin, "/dashboard/sign-in", None, &[("key", ADMIN)])
            .await;
        assert_eq!(page.status, 403, "{origin}");
    }
    let page = world.form(&path, None, &fields).await;
    assert_eq!(
        (page.status.as_u16(), &page.headers["location"]),
        (303, &"/dashboard/sign-in".parse().unwrap())
    );
    let destination = format!("/v1/destinations/{id}");
    let still = world.api(&key, Method::GET, &destination, json!({})).await;
    assert_eq!(still["state"], "active");
    assert_eq!(world.form(&path, Some(&one), &fields).await.status, 303);
    let now = world.api(&key, Method::GET, &destination, json!({})).await;
    assert_eq!(now["state"], "paused");
}

/// Nothing to read, no page; and nobody, nothing.
async fn who_cannot_read_has_no_session(world: &World) {
    let (_, writer, _) = world.tenant("writers", &["ingest"]).await;
    let page = world
        .form("/dashboard/sign-in", None, &[("key", &writer)])
        .await;
    assert_eq!(
        (page.status.as_u16(), page.headers.get("set-cookie")),
        (403, None)
    );
    let page = world
        .form("/dashboard/sign-in", None, &[("key", "wrong")])
        .await;
    assert_eq!(
        (page.status.as_u16(), page.headers.get("set-cookie")),
        (401, None)
    );
}

async fn a_link_opens_its_tenants_pages_and_no_more(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let (_, _, other) = world.tenant("theirs", &["read"]).await;
    let maker = world.sign_in(&key).await;
    let fields = [("seconds", "3600"), ("may_change", "on")];
    let page = world.post(&maker, "/dashboard/links", &fields).await;
    let (_, rest) = page.text.split_once("<a id=\"made\" href=\"").unwrap();
    // All of it: whoever gets it in a mail has no host to put before it.
    let (url, rest) = rest.split_once('"').unwrap();
    assert!(rest.starts_with(&format!(">{url}</a>")), "{rest}");
    let path = url
        .strip_prefix(&format!("http://{HOST}"))
        .unwrap()
        .to_owned();
    // Looking at it opens nothing.
    let page = world.get(&maker, &path).await;
    assert_eq!(
        (page.status.as_u16(), page.headers.get("set-cookie")),
        (200, None)
    );
    let opened = world.form(&path, None, &[]).await;
    let guest = world.visitor(&opened).await;
    let page = world
        .get(&guest, &format!("/dashboard/destinations/{id}"))
        .await;
    assert_eq!(page.status, 200);
    let page = world
        .get(&guest, &format!("/dashboard/destinations/{other}"))
        .await;
    assert_eq!(page.status, 404);
    it_rotates_a_secret_and_shows_it_once(world, (&guest, &key), &id).await;
    assert_eq!(
        world.post(&guest, "/dashboard/links", &fields).await.status,
        403
    );
    assert_eq!(world.get(&guest, "/dashboard/tenants").await.status, 403);
    // A link is no session, nor is a session a link.
    let page = world
        .form(&format!("/dashboard/links/{}", "0".repeat(64)), None, &[])
        .await;
    assert_eq!(page.status, 404);
}

async fn it_rotates_a_secret_and_shows_it_once(
    world: &World,
    (guest, key): (&Visitor, &str),
    id: &str,
) {
    let page = format!("/dashboard/destinations/{id}");
    let secrets = format!("{page}/secrets");
    let wrong = world.post(guest, &secrets, &[("overlap", "7")]).await;
    assert_eq!(wrong.status, 422, "{}", wrong.text);
    let rotated = world.post(guest, &secrets, &[("overlap", "3600")]).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    let said = "Rotated. The secrets before it sign for an hour longer.";
    assert!(rotated.text.contains(said), "{}", rotated.text);
    let (_, rest) = rotated.text.split_once("id=\"secret\">whsec_").unwrap();
    let secret = rest.split('<').next().unwrap();
    assert!(secret.len() > 30, "{secret}");
    let again = world.get(guest, &page).await;
    assert!(!again.text.contains(secret), "it is shown once");
    let kept = format!("/v1/destinations/{id}/secrets");
    let kept = world.api(key, Method::GET, &kept, json!({})).await;
    let kept = kept["secrets"].as_array().unwrap();
    let ends: Vec<_> = kept.iter().map(|one| one["expires_at"].is_null()).collect();
    assert_eq!(ends, [true, false], "both sign, the old one for a while");
}

/// Whatever the browser calls it, and whatever host a program asks.
#[tokio::test]
async fn links_begin_with_the_public_url() {
    let public = "https://hooks.example".parse().unwrap();
    let world = World::found_at(Place::sqlite(), public).await;
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let maker = world.sign_in(&key).await;
    let page = world.post(&maker, "/dashboard/links", &[("seconds", "3600")]);
    let page = page.await.text;
    let (_, rest) = page.split_once("<a id=\"made\" href=\"").unwrap();
    let of_page = rest.split('"').next().unwrap();
    let path = format!("/v1/tenants/{tenant}/links");
    let made = world.api(ADMIN, Method::POST, &path, json!({})).await;
    let at = "https://hooks.example/dashboard/links/";
    for link in [of_page, made["url"].as_str().unwrap()] {
        assert!(link.starts_with(at), "{link}");
        // And open below it.
        let opened = world.form(&link[at.len() - 17..], None, &[]).await;
        assert_eq!(opened.status, 303, "{}", opened.text);
    }
}

/// One is made and ended on the page, the other over the API.
async fn a_link_ends_by_itself_and_with_all_that_it_opened(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let (other, other_key, _) = world.tenant("theirs", &["manage", "read"]).await;
    let links = format!("/v1/tenants/{tenant}/links");
    let list = async || world.api(ADMIN, Method::GET, &links, json!({})).await;
    let maker = world.sign_in(&key).await;
    let fields = [("seconds", "3600"), ("name", "for <Anna>")];
    let page = world.post(&maker, "/dashboard/links", &fields).await;
    assert!(page.text.contains("for &#60;Anna&#62;"), "{}", page.text);
    let (_, rest) = page.text.split_once("<a id=\"made\" href=\"").unwrap();
    let of_page = rest.split('"').next().unwrap().to_owned();
    let id_of_page = list().await["links"][0]["id"].as_str().unwrap().to_owned();
    let draft = json!({"expires_in_seconds": 60, "may_change": true});
    let made = world.api(ADMIN, Method::POST, &links, draft).await;
    let of_api = made["url"].as_str().unwrap().to_owned();
    let id_of_api = made["id"].as_str().unwrap().to_owned();
    let listed = list().await;
    assert_eq!(listed["links"].as_array().unwrap().len(), 2, "{listed}");
    assert!(!listed.to_string().contains(&of_api), "shown once");

    let guest = async |path: &str| {
        let opened = world.form(path, None, &[]).await;
        world.visitor(&opened).await
    };
    let (by_page, by_api) = (guest(&of_page).await, guest(&of_api).await);
    let status = async |visitor| world.get(visitor, "/dashboard").await.status.as_u16();
    assert_eq!((status(&by_page).await, status(&by_api).await), (200, 200));

    // Neither a guest nor another tenant ends it, nor is it another's.
    let end = format!("/dashboard/tenants/{tenant}/links/{id_of_page}");
    let stranger = world.sign_in(&other_key).await;
    for visitor in [&by_api, &stranger] {
        assert_eq!(world.post(visitor, &end, &[]).await.status, 403);
    }
    let at_theirs = format!("/dashboard/tenants/{other}/links/{id_of_page}");
    assert_eq!(world.post(&stranger, &at_theirs, &[]).await.status, 404);
    assert_eq!(status(&by_page).await, 200);

    let sure = [("sure", "yes")];
    assert_eq!(world.post(&maker, &end, &sure).await.status, 303);
    assert_eq!((status(&by_page).await, status(&by_api).await), (303, 200));
    assert_eq!(world.form(&of_page, None, &[]).await.status, 404);
    let revoke = format!("{links}/{id_of_api}");
    world.api(ADMIN, Method::DELETE, &revoke, json!({})).await;
    assert_eq!(status(&by_api).await, 303);
    assert_eq!(list().await["links"], json!([]));
    assert_eq!(status(&maker).await, 200);
}

async fn limits_go_up_to_the_ceiling_and_beyond_it_are_asked_for(world: &World) {
    // The tier `standard` allows 10 a second.
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let customer = world.sign_in(&key).await;
    let path = format!("/dashboard/destinations/{id}/limits");
    let destination = format!("/v1/destinations/{id}");
    let per_second = async || {
        let now = world.api(&key, Method::GET, &destination, json!({})).await;
        now["limits"]["per_second"].clone()
    };
    let page = world.post(&customer, &path, &[("per_second", "8")]).await;
    assert_eq!(
        page.headers["location"],
        format!("/dashboard/destinations/{id}?done=limits")
    );
    assert_eq!(per_second().await, 8);
    let page = world
        .post(&customer, &path, &[("per_second", "11"), ("preview", "1")])
        .await;
    assert!(page.text.contains("Ask for it"), "{}", page.text);
    let fields = [("per_second", "11"), ("note", "Black Friday <b>")];
    let page = world.post(&customer, &path, &fields).await;
    assert_eq!(
        page.headers["location"],
        format!("/dashboard/destinations/{id}?done=requested")
    );
    assert_eq!(per_second().await, 8, "asked for is not set");
    let page = world.get(&customer, "/dashboard/requests").await;
    assert!(page.text.contains("<td>8/s"), "today's: {}", page.text);
    assert!(
        page.text.contains("Black Friday &#60;b&#62;"),
        "{}",
        page.text
    );
    // The customer does not decide; the operator does, once.
    let operator = world.sign_in(ADMIN).await;
    let page = world.get(&operator, "/dashboard/requests").await;
    let (_, rest) = page
        .text
        .split_once("action=\"/dashboard/requests/")
        .unwrap();
    let decide = format!("/dashboard/requests/{}", rest.split('"').next().unwrap());
    let approve = [("decision", "approve")];
    assert_eq!(world.post(&customer, &decide, &approve).await.status, 403);
    assert_eq!(world.post(&operator, &decide, &approve).await.status, 303);
    assert_eq!(per_second().await, 11);
    let page = world.get(&operator, "/dashboard/requests").await;
    assert!(page.text.contains("<td>11/s"), "today's: {}", page.text);
    assert_eq!(world.post(&operator, &decide, &approve).await.status, 409);
}

/// What an operator has set without a grant is gone once it is given up.
async fn a_page_says_where_saving_less_lowers_what_may_be_set(world: &World) {
    // The tier `standard` gives 10 a second.
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let customer = world.sign_in(&key).await;
    let destination = format!("/v1/destinations/{id}");
    for (setter, most, says) in [
        (ADMIN, 20, Some("Up to 20/s")),
        (&*key, 8, None),
        (ADMIN, 20, Some("Up to 20/s")),
    ] {
        let limits = json!({"limits": {"per_second": most}});
        world.api(setter, Method::PATCH, &destination, limits).await;
        let page = format!("/dashboard/destinations/{id}");
        let page = world.get(&customer, &page).await.text;
        let is_said = page.contains("saving less lowers it");
        assert_eq!(is_said, says.is_some(), "{most}: {page}");
        assert!(
            page.contains(says.unwrap_or("Up to 10/s")),
            "{most}: {page}"
        );
    }
}

/// The form says the usual shape of a destination that has none: that is no other limit.
async fn a_margin_is_set_beside_limits_that_are_above_the_ceiling(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let customer = world.sign_in(&key).await;
    let destination = format!("/v1/destinations/{id}");
    let limits = json!({"limits": {"per_second": 8}, "shape": null});
    world.api(&key, Method::PATCH, &destination, limits).await;
    let ceiling = json!({"ceiling": {"per_second": 5}});
    let tier = "/v1/tiers/standard";
    world.api(ADMIN, Method::PATCH, tier, ceiling).await;
    let page = format!("/dashboard/destinations/{id}");
    let limits = format!("{page}/limits");
    let form = |margin: &'static str, shape: &'static str| {
        [
            ("per_second", "8"),
            ("shape", shape),
            ("safety_margin", margin),
        ]
    };
    for (margin, shape, done) in [
        ("0.02", "sliding_window", "limits"),
        ("0.03", "token_bucket", "requested"),
    ] {
        let fields = form(margin, shape);
        let set = world.post(&customer, &limits, &fields).await;
        let expected = format!("{page}?done={done}");
        assert_eq!(set.headers["location"], expected, "{shape}: {}", set.text);
        let now = world.api(&key, Method::GET, &destination, json!({})).await;
        assert_eq!(now["safety_margin"], json!(0.02), "{shape}");
    }
}

/// Not even those of the installation's own tenant, which its keys set as they like.
async fn by_link_no_tenants_limits_go_beyond_its_tier(world: &World) {
    let body = json!({"url": "https://example.com/own", "limits": {"per_second": 5}});
    let made = world.api(ADMIN, Method::POST, "/v1/destinations", body);
    let id = made.await["id"].as_str().unwrap().to_owned();
    let own = engine::ports::DEFAULT_TENANT;
    let links = format!("/v1/tenants/{own}/links");
    let link = json!({"may_change": true});
    let link = world.api(ADMIN, Method::POST, &links, link).await;
    let opened = world.form(link["url"].as_str().unwrap(), None, &[]).await;
    let guest = world.visitor(&opened).await;
    let key = json!({"scopes": ["manage", "read"]});
    let path = format!("/v1/tenants/{own}/keys");
    let key = world.api(ADMIN, Method::POST, &path, key).await;
    let owner = world.sign_in(key["key"].as_str().unwrap()).await;
    let page = format!("/dashboard/destinations/{id}");
    let limits = format!("{page}/limits");
    for (visitor, most, done) in [
        (&guest, "10", "limits"),
        (&guest, "11", "requested"),
        (&owner, "11", "limits"),
    ] {
        let set = world.post(visitor, &limits, &[("per_second", most)]).await;
        let expected = format!("{page}?done={done}");
        assert_eq!(set.headers["location"], expected, "{most}: {}", set.text);
    }
}

async fn all_that_limits_a_destination_is_set_on_its_page(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let operator = world.sign_in(ADMIN).await;
    let page = format!("/dashboard/destinations/{id}");
    let path = format!("{page}/limits");
    let is = async || {
        let api = format!("/v1/destinations/{id}");
        let now = world.api(&key, Method::GET, &api, json!({})).await;
        let names = ["unlimited", "safety_margin", "margin_cap", "count"];
        (
            now["limits"]["per_second"].clone(),
            names.map(|name| now[name].clone()),
        )
    };
    let null = Value::Null;
    for (fields, per_second, rest) in [
        (
            &[
                ("unlimited", "yes"),
                ("safety_margin", "0.02"),
                ("margin_cap", "0.5"),
                ("count", "response"),
            ][..],
            null.clone(),
            [json!(true), json!(0.02), json!(0.5), json!("response")],
        ),
        // A form without these fields says nothing of them; a box that is not ticked is off.
        (
            &[("per_second", "5")],
            json!(5),
            [json!(false), json!(0.02), json!(0.5), json!("response")],
        ),
        (
            &[
                ("per_second", "5"),
                ("safety_margin", ""),
                ("margin_cap", ""),
                ("count", ""),
            ],
            json!(5),
            [json!(false), null.clone(), null.clone(), null.clone()],
        ),
    ] {
        let set = world.post(&operator, &path, fields).await;
        assert_eq!(set.headers["location"], format!("{page}?done=limits"));
        assert_eq!(is().await, (per_second, rest), "{fields:?}");
    }
}

async fn what_limits_a_destination_is_refused_or_asked_for_on_its_page(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let operator = world.sign_in(ADMIN).await;
    let page = format!("/dashboard/destinations/{id}");
    let path = format!("{page}/limits");
    for (fields, problem) in [
        (
            &[("safety_margin", "2")][..],
            "safety_margin: must be between 0 and 1",
        ),
        (
            &[("margin_cap", "x")],
            "margin_cap: must be a number, or empty",
        ),
        (&[("count", "x")], "count: must be response, or empty"),
        (
            &[("per_second", "5"), ("unlimited", "yes")],
            "unlimited: cannot stand beside a limit",
        ),
    ] {
        let refused = world.post(&operator, &path, fields).await;
        assert_eq!(refused.status, 422, "{fields:?}");
        assert!(
            refused.text.contains(problem),
            "{problem}: {}",
            refused.text
        );
    }
    // As it is set, and as it is looked at before; and a customer asks for it.
    let customer = world.sign_in(&key).await;
    let any = [("unlimited", "yes"), ("count", "response")];
    let preview = [&any[..], &[("preview", "1")]].concat();
    let shown = world.post(&customer, &path, &preview).await;
    for says in [
        "<input type=\"hidden\" name=\"unlimited\" value=\"yes\">",
        "<input type=\"hidden\" name=\"count\" value=\"response\">",
        "name=\"unlimited\" value=\"yes\" checked>",
        "<option value=\"response\" selected>",
        "Ask for it",
    ] {
        assert!(shown.text.contains(says), "{says}: {}", shown.text);
    }
    let asked = world.post(&customer, &path, &any).await;
    assert_eq!(asked.headers["location"], format!("{page}?done=requested"));
    let requests = world.api(&key, Method::GET, "/v1/limit-requests", json!({}));
    assert_eq!(requests.await["limit_requests"][0]["unlimited"], true);
}

/// What was asked for long ago is on a page further on.
async fn requests_go_on_to_the_next_page(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let tenant: TenantId = tenant.parse().unwrap();
    for number in 1..=101_u32 {
        let new = NewDestinationsRequest {
            id: Uuid::from_u128(number.into()),
            destinations: number,
            note: format!("note {number}."),
        };
        let asked = world.stored.request_destinations(tenant, &new).await;
        let (id, declined) = (asked.unwrap(), LimitRequestState::Declined);
        let decided = world.stored.decide_limit_request(id, declined, "").await;
        decided.unwrap();
    }
    let list = "/v1/limit-requests";
    let listed = world.api(&key, Method::GET, list, json!({})).await;
    let count = listed["limit_requests"].as_array().map(Vec::len);
    assert_eq!(
        (count, &listed["next"]),
        (Some(101), &Value::Null),
        "in one part"
    );
    let visitor = world.sign_in(&key).await;
    let first = world.get(&visitor, "/dashboard/requests").await.text;
    let has = |page: &str, number: u32| page.contains(&format!(">note {number}.<"));
    assert!(has(&first, 101) && has(&first, 2) && !has(&first, 1));
    let older = first.split_once("rel=\"next\" href=\"");
    let older = older.and_then(|(_, rest)| rest.split('"').next());
    let older = older.unwrap_or_else(|| panic!("it goes on: {first}"));
    let last = world.get(&visitor, older).await.text;
    assert!(has(&last, 1) && !has(&last, 2), "{last}");
    assert!(!last.contains("rel=\"next\""), "{last}");
    let refused = world.get(&visitor, "/dashboard/requests?before=x").await;
    assert_eq!(refused.status, 422, "{}", refused.text);
}

async fn a_session_ends_with_its_key(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let signed_out = world.sign_in(&key).await;
    assert_eq!(
        world
            .post(&signed_out, "/dashboard/sign-out", &[])
            .await
            .status,
        303
    );
    assert_eq!(world.get(&signed_out, "/dashboard").await.status, 303);
    assert_eq!(world.get(&visitor, "/dashboard").await.status, 200);
    let operator = world.sign_in(ADMIN).await;
    let id = &key[3..19];
    let path = format!("/dashboard/tenants/{tenant}/keys/{id}");
    let sure = [("sure", "yes")];
    assert_eq!(world.post(&operator, &path, &sure).await.status, 303);
    let page = world.get(&visitor, "/dashboard").await;
    assert_eq!(
        (page.status.as_u16(), &page.headers["location"]),
        (303, &"/dashboard/sign-in".parse().unwrap())
    );
}

/// The form of a page that asks, as a browser sends it.
pub(crate) fn form_of<'a>(page: &'a str, action: &str) -> Vec<(&'a str, &'a str)> {
    let (_, form) = page.split_once("<ul id=\"does\">").unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    assert!(form.contains(&format!("action=\"{action}\"")), "{form}");
    let inputs = form.split("<input type=\"hidden\" name=\"").skip(1);
    let field = |input: &'a str| {
        let (name, rest) = input.split_once("\" value=\"").unwrap();
        (name, rest.split('"').next().unwrap())
    };
    inputs.map(field).collect()
}

const CLIENT: &str = include_str!("../../../adapters/tests/http_sender/pem/client.pem");
const CLIENT_KEY: &str = include_str!("../../../adapters/tests/http_sender/pem/client.key");

/// What a form says of a destination that can be added.
const ENDPOINT: [(&str, &str); 5] = [
    ("url", "https://example.com/a"),
    ("name", "shop \"a\""),
    ("event_types", "order.paid, customer.*"),
    ("headers", "x-key: hush"),
    ("filter", "{\"/total\": {\"gte\": 1}}"),
];

/// By who has only a link: he sees the secret of what he has added himself.
async fn a_destination_is_added_changed_and_deleted(world: &World) {
    let (tenant, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let link = json!({"may_change": true});
    let links = format!("/v1/tenants/{tenant}/links");
    let link = world.api(ADMIN, Method::POST, &links, link).await;
    let path = link["url"].as_str().unwrap();
    let guest = world.visitor(&world.form(path, None, &[]).await).await;
    wrong_forms_come_again(world, &guest).await;

    let page = world
        .post(&guest, "/dashboard/destinations", &ENDPOINT)
        .await;
    assert_eq!(page.status, 200, "{}", page.text);
    let shows = |text: &str| page.text.contains(text);
    assert!(shows("<code id=\"secret\">whsec_"), "{}", page.text);
    let (_, id) = page.text.split_once("<code id=\"id\">").unwrap();
    let id = id.split('<').next().unwrap();
    let api = format!("/v1/destinations/{id}");
    let made = world.api(&key, Method::GET, &api, json!({})).await;
    let has = ["name", "event_types", "headers", "filter"].map(|field| made[field].clone());
    let types = json!(["order.paid", "customer.*"]);
    let filter = json!({"/total": {"gte": 1}});
    let wanted = [json!("shop \"a\""), types, json!(["x-key"]), filter];
    assert_eq!(has, wanted, "{made}");
    all_of_it_is_changed(world, (&guest, &key), id).await;
    what_lets_it_in_is_set_and_removed(world, (&guest, &key), id).await;
    it_is_disabled_and_deleted(world, (&guest, &key), id).await;
}

/// What was typed stands there, but for what headers say.
async fn wrong_forms_come_again(world: &World, guest: &Visitor) {
    for (at, value, says) in [
        (0, "http://10.0.0.1/", "url: "),
        (3, "x-key: a\nhush", "headers: line 2 has no colon"),
        (4, "{", "filter: must be JSON"),
        (4, "{\"a\": 1}", "filter[&#34;a&#34;]: "),
    ] {
        let mut wrong = ENDPOINT;
        wrong[at].1 = value;
        let page = world.post(guest, "/dashboard/destinations", &wrong).await;
        assert_eq!(page.status, 422, "{}", page.text);
        let problem = format!("id=\"problem\">{says}");
        for shown in [&problem, "order.paid, customer.*", "shop &#34;a"] {
            assert!(page.text.contains(shown), "{shown}: {}", page.text);
        }
        assert!(!page.text.contains("hush"), "{}", page.text);
    }
    too_many_ticks_come_again(world, guest).await;
    what_is_far_too_much_does_not_come_again(world, guest).await;
}

/// As many as a catalogue offers, of which a destination takes a hundred.
async fn too_many_ticks_come_again(world: &World, guest: &Visitor) {
    let ticks: Vec<String> = (0..1_000).map(|one| format!("takes a.b{one}")).collect();
    let mut many = ENDPOINT.to_vec();
    many.extend(ticks.iter().map(|tick| (tick.as_str(), "yes")));
    let page = world.post(guest, "/dashboard/destinations", &many).await;
    assert_eq!(page.status, 422, "{}", page.text);
    for shown in [
        "id=\"problem\">event_types: must be at most 100",
        "shop &#34;a",
        "a.b999",
    ] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
}

/// One byte of it would be five on the page.
async fn what_is_far_too_much_does_not_come_again(world: &World, guest: &Visitor) {
    let names: Vec<String> = (0..2_000).map(|one| format!("a{one}")).collect();
    let mut many = ENDPOINT.to_vec();
    many.extend(names.iter().map(|name| (name.as_str(), "")));
    let long = "<".repeat(20_000);
    let mut of_one = ENDPOINT.to_vec();
    of_one.push(("name", long.as_str()));
    for (form, says) in [
        (many, "A form has at most 1256 fields"),
        (of_one, "name: must be at most 6144 bytes"),
    ] {
        let page = world.post(guest, "/dashboard/destinations", &form).await;
        assert_eq!(page.status, 422, "{}", page.text);
        assert!(page.text.contains(says), "{}", page.text);
        assert!(page.text.len() < 10_000, "{} bytes", page.text.len());
    }
}

async fn all_of_it_is_changed(world: &World, (guest, key): (&Visitor, &str), id: &str) {
    let api = format!("/v1/destinations/{id}");
    let now = async || {
        let now = world.api(key, Method::GET, &api, json!({})).await;
        ["url", "event_types", "headers", "filter"].map(|field| now[field].clone())
    };
    let edit = format!("/dashboard/destinations/{id}/edit");
    let page = world.get(guest, &edit).await;
    for shown in ["value=\"order.paid customer.*\"", "instead of x-key"] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    let mut other = [
        ("url", "https://example.com/b"),
        ("event_types", "*"),
        ("headers", "x-other: 1"),
    ];
    let mut wanted = ["https://example.com/b", "", "", ""].map(|text| json!(text));
    (wanted[1], wanted[2], wanted[3]) = (json!(["*"]), json!(["x-key"]), json!(null));
    let page = world.post(guest, &edit, &other).await;
    assert_eq!(page.status, 303, "{}", page.text);
    assert_eq!(now().await, wanted, "headers only if it is said");
    let replacing = [&other[..], &[("replace_headers", "yes")]].concat();
    let page = world.post(guest, &edit, &replacing).await;
    assert_eq!(page.status, 303, "{}", page.text);
    wanted[2] = json!(["x-other"]);
    assert_eq!(now().await, wanted);
    other[0].1 = "no url";
    let page = world.post(guest, &edit, &other).await;
    assert_eq!(page.status, 422, "{}", page.text);
    assert!(page.text.contains("value=\"no url\""), "{}", page.text);
}

/// A certificate and a client; neither the key nor the secret comes back.
async fn what_lets_it_in_is_set_and_removed(
    world: &World,
    (guest, key): (&Visitor, &str),
    id: &str,
) {
    let api = format!("/v1/destinations/{id}");
    let now = async || {
        let now = world.api(key, Method::GET, &api, json!({})).await;
        let client = &now["oauth2"];
        (
            now["client_certificate"]["subject"].clone(),
            (client["client_id"].clone(), client["scopes"].clone()),
        )
    };
    let edit = format!("/dashboard/destinations/{id}/edit");
    let url = ("url", "https://example.com/b");
    let typed = [
        url,
        ("certificate", CLIENT),
        ("private_key", CLIENT_KEY),
        ("token_url", "https://login.example/token"),
        ("client_id", "shop"),
        ("client_secret", "hush"),
        ("scopes", "a, b"),
    ];
    let mut wrong = typed;
    wrong[2].1 = "hush";
    let page = world.post(guest, &edit, &wrong).await;
    assert_eq!(page.status, 422, "{}", page.text);
    let says = "id=\"problem\">client_certificate.private_key: ";
    for shown in [says, "value=\"shop\"", "value=\"a, b\""] {
        assert!(page.text.contains(shown), "{shown}: {}", page.text);
    }
    assert!(!page.text.contains("hush"), "{}", page.text);
    let none = || (Value::Null, (Value::Null, Value::Null));
    assert_eq!(now().await, none());
    assert_eq!(world.post(guest, &edit, &typed).await.status, 303);
    let subject = "O=Example, CN=paceline client";
    let set = (json!(subject), (json!("shop"), json!(["a", "b"])));
    assert_eq!(now().await, set);
    assert_eq!(world.post(guest, &edit, &[url]).await.status, 303);
    assert_eq!(now().await, set, "what is not typed stays");
    for path in [edit.clone(), format!("/dashboard/destinations/{id}")] {
        let page = world.get(guest, &path).await;
        assert!(page.text.contains(subject), "{path}: {}", page.text);
        assert!(!page.text.contains("hush"), "{path}: {}", page.text);
    }
    let removed = [url, ("remove_certificate", "yes"), ("remove_oauth2", "yes")];
    assert_eq!(world.post(guest, &edit, &removed).await.status, 303);
    assert_eq!(now().await, none());
}

async fn it_is_disabled_and_deleted(world: &World, (guest, key): (&Visitor, &str), id: &str) {
    let api = format!("/v1/destinations/{id}");
    let state = async || world.api(key, Method::GET, &api, json!({})).await["state"].clone();
    let path = |what: &str| format!("/dashboard/destinations/{id}/{what}");
    let asked = async |path: &str, fields: &[(&str, &str)]| {
        let page = world.post(guest, path, fields).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        let sent = form_of(&page.text, path);
        let done = world.form(path, Some(guest), &sent).await;
        assert_eq!(done.status, 303, "{path}: {}", done.text);
    };
    asked(&path("state"), &[("state", "disabled")]).await;
    assert_eq!(state().await, "disabled");
    let trial = world.post(guest, &path("trial"), &[]).await;
    assert_eq!(trial.status, 422, "{}", trial.text);
    let active = [("state", "active")];
    world.post(guest, &path("state"), &active).await;
    assert_eq!(state().await, "active");
    asked(&path("delete"), &[]).await;
    assert_eq!(world.get(guest, &path("edit")).await.status, 404);
}

/// The page says what it will do; its form is the one that was sent, and does it.
async fn what_cannot_be_taken_back_is_asked_first(world: &World) {
    let (tenant, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let operator = world.sign_in(ADMIN).await;
    let customer = world.sign_in(&key).await;
    let links = format!("/v1/tenants/{tenant}/links");
    let made = world.api(ADMIN, Method::POST, &links, json!({"name": "for <Anna>"}));
    let link = made.await["id"].as_str().unwrap().to_owned();
    let fields = [("seconds", "3600")];
    world.post(&customer, "/dashboard/links", &fields).await;
    let listed = async || world.api(ADMIN, Method::GET, &links, json!({})).await["links"].clone();
    let limits = format!("/v1/destinations/{id}");
    let limits = async || world.api(&key, Method::GET, &limits, json!({})).await["limits"].clone();

    let end = format!("/dashboard/tenants/{tenant}/links/{link}");
    let revoke = format!("/dashboard/tenants/{tenant}/keys/{}", &key[3..19]);
    let pause = format!("/dashboard/destinations/{id}/limits");
    for (visitor, path, fields, asks, does) in [
        (
            &customer,
            &pause,
            &[("per_second", "0"), ("per_minute", "60")][..],
            "Pause ours&#39;s with a limit of 0?",
            "0 deliveries wait now.",
        ),
        (
            &operator,
            &end,
            &[],
            "End the link for &#60;Anna&#62;?",
            "Whoever opened it is signed out",
        ),
        (
            &operator,
            &revoke,
            &[],
            "Revoke the key ",
            "and 1 open links to this tenant&#39;s pages that were made with it end.",
        ),
    ] {
        let page = world.post(visitor, path, fields).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        for says in [asks, does] {
            assert!(page.text.contains(says), "{says} is not in {}", page.text);
        }
        let links = 2 - usize::from(path == &revoke);
        assert_eq!(listed().await.as_array().unwrap().len(), links, "{path}");
        assert_eq!(limits().await["per_second"], 5, "{path}");
        let sent = form_of(&page.text, path);
        let done = world.form(path, Some(visitor), &sent).await;
        assert_eq!(done.status, 303, "{path}: {}", done.text);
        if path == &pause {
            let now = limits().await;
            assert_eq!(
                (&now["per_second"], &now["per_minute"]),
                (&json!(0), &json!(60))
            );
            // It is paused: another change of it pauses nothing.
            let fields = [("per_second", "0"), ("per_minute", "70")];
            let page = world.post(visitor, path, &fields).await;
            assert_eq!(page.status, 303, "{}", page.text);
            let fields = [("per_second", "5")];
            world.post(visitor, path, &fields).await;
        }
    }
    assert_eq!(listed().await, json!([]));
    assert_eq!(world.get(&customer, "/dashboard").await.status, 303);
}

/// The proxy ends TLS and calls us by the name of this machine.
async fn a_proxy_that_writes_another_host_leaves_the_cookie_secure(world: &World) {
    let fields = [("key", ADMIN)];
    let sign_in = "/dashboard/sign-in";
    let page = world
        .form_from("https://127.0.0.1:8080", sign_in, None, &fields)
        .await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-paceline-session="), "{cookie}");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    // Later requests do not say where they come from: it is known by its name.
    let visitor = world.visitor(&page).await;
    assert_eq!(world.get(&visitor, "/dashboard").await.status, 200);
    let page = world.form(sign_in, None, &fields).await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    assert!(!cookie.contains("Secure"), "{cookie}");
}

async fn answers_are_guarded(world: &World) {
    let operator = world.sign_in(ADMIN).await;
    for path in [
        "/dashboard",
        "/dashboard/sign-in",
        "/dashboard/nothing",
        "/dashboard/tenants",
    ] {
        let page = world.get(&operator, path).await;
        if page.status == 404 {
            continue;
        }
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.headers["x-content-type-options"], "nosniff");
        assert_eq!(page.headers["referrer-policy"], "same-origin");
        assert_eq!(page.headers["cache-control"], "no-store");
        assert!(
            !page.text.contains(" style=") && !page.text.contains(" onclick="),
            "{path}"
        );
    }
    let page = world
        .form("/dashboard/sign-in", None, &[("key", ADMIN)])
        .await;
    let cookie = page.headers["set-cookie"].to_str().unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Max-Age=43200"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let page = world.get(&operator, "/dashboard").await;
    let (_, rest) = page.text.split_once("rel=\"stylesheet\" href=\"").unwrap();
    let style = world.get(&operator, rest.split('"').next().unwrap()).await;
    assert_eq!(style.status, 200);
    assert!(
        style.headers["cache-control"]
            .to_str()
            .unwrap()
            .contains("immutable")
    );
}

async fn events_are_found_by_type(world: &World) {
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    for (event_type, count) in [("order.paid", 60), ("order.sent", 1)] {
        for _ in 0..count {
            let body = json!({"destination_id": id, "type": event_type, "payload": {}});
            world.api(&key, Method::POST, "/v1/events", body).await;
        }
    }
    let visitor = world.sign_in(&key).await;
    let links = |text: &str| text.matches("href=\"/dashboard/events/").count();
    let page = world
        .get(&visitor, "/dashboard/events?type=order.sent")
        .await;
    assert_eq!(links(&page.text), 1);
    assert!(page.text.contains(">waiting</span>"), "{}", page.text);
    assert!(page.text.contains(">Last attempt<"), "{}", page.text);
    let page = world
        .get(&visitor, "/dashboard/events?type=order.paid&state=waiting")
        .await;
    assert_eq!(links(&page.text), 50);
    // Of what was asked for, and not of whichever attempt is the last.
    assert!(page.text.contains(">1 waiting</span>"), "{}", page.text);
    assert!(
        page.text.contains(">Attempts in this state<"),
        "{}",
        page.text
    );
    let (_, rest) = page.text.split_once("rel=\"next\" href=\"").unwrap();
    let next = rest
        .split('"')
        .next()
        .unwrap()
        .replace("&#38;", "&")
        .replace("&amp;", "&");
    assert_eq!(links(&world.get(&visitor, &next).await.text), 10);
    for none in ["state=succeeded", "status=5xx"] {
        let page = format!("/dashboard/events?{none}");
        let page = world.get(&visitor, &page).await;
        assert_eq!(
            (page.status.as_u16(), links(&page.text)),
            (200, 0),
            "{none}"
        );
    }
    let page = world.get(&visitor, "/dashboard/events?status=x").await;
    assert_eq!(page.status, 422);
    assert!(page.text.contains("status: "), "{}", page.text);
    let page = world.get(&visitor, "/dashboard?search=OUR").await;
    assert!(page.text.contains(&id), "{}", page.text);
}

/// By a part of an id, a destination and a time; and what is wrong is said beside it.
async fn a_search_keeps_what_was_typed(world: &World) {
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let body = json!({"destination_id": id, "type": "a.b", "payload": {}});
    let event = world.api(&key, Method::POST, "/v1/events", body).await;
    let event = event["id"].as_str().unwrap();
    let visitor = world.sign_in(&key).await;
    let one = format!("href=\"/dashboard/events/{event}\"");
    let search = async |query: &str| {
        let path = format!("/dashboard/events?{query}");
        world.get(&visitor, &path).await
    };
    let part = &event[24..];
    let page = search(&format!(
        "text={part}&destination=OURS&since=2026-01-31T12:00:00Z"
    ))
    .await;
    assert_eq!(page.status, 200);
    for says in [
        one.as_str(),
        &format!("value=\"{part}\""),
        "value=\"OURS\"",
        "value=\"2026-01-31T12:00:00Z\"",
    ] {
        assert!(page.text.contains(says), "{says}: {}", page.text);
    }
    let page = search(&format!("destination={id}&until=2026-01-31T12:00")).await;
    assert!(!page.text.contains(&one), "{}", page.text);
    // One that nobody has keeps the form, and one that is there leads to its page.
    let nothing = "00000000-0000-7000-8000-00000000dead";
    let page = search(&format!("text={nothing}")).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains(&format!("value=\"{nothing}\"")));
    let page = search(&format!("text={event}")).await;
    let to = format!("/dashboard/events/{event}");
    assert_eq!(page.status, 303);
    assert_eq!(page.headers["location"], to);
    for (query, says) in [
        ("since=noon", "since: must be a time"),
        ("destination=nobody", "destination: there is none"),
        ("destination=%00", "destination: must not"),
        ("text=%00", "text: must not"),
        (
            "since=2026-01-31T12:00&until=2026-01-31T12:00",
            "since: must be before until",
        ),
    ] {
        let page = search(&format!("{query}&type=kept.type")).await;
        assert_eq!(page.status, 422, "{query}");
        assert!(page.text.contains(says), "{query}: {}", page.text);
        assert!(page.text.contains("value=\"kept.type\""), "{query}");
    }
}

async fn attempts_are_found_on_their_page(world: &World) {
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    for event_type in ["a.b", "c.d"] {
        let body = json!({"destination_id": id, "type": event_type, "payload": {}});
        world.api(&key, Method::POST, "/v1/events", body).await;
    }
    let visitor = world.sign_in(&key).await;
    let links = |text: &str| text.matches("href=\"/dashboard/attempts/").count();
    for (query, found) in [
        ("", 2),
        ("state=waiting", 2),
        ("state=failed", 0),
        ("status=5xx", 0),
        ("type=c.d", 1),
        ("since=2026-01-31T12:00", 2),
        ("until=2026-01-31T12:00", 0),
    ] {
        let path = format!("/dashboard/destinations/{id}/attempts?{query}");
        let page = world.get(&visitor, &path).await;
        assert_eq!(page.status, 200, "{query}");
        assert_eq!(links(&page.text), found, "{query}: {}", page.text);
    }
    for of in ["/dashboard", &format!("/dashboard/destinations/{id}")] {
        let path = format!("{of}/attempts?status=50x&type=c.d");
        let page = world.get(&visitor, &path).await;
        assert_eq!(page.status, 422);
        for says in [
            "status: must be an HTTP status",
            "value=\"50x\"",
            "value=\"c.d\"",
        ] {
            assert!(page.text.contains(says), "{says}: {}", page.text);
        }
    }
}

/// By the same fields, and by destination, which is named beside each.
async fn attempts_at_all_destinations_are_found_on_one_page(world: &World) {
    let (_, key, first) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let post = async |path: &str, body: Value| world.api(&key, Method::POST, path, body).await;
    let other = json!({"url": "https://other.example/hooks", "name": "other"});
    let other = post("/v1/destinations", other).await;
    let other = other["id"].as_str().unwrap();
    for (to, event_type) in [(first.as_str(), "a.b"), (other, "a.b"), (other, "c.d")] {
        let body = json!({"destination_id": to, "type": event_type, "payload": {}});
        post("/v1/events", body).await;
    }
    let visitor = world.sign_in(&key).await;
    let events = world.get(&visitor, "/dashboard/events").await;
    assert!(events.text.contains("href=\"/dashboard/attempts\""));
    for (query, found, at_other) in [
        ("", 3, 2),
        ("type=a.b", 2, 1),
        ("state=waiting&type=c.d", 1, 1),
        ("destination=other", 2, 2),
        ("until=2026-01-31T12:00", 0, 0),
    ] {
        let path = format!("/dashboard/attempts?{query}");
        let page = world.get(&visitor, &path).await;
        assert_eq!(page.status, 200, "{query}");
        let links = page.text.matches("href=\"/dashboard/attempts/").count();
        let named = page.text.matches(">other</a></td>").count();
        assert_eq!((links, named), (found, at_other), "{query}: {}", page.text);
    }
    let nobody = world
        .get(&visitor, "/dashboard/attempts?destination=nobody")
        .await;
    assert_eq!(nobody.status, 422);
    let says = "destination: there is none";
    assert!(nobody.text.contains(says), "{}", nobody.text);
}

async fn a_preview_is_the_plan_and_says_what_is_inherited(world: &World) {
    // The tier `standard` allows 10 a second; the destination has 5.
    let (_, key, id) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let one = json!({"destination_id": id, "type": "a.b", "payload": {}});
    let batch = json!({"events": vec![one; 40]});
    world
        .api(&key, Method::POST, "/v1/events/batch", batch)
        .await;
    let visitor = world.sign_in(&key).await;
    let path = format!("/dashboard/destinations/{id}/limits");
    let preview = async |fields: &[(&str, &str)]| {
        let fields = [&[("preview", "1"), ("last", "3600")][..], fields].concat();
        let page = world.post(&visitor, &path, &fields).await;
        assert_eq!(page.status, 200, "{}", page.text);
        page.text
    };
    let planned = format!("/v1/destinations/{id}/plan");
    let slow = json!({"limits": {"per_second": 1}, "last_seconds": 3_600});
    let plan = world.api(&key, Method::POST, &planned, slow).await;
    let page = preview(&[("per_second", "1")]).await;
    assert!(page.contains("What if: 1/s"), "{page}");
    assert!(
        page.contains("The last hour (40 attempts) as they were"),
        "{page}"
    );
    let row = |name: &str, was: &str, would_be: &str| {
        format!(
            "<th scope=\"row\">{name}</th><td class=\"n\">{was}</td><td class=\"n\">{would_be}</td>"
        )
    };
    assert_eq!(plan["replayed"]["starts"], 40);
    assert!(page.contains(&row("starts", "0", "40")), "{page}");
    let (was, would_be) = (&plan["actual"], &plan["replayed"]);
    let [was, would_be] = [was, would_be].map(|one| one["peak_backlog"].to_string());
    assert!(
        page.contains(&row("largest backlog", &was, &would_be)),
        "{page}"
    );
    assert!(page.contains("class=\"before\"") && page.contains("class=\"line\""));

    // All cleared: the tier's, which the API says alike.
    let page = preview(&[]).await;
    assert!(
        page.contains("What if: what its tier gives, 10/s"),
        "{page}"
    );
    let cleared = json!({"limits": {"per_second": null}});
    let plan = world.api(&key, Method::POST, &planned, cleared).await;
    assert_eq!(plan["proposed"]["limits"]["per_second"], 10, "{plan}");

    let fields = [("preview", "1"), ("last", "1")];
    assert_eq!(world.post(&visitor, &path, &fields).await.status, 422);
}

/// As text, which a browser takes for nothing else.
async fn what_an_event_carries_is_shown_to_those_who_may_see_it(world: &World) {
    let all = ["ingest", "manage", "read", "read-payloads"];
    for (name, scopes) in [("sees", &all[..]), ("does not", &all[..3])] {
        let (_, key, id) = world.tenant(name, scopes).await;
        let body = json!({"destination_id": id, "payload": {"note": "<b>1 & 2</b>"}});
        let event = world.api(&key, Method::POST, "/v1/events", body).await;
        let session = world.sign_in(&key).await;
        let path = format!("/dashboard/events/{}", event["id"].as_str().unwrap());
        let shows = async |session: &Visitor| {
            let page = world.get(session, &path).await.text;
            let shown = page.contains("&#60;b&#62;1 &#38; 2&#60;/b&#62;");
            assert_eq!(page.contains("id=\"payload\""), shown, "{page}");
            shown
        };
        let may = scopes.len() == 4;
        assert_eq!(shows(&session).await, may);
        // So do links of whoever may, and nobody else makes any.
        let fields = [("seconds", "3600"), ("may_read_payloads", "on")];
        let made = world.post(&session, "/dashboard/links", &fields).await;
        assert_eq!(made.status.as_u16(), if may { 200 } else { 403 });
        if let Some((_, rest)) = made.text.split_once("<a id=\"made\" href=\"") {
            let url = rest.split('"').next().unwrap();
            let link = url.strip_prefix(&format!("http://{HOST}")).unwrap();
            let opened = world.form(link, None, &[]).await;
            assert!(shows(&world.visitor(&opened).await).await);
        }
    }
}

/// Of an event that went to several destinations each attempt says to which; its own
/// id had stood in each row instead.
async fn names_stand_where_ids_did(world: &World) {
    let (_, key, first) = world.tenant("ours", &["ingest", "manage", "read"]).await;
    let mut ids = vec![first.clone()];
    let name = format!("/v1/destinations/{first}");
    let named = json!({"name": "first shop", "event_types": ["*"]});
    world.api(&key, Method::PATCH, &name, named).await;
    for name in ["second shop", ""] {
        let new = json!({"url": "https://example.com/no-name", "name": name,
            "event_types": ["*"]});
        let made = world.api(&key, Method::POST, "/v1/destinations", new).await;
        ids.push(made["id"].as_str().unwrap().to_owned());
    }
    let body = json!({"type": "a.b", "payload": {}});
    let event = world.api(&key, Method::POST, "/v1/events", body).await;
    let event = event["id"].as_str().unwrap();
    let session = world.sign_in(&key).await;
    let page = world
        .get(&session, &format!("/dashboard/events/{event}"))
        .await;
    let names = ["first shop", "second shop", "https://example.com/no-name"];
    for (id, name) in ids.iter().zip(names) {
        let link = format!("<a href=\"/dashboard/destinations/{id}\">{name}</a>");
        assert!(page.text.contains(&link), "{link}: {}", page.text);
    }
    let elsewhere = page
        .text
        .replace(&format!("/dashboard/events/{event}/resend"), "");
    assert_eq!(elsewhere.matches(event).count(), 1, "{}", page.text);

    // In the list: of one by its name, of several how many.
    let body = json!({"destination_id": ids[1], "type": "c.d", "payload": {}});
    let one = world.api(&key, Method::POST, "/v1/events", body).await;
    let one = one["id"].as_str().unwrap();
    let list = world.get(&session, "/dashboard/events").await;
    assert!(
        list.text.contains("<td>3 destinations</td>"),
        "{}",
        list.text
    );
    let link = format!(
        "<a href=\"/dashboard/destinations/{}\">second shop</a>",
        ids[1]
    );
    assert!(list.text.contains(&link), "{}", list.text);
    let end = &one[one.len() - 5..];
    let short = format!("title=\"{one}\"><code class=\"end\">\u{2026}{end}</code>");
    assert!(list.text.contains(&short), "{}", list.text);
}

async fn a_search_of_events_is_of_its_tenants_own(world: &World) {
    let all = ["ingest", "manage", "read"];
    let (_, our_key, ours) = world.tenant("ours", &all).await;
    let (_, their_key, theirs) = world.tenant("theirs", &all).await;
    let one = |id: &str| json!({"destination_id": id, "type": "a.b", "payload": {}});
    let ours = world
        .api(&our_key, Method::POST, "/v1/events", one(&ours))
        .await;
    // More of theirs, and newer, than a page looks through.
    for _ in 0..3 {
        let batch = json!({"events": vec![one(&theirs); 1_000]});
        world
            .api(&their_key, Method::POST, "/v1/events/batch", batch)
            .await;
    }
    let visitor = world.sign_in(&our_key).await;
    for path in ["/dashboard/events", "/dashboard/events?state=waiting"] {
        let page = world.get(&visitor, path).await;
        assert!(page.text.contains(ours["id"].as_str().unwrap()), "{path}");
        assert!(!page.text.contains("rel=\"next\""), "{path}");
    }
}
