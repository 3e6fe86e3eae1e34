//! All tenants' destinations, for an operator: pages of a bounded size, however many
//! there are, those first that harm most.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{ADMIN, World};

/// Of each of two tenants.
const EACH: u32 = 5_000;

/// Of these, so many fail, the later the longer.
const FAILING: u32 = 37;

/// Destinations of a tenant's, of which the first ones may fail.
async fn bulk(world: &World, name: &str, failing: u32) {
    let new = Some(json!({"name": name}));
    let made = world.call(Some(ADMIN), &Method::POST, "/v1/tenants", new);
    let tenant = made.await.json["id"].as_str().unwrap().to_owned();
    let insert = |id: &str, numbers: &str| {
        format!(
            "insert into destinations (id, tenant_id, name, url)
            select {id}, '{tenant}', '{name} no ' || i, 'https://example.com/' from {numbers};"
        )
    };
    let health = |hour_ago: &str, number: &str| {
        format!(
            "insert into health (destination_id, failures, failing_since, last_failed_at)
            select id, 20 + {number}, {hour_ago}, {hour_ago} from destinations
            where tenant_id = '{tenant}' and {number} <= {failing};"
        )
    };
    let id = format!("'{}' || ", &tenant[..24]);
    let postgres = insert(
        &format!("({id} lpad(to_hex(i), 12, '0'))::uuid"),
        &format!("generate_series(1, {EACH}) i"),
    ) + &health(
        "now() - interval '1 hour'",
        "split_part(name, ' no ', 2)::integer",
    );
    let sqlite = insert(
        &format!("{id} printf('%012x', i)"),
        &format!(
            "(with recursive n(i) as (values (1) union all select i + 1 from n where i < {EACH}) select i from n)"
        ),
    ) + &health(
        "(unixepoch() - 3600) * 1000000",
        "cast(substr(name, instr(name, ' no ') + 4) as integer)",
    );
    world.sql(&postgres, &sqlite).await;
}

async fn fleet(world: &World, query: &str) -> Value {
    let path = format!("/v1/fleet?{query}");
    let answer = world.call(Some(ADMIN), &Method::GET, &path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json
}

fn names(fleet: &Value) -> Vec<&str> {
    let all = fleet["destinations"].as_array().unwrap().iter();
    all.map(|one| one["name"].as_str().unwrap()).collect()
}

pub(crate) async fn ten_thousand_destinations_are_pages(world: &World) {
    bulk(world, "calm", 0).await;
    bulk(world, "M\u{fc}ller", FAILING).await;
    // Two tenants come with two each.
    let all = u64::from(2 * EACH) + 4;
    let first = fleet(world, "").await;
    assert_eq!(
        (&first["count"], &first["failing"]),
        (&json!(all), &json!(FAILING))
    );
    assert_eq!(first["matching"], json!(all));
    assert_eq!((names(&first).len(), &first["next"]), (100, &json!(100)));
    // The longest failing first, of whichever tenant.
    let worst: Vec<_> = (1..=FAILING)
        .rev()
        .map(|n| format!("M\u{fc}ller no {n}"))
        .collect();
    assert_eq!(names(&first)[..worst.len()], worst);
    let one = &first["destinations"][0];
    assert_eq!(one["tenant_name"], "M\u{fc}ller");
    assert_eq!(
        (&one["failing"], &one["failures_in_a_row"]),
        (&json!(true), &json!(57))
    );
    assert!(
        !names(&first)[worst.len()..]
            .iter()
            .any(|name| worst.contains(&(*name).to_owned()))
    );

    let second = fleet(world, "skip=100").await;
    assert_eq!((names(&second).len(), &second["next"]), (100, &json!(200)));
    assert!(
        !names(&second)
            .iter()
            .any(|name| names(&first).contains(name))
    );
    let failing = fleet(world, "state=failing&limit=30").await;
    assert_eq!(
        (&failing["matching"], names(&failing).len()),
        (&json!(FAILING), 30)
    );
    let rest = fleet(world, "state=failing&limit=30&skip=30").await;
    assert_eq!((names(&rest).len(), &rest["next"]), (7, &Value::Null));
    let theirs = fleet(world, "search=m%C3%BCller&state=failing&limit=1").await;
    assert_eq!(theirs["matching"], json!(FAILING));
    let calm = fleet(world, "search=CALM&limit=1").await;
    assert_eq!(calm["matching"], json!(EACH));
    for (query, field) in [
        ("limit=101", "limit"),
        ("limit=0", "limit"),
        ("skip=100001", "skip"),
        ("state=odd", "state"),
    ] {
        let path = format!("/v1/fleet?{query}");
        let answer = world.call(Some(ADMIN), &Method::GET, &path, None).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json["field"]),
            (422, &json!(field))
        );
    }
    its_page(world, all).await;
}

async fn its_page(world: &World, all: u64) {
    let key = format!("key={ADMIN}");
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let page = async |path| world.page(&entered.cookie, path, None).await.html;
    let first = page("/dashboard/fleet").await;
    let grouped = format!("{},{:03}", all / 1_000, all % 1_000);
    assert!(
        first.contains(&format!("{grouped} destinations, {FAILING} failing")),
        "{first}"
    );
    assert_eq!(first.matches("<th scope=\"row\">").count(), 50);
    let row = first.split("<th scope=\"row\">").nth(1).unwrap();
    assert!(
        row.contains("M\u{fc}ller no 37</a>")
            && row.contains("<td class=\"whose\">M\u{fc}ller</td>")
    );
    assert!(row.contains("failing: the last 57 in a row"), "{row}");
    assert!(first.contains("skip=50\" rel=\"next\""), "{first}");
    assert!(first.contains("aria-current=\"page\">Fleet</a>"));
    let failing = page("/dashboard/fleet?state=failing&search=m%C3%BCller").await;
    assert!(failing.contains("37 match."), "{failing}");
    assert_eq!(failing.matches("<th scope=\"row\">").count(), 37);
    assert!(!failing.contains("rel=\"next\""));

    let key = format!("key={}", world.ours.key);
    let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
    let stream = world
        .page(&entered.cookie, "/dashboard/fleet/live", None)
        .await;
    assert_eq!(stream.status, 403, "{}", stream.html);
    let refused = world.page(&entered.cookie, "/dashboard/fleet", None).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(
        !refused.html.contains("/dashboard/fleet\" aria"),
        "no link to it"
    );
}
