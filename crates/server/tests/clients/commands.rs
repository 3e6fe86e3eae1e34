//! What the command line prints and says, against a real server.

use std::process::{Command, Output};

use serde_json::Value;

use crate::site::{KEY, Site};

fn paceline(site: &Site, key: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .current_dir(site.folder.path())
        .env_clear()
        .env("PACELINE_URL", site.url())
        .env("PACELINE_API_KEY", key)
        .args(arguments)
        .output()
        .unwrap()
}

#[track_caller]
fn json(site: &Site, arguments: &[&str]) -> Value {
    let output = paceline(site, KEY, &[arguments, &["--output", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {:?}", output.stdout))
}

fn id(of: &Value) -> &str {
    of["id"].as_str().unwrap()
}

#[test]
fn what_ends_a_thing_answers_in_json_as_well() {
    let site = Site::start();
    let tenant = json(&site, &["tenant", "create", "shop"]);
    let key = json(&site, &["key", "create", id(&tenant), "--scope", "read"]);
    let revoked = json(&site, &["key", "revoke", "-y", id(&tenant), id(&key)]);
    assert_eq!(revoked["revoked"], key["id"]);

    // Held, so that what is sent waits and can be cancelled.
    let endpoint = "http://127.0.0.1:9/";
    let made = json(&site, &["destination", "create", endpoint]);
    let made = id(&made);
    json(&site, &["destination", "pause", made]);
    json(&site, &["event", "send", "--destination", made, "1"]);
    let waiting = json(&site, &["attempt", "list", made]);
    let attempt = waiting["attempts"][0]["id"].to_string();
    let cancelled = json(
        &site,
        &["attempt", "cancel", "--yes", attempt.trim_matches('"')],
    );
    assert_eq!(cancelled["cancelled"], attempt.trim_matches('"'));

    let secret = json(&site, &["destination", "secret", "rotate", made]);
    let gone = json(
        &site,
        &[
            "destination",
            "secret",
            "delete",
            "--yes",
            made,
            id(&secret),
        ],
    );
    assert_eq!(gone["deleted"], secret["id"]);
    let gone = json(&site, &["destination", "delete", "--yes", made]);
    assert_eq!(gone["deleted"], made);
}

#[test]
fn a_refusal_says_what_to_do_next() {
    let site = Site::start();
    let key = site.tenants_key();
    let nowhere = "00000000-0000-7000-8000-000000000001";
    let refused: [(&str, &[&str], &[&str]); 3] = [
        ("wrong", &["destination", "list"], &["PACELINE_API_KEY"]),
        (
            &key,
            &["tenant", "list"],
            &["scope admin", "paceline key create"],
        ),
        (
            KEY,
            &["destination", "show", nowhere],
            &["no such destination", "`list`"],
        ),
    ];
    for (key, arguments, says) in refused {
        let output = paceline(&site, key, arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for word in says {
            assert!(said.contains(word), "{word} is not in: {said}");
        }
    }
}

/// The link is whole: it can be put into a browser as it is printed.
#[test]
fn a_link_is_printed_whole_and_listed_without_what_opens_it() {
    let site = Site::start();
    let tenant = json(&site, &["tenant", "create", "shop"]);
    let tenant = id(&tenant);
    let create = ["link", "create", tenant, "--name", "support"];
    let printed = paceline(&site, KEY, &create).stdout;
    let printed = String::from_utf8(printed).unwrap();
    let link = printed.trim();
    let page = format!("{}/dashboard/links/", site.url());
    assert!(link.starts_with(&page), "{link}");

    let listed = json(&site, &["link", "list", tenant]);
    let one = &listed["links"][0];
    assert_eq!(
        (&one["name"], &one["may_change"]),
        (&"support".into(), &false.into())
    );
    assert!(
        !listed.to_string().contains(&link[page.len()..]),
        "{listed}"
    );
    let revoked = json(&site, &["link", "revoke", "--yes", tenant, id(one)]);
    assert_eq!(revoked["revoked"], one["id"]);
    assert_eq!(
        json(&site, &["link", "list", tenant])["links"],
        Value::Array(vec![])
    );

    for (lifetime, problem) in [("59s", "60 to 604800"), ("8d", "60 to 604800")] {
        let refused = paceline(
            &site,
            KEY,
            &["link", "create", tenant, "--expires-in", lifetime],
        );
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(problem), "{said}");
    }
}

/// What is above a ceiling: larger batches of one destination, or more destinations.
#[test]
fn a_request_is_for_a_destination_or_for_a_number_of_them() {
    let site = Site::start();
    let endpoint = "http://127.0.0.1:9/";
    let made = json(
        &site,
        &["destination", "create", endpoint, "--name", "shop"],
    );
    let create = ["limit-request", "create"];
    let ask = |arguments: &[&str]| json(&site, &[&create[..], arguments].concat());
    let number = ask(&["--destinations", "20000", "--note", "shops"]);
    assert_eq!(number["destinations"], 20_000);
    assert!(number["destination_id"].is_null(), "{number}");
    let larger = ask(&["shop", "--batch-events", "60", "--batch-bytes", "500000"]);
    assert_eq!(larger["destination_id"], made["id"]);
    let batches = [&larger["batch_events"], &larger["batch_bytes"]];
    assert_eq!(batches, [60, 500_000], "{larger}");
    let listed = paceline(&site, KEY, &["limit-request", "list"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for said in ["20000 destinations", "60 events, 500000 bytes"] {
        assert!(listed.contains(said), "{said}: {listed}");
    }
    assert!(
        !listed.contains("unlimited"),
        "nobody asked for that: {listed}"
    );
    for (arguments, problem) in [
        (&[][..], "required"),
        (&["shop"][..], "nothing is asked for"),
        (&["shop", "--destinations", "5"][..], "cannot be used with"),
        (
            &["--destinations", "5", "--per-second", "5"][..],
            "a request of its own",
        ),
    ] {
        let refused = paceline(&site, KEY, &[&create[..], arguments].concat());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(said.contains(problem), "{arguments:?}: {said}");
    }
}
