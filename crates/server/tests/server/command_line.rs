//! The binary itself, as far as it gets without servers: what it refuses, and
//! with which exit code.

use std::process::{Command, Output};

fn paceline(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_paceline"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], environment: &[(&str, &str)], code: i32, says: &[&str]) {
    let output = paceline(arguments, environment);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in says {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn a_wrong_setting_is_refused_by_its_flag_and_variable() {
    refused(
        &["worker"],
        &[("PACELINE_WORKER_PLACES", "many")],
        2,
        &["--worker-places", "PACELINE_WORKER_PLACES"],
    );
    refused(
        &["serve"],
        &[("PACELINE_DATABASE_URL", "mysql://ann:hunter2@db")],
        2,
        &["--database-url (PACELINE_DATABASE_URL)"],
    );
    refused(&["serve", "--log", "a=b=c"], &[], 2, &["PACELINE_LOG"]);
}

/// What links begin with, and no page is below a path.
#[test]
fn a_public_url_that_no_link_can_begin_with_is_refused_by_its_name() {
    let named = ["--public-url", "PACELINE_PUBLIC_URL"];
    for (url, why) in [
        ("hooks.example", "must be http:// or https:// and a host"),
        ("https://hooks.example/?a=b", "must have no query"),
        ("https://hooks.example/hooks", "leave out /hooks"),
    ] {
        for role in ["serve", "api"] {
            let says = [&named[..], &[why]].concat();
            refused(&[role], &[("PACELINE_PUBLIC_URL", url)], 2, &says);
            refused(&[role, "--public-url", url], &[], 2, &says);
        }
    }
}

#[test]
fn an_unknown_variable_is_refused_with_what_was_meant() {
    refused(
        &["serve"],
        &[("PACELINE_QUEUE_ULR", "x")],
        2,
        &["PACELINE_QUEUE_ULR", "did you mean PACELINE_QUEUE_URL?"],
    );
}

#[test]
fn a_split_role_refuses_embedded_parts() {
    for role in ["api", "scheduler", "worker", "operator"] {
        let postgres = ("PACELINE_DATABASE_URL", "postgres://127.0.0.1:1/x");
        refused(
            &[role],
            &[],
            2,
            &[
                role,
                "PACELINE_DATABASE_URL",
                "postgres://",
                "paceline serve",
            ],
        );
        refused(
            &[role],
            &[postgres],
            2,
            &["PACELINE_SCHEDULE_URL", "redis://"],
        );
    }
}

#[test]
fn an_open_address_without_a_key_is_refused() {
    refused(
        &["serve", "--listen", "0.0.0.0:0"],
        &[],
        2,
        &["PACELINE_API_KEY"],
    );
}

#[test]
fn a_client_says_what_to_do_next() {
    let key = ("PACELINE_API_KEY", "k");
    let nobody = ["--url", "http://127.0.0.1:1"];
    refused(
        &[&["destination", "list"], nobody.as_slice()].concat(),
        &[key],
        1,
        &["cannot reach", "paceline serve", "PACELINE_URL"],
    );
    refused(
        &["destination", "list", "--url", "https://192.0.2.1"],
        &[],
        1,
        &["PACELINE_API_KEY"],
    );
}

/// Before anything is dialled, so that no key is on its way.
#[test]
fn a_url_that_no_key_is_sent_to_is_refused_with_what_to_say_instead() {
    let key = ("PACELINE_API_KEY", "k");
    let named = "--url (PACELINE_URL)";
    let clear = "the key would go in clear to 192.0.2.1: use https://192.0.2.1";
    for (url, says) in [
        ("ftp://x.example", &["http:// or https://"][..]),
        (
            "http://192.0.2.1",
            &[clear, "--insecure-http", "PACELINE_INSECURE_HTTP"],
        ),
        ("http://192.0.2.1:8080/", &[clear]),
        ("http://paceline.example", &["in clear to paceline.example"]),
        ("http://[2001:db8::1]:8080", &["in clear to [2001:db8::1]"]),
        (
            "https://x.example/dashboard",
            &["must have no path, leave out /dashboard"],
        ),
        ("https://x.example/?a=b", &["must have no query"]),
        ("https://x.example/#a", &["must have no query"]),
        ("https://ann:hunter2@x.example", &["no password"]),
    ] {
        let says = [&[named][..], says].concat();
        refused(&["destination", "list", "--url", url], &[key], 2, &says);
        refused(
            &["destination", "list"],
            &[key, ("PACELINE_URL", url)],
            2,
            &says,
        );
    }
    // Said or not, this machine is none of these.
    for url in ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"] {
        let list = ["destination", "list", "--url", url];
        refused(&list, &[key], 1, &["cannot reach"]);
    }
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no certificate").unwrap();
    for (file, says) in [
        ("/nowhere/ca.crt", "/nowhere/ca.crt: "),
        (text.to_str().unwrap(), "has no certificate in PEM"),
    ] {
        let list = [
            "destination",
            "list",
            "--url",
            "https://127.0.0.1:1",
            "--ca-file",
            file,
        ];
        refused(&list, &[key], 2, &["--ca-file (PACELINE_CA_FILE)", says]);
    }
}

#[test]
fn what_is_missing_or_wrong_is_told_with_what_to_say_instead() {
    let key = [("PACELINE_API_KEY", "k")];
    let to = "<--destination <ID>|--type <TYPE>>";
    refused(&["event", "send", "{}"], &key, 2, &[to]);
    let listen = ["serve", "--listen", "example.com:8080"];
    refused(&listen, &[], 2, &["such as 127.0.0.1:8080 or 8080"]);
    let timeout = ["serve", "--request-timeout", "15"];
    refused(&timeout, &[], 2, &["needs a unit: 15s, 15m or 15h"]);
    let create = [
        "destination",
        "create",
        "https://x.example",
        "--type",
        "none",
    ];
    refused(&create, &key, 1, &["--type none", "leave --type out"]);
}

#[test]
fn an_audit_that_cannot_be_made_exits_with_2() {
    refused(
        &["audit", "--database-url", "mysql://x"],
        &[],
        2,
        &["PACELINE_DATABASE_URL"],
    );
}

#[test]
fn no_command_is_answered_with_help() {
    refused(&[], &[], 2, &["Usage: paceline", "serve"]);
}
