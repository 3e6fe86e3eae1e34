//! `paceline event import` and `paceline attempt list`, against a server.

use std::process::Output;

use serde_json::Value;

use crate::process::{Server, free_port, paceline};

#[test]
fn a_file_of_events_is_sent_and_each_line_that_is_refused_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let url = format!("http://127.0.0.1:{port}");
    let client = |arguments: &[&str]| {
        let mut command = paceline(folder);
        command.args(arguments).args(["--url", &url]);
        command.output().unwrap()
    };
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let json = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).unwrap() };

    // Nothing is sent there: its limit is 0.
    let endpoint = "https://receiver.example/";
    let create = [
        "destination",
        "create",
        endpoint,
        "--per-second",
        "0",
        "--output",
        "json",
    ];
    let created = json(&client(&create));
    let id = created["id"].as_str().unwrap();
    let good = format!(r#"{{"destination_id":"{id}","payload":1}}"#);
    let file = folder.join("events.ndjson");
    std::fs::write(&file, format!("{good}\n{{\n\n{good}")).unwrap();

    let sent = client(&["event", "import", file.to_str().unwrap()]);
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    assert!(sent.stderr.is_empty(), "no terminal, no bar: {sent:?}");
    let lines: Vec<String> = text(&sent).lines().map(str::to_owned).collect();
    let broken = "line 2: broken JSON: EOF while parsing an object at column 1";
    assert_eq!(lines[0], broken);
    assert_eq!(lines[1..], ["2 accepted, 1 refused"]);

    let listed = json(&client(&["attempt", "list", id, "--output", "json"]));
    let listed = listed["attempts"].as_array().unwrap();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["state"], "waiting");
    let newest = json(&client(&[
        "attempt", "list", id, "--limit", "1", "--output", "json",
    ]));
    assert_eq!(newest["attempts"][0]["id"], listed[0]["id"]);

    // In more than one piece, and as JSON.
    std::fs::write(&file, format!("{good}\n").repeat(1_100)).unwrap();
    let sent = client(&[
        "event",
        "import",
        file.to_str().unwrap(),
        "--output",
        "json",
    ]);
    assert!(sent.status.success(), "{sent:?}");
    let numbers: Vec<u64> = (text(&sent).lines())
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["line"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(numbers, (1..=1_100).collect::<Vec<u64>>(), "as in the file");

    let missing = client(&["event", "import", "nowhere.ndjson"]);
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(error.contains("open nowhere.ndjson"), "{error}");
    server.stop();
}

/// Somebody who waits for a replay is told when it has ended. Nothing is drawn:
/// this is no terminal.
#[test]
fn a_replay_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let url = format!("http://127.0.0.1:{port}");
    let client = |arguments: &[&str]| -> Value {
        let mut command = paceline(folder);
        command
            .args(arguments)
            .args(["--url", &url, "--output", "json"]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let endpoint = "https://receiver.example/";
    let created = client(&["destination", "create", endpoint, "--per-second", "5"]);
    let id = created["id"].as_str().unwrap();
    // Nothing is sent: it is too old as soon as somebody looks.
    client(&["destination", "retries", id, "--max-age", "1ms"]);
    client(&["event", "send", "1", "--destination", id]);
    while client(&["dead-letters", "list"])["dead_letters"][0].is_null() {
        std::thread::yield_now();
    }
    let begun = client(&["dead-letters", "replay", "--yes", "--destination", id]);
    let replay = begun["replays"][0]["id"].as_str().unwrap();
    let ended = client(&["replay", "show", replay, "--follow"]);
    assert_eq!(ended["state"], "completed", "{ended}");
    assert_eq!(ended["done"], 1, "{ended}");
    server.stop();
}
