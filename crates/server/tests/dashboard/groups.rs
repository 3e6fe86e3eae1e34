//! Limit groups on their pages.

use http::Method;
use serde_json::{Value, json};

use crate::place::Place;
use crate::visit::{Visitor, World};

const GROUPS: &str = "/dashboard/limit-groups";

on_both! {
    a_group_is_added_changed_and_deleted
    a_wrong_group_comes_again_as_it_was_typed
}

async fn group(world: &World, key: &str, name: &str) -> Value {
    let path = format!("/v1/limit-groups/{name}");
    world.api(key, Method::GET, &path, json!({})).await
}

async fn a_group_is_added_changed_and_deleted(world: &World) {
    let (_, key, id) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let fields = [
        ("name", "host+a"),
        ("per_second", "20"),
        ("per_day", "1000"),
    ];
    let added = world.post(&visitor, GROUPS, &fields).await;
    let path = format!("{GROUPS}/host%2Ba");
    assert_eq!(added.headers["location"], format!("{path}?done=added"));
    let limits = json!({"per_second": 20, "per_minute": null, "per_hour": null, "per_day": 1_000});
    assert_eq!(group(world, &key, "host%2Ba").await["limits"], limits);

    // Who is in it is said where a destination is changed.
    let edit = format!("/dashboard/destinations/{id}/edit");
    let in_it = [
        ("url", "https://example.com/"),
        ("name", "shop & co"),
        ("limit_group", "host+a"),
    ];
    assert_eq!(world.post(&visitor, &edit, &in_it).await.status, 303);
    let page = world.get(&visitor, &path).await.text;
    let member = format!("<a href=\"/dashboard/destinations/{id}\">shop &#38; co</a>");
    for shown in [
        &member,
        "20/s, 1000/d",
        "value=\"1000\"",
        &format!("{edit}#limit_group"),
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    let list = world.get(&visitor, GROUPS).await.text;
    for shown in [
        &format!("<a href=\"{path}\">host+a</a>"),
        "<td class=\"n\">1</td>",
    ] {
        assert!(list.contains(shown), "{shown}: {list}");
    }

    a_limit_of_zero_is_asked_about(world, (&visitor, &key), &path).await;

    let delete = format!("{path}/delete");
    let asked = world.post(&visitor, &delete, &[]).await.text;
    assert!(asked.contains("Delete the limit group host+a?"), "{asked}");
    let sure = [("sure", "yes")];
    assert_eq!(
        world.post(&visitor, &delete, &sure).await.status,
        409,
        "it has a member"
    );
    let out = [("url", "https://example.com/"), ("limit_group", "")];
    assert_eq!(world.post(&visitor, &edit, &out).await.status, 303);
    let deleted = world.post(&visitor, &delete, &sure).await;
    assert_eq!(
        deleted.headers["location"],
        format!("{GROUPS}?done=deleted")
    );
    assert_eq!(world.get(&visitor, &path).await.status, 404);
}

/// It pauses all of them: that is asked about, once.
async fn a_limit_of_zero_is_asked_about(
    world: &World,
    (visitor, key): (&Visitor, &str),
    path: &str,
) {
    let changed = world.post(visitor, path, &[("per_minute", "90")]).await;
    assert_eq!(changed.headers["location"], format!("{path}?done=changed"));
    let limits = json!({"per_second": null, "per_minute": 90, "per_hour": null, "per_day": null});
    assert_eq!(group(world, key, "host%2Ba").await["limits"], limits);
    let asked = world.post(visitor, path, &[("per_minute", "0")]).await.text;
    let asks = "Pause all members of host+a with a limit of 0?";
    assert!(
        asked.contains(asks) && asked.contains("which are 1 now"),
        "{asked}"
    );
    assert_eq!(group(world, key, "host%2Ba").await["limits"], limits);
    let sure = [("per_minute", "0"), ("sure", "yes")];
    assert_eq!(world.post(visitor, path, &sure).await.status, 303);
    assert_eq!(
        group(world, key, "host%2Ba").await["limits"]["per_minute"],
        0
    );
    let more = [("per_minute", "0"), ("per_day", "5")];
    assert_eq!(world.post(visitor, path, &more).await.status, 303);
}

async fn a_wrong_group_comes_again_as_it_was_typed(world: &World) {
    let (_, key, _) = world.tenant("ours", &["manage", "read"]).await;
    let visitor = world.sign_in(&key).await;
    let there = [("name", "host"), ("per_second", "20")];
    assert_eq!(world.post(&visitor, GROUPS, &there).await.status, 303);
    for (name, per_second, problem) in [
        ("", "5", "name: must be 1 to 100 letters"),
        ("a b", "5", "name: must be 1 to 100 letters"),
        ("host", "5", "name: there is one already"),
        ("other", "", "limits.per_second: set at least one limit"),
        ("other", "2001", "limits.per_second: must be at most 2000"),
        ("other", "x", "per_second: must be a whole number, or empty"),
    ] {
        let fields = [("name", name), ("per_second", per_second)];
        let page = world.post(&visitor, GROUPS, &fields).await;
        assert_eq!(page.status, 422, "{problem}: {}", page.text);
        for shown in [
            format!("id=\"problem\">{problem}"),
            format!("value=\"{name}\""),
            format!("value=\"{per_second}\""),
        ] {
            assert!(page.text.contains(&shown), "{shown}: {}", page.text);
        }
        if name == "other" {
            let page = world
                .post(&visitor, &format!("{GROUPS}/host"), &fields)
                .await;
            assert_eq!(page.status, 422, "{problem}: {}", page.text);
            let shown = format!("id=\"problem\">{problem}");
            assert!(page.text.contains(&shown), "{shown}: {}", page.text);
        }
    }
    assert_eq!(group(world, &key, "host").await["limits"]["per_second"], 20);
}
