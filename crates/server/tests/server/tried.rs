//! `paceline destination test`, and what is found of it: `paceline attempt list` and
//! `paceline attempt show`, against a server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Output;
use std::thread;

use serde_json::Value;

use crate::process::{Server, free_port, paceline};

/// Where a receiver is that answers each request so, on a connection of its own.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/hook", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let said = format!("HTTP/1.1 {answer}\r\nconnection: close\r\n\r\n");
            reader.get_mut().write_all(said.as_bytes()).unwrap();
        }
    });
    endpoint
}

fn ids(listed: &Value) -> Vec<&Value> {
    let attempts = listed["attempts"].as_array().unwrap();
    attempts.iter().map(|one| &one["id"]).collect()
}

/// A program that asks the server, and must end so.
struct Client<'a> {
    folder: &'a Path,
    url: String,
}

impl Client<'_> {
    fn ended(&self, arguments: &[&str]) -> Output {
        let mut command = paceline(self.folder);
        command.args(arguments).args(["--url", &self.url]);
        command.output().unwrap()
    }

    fn says(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.ended(&[arguments, &["--output", "json"]].concat());
        let ended = output.status.code();
        assert_eq!(ended, Some(code), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

#[test]
fn a_destination_is_tried_and_what_it_answered_is_found_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let url = format!("http://127.0.0.1:{port}");
    let client = Client { folder, url };
    let create = |endpoint: &str, name: &str| {
        let made = client.says(0, &["destination", "create", endpoint, "--name", name]);
        made["id"].as_str().unwrap().to_owned()
    };
    let endpoint = answering("204 No Content");
    let good = create(&endpoint, "good");
    create(&answering("503 Service Unavailable"), "bad");
    client.says(0, &["destination", "retries", "bad", "--delay", "1h"]);

    let tried = client.says(0, &["destination", "test", &good]);
    assert_eq!(tried["attempt"]["status"], 204, "{tried}");
    let failed = client.says(1, &["destination", "test", "bad"]);
    assert_eq!(failed["attempt"]["status"], 503, "{failed}");
    client.says(0, &["destination", "pause", &good]);
    let waits = client.says(1, &["destination", "test", &good, "--wait", "0"]);
    assert_eq!(waits["attempt"], Value::Null, "{waits}");

    are_found(&client, &tried, &failed);
    is_shown_as_it_was_sent(&client, &tried);
    let moved = format!("{endpoint}/moved");
    client.says(0, &["destination", "update", "good", "--endpoint", &moved]);
    let id = tried["attempt"]["id"].to_string();
    let shown = client.says(0, &["attempt", "show", &id]);
    assert_eq!(shown["request"]["url"], endpoint, "where it went");
    server.stop();
}

/// By status, event and time; and what waits for its next try says when that is.
fn are_found(client: &Client<'_>, tried: &Value, failed: &Value) {
    let event = failed["event_id"].as_str().unwrap();
    let shown = client.says(0, &["event", "show", event]);
    let retry = &shown["attempts"][1];
    assert_eq!(retry["state"], "waiting", "{shown}");
    assert!(retry["due_at"].is_string(), "{shown}");
    assert_eq!(shown["due_at"], retry["due_at"]);
    let found = client.says(0, &["event", "list", "--text", event]);
    assert_eq!(found["events"][0]["due_at"], retry["due_at"], "{found}");

    let (delivered, first, retry) = (
        &tried["attempt"]["id"],
        &failed["attempt"]["id"],
        &retry["id"],
    );
    let past = "2026-01-31T12:00:00Z";
    for (filter, expected) in [
        (&["--status", "5xx"][..], vec![first]),
        (&["--status", "204"], vec![delivered]),
        (&["--status", "4xx"], vec![]),
        (&["--status", "503", "--until", past], vec![]),
        (&["--text", event], vec![retry, first]),
        (&["--text", &event[20..]], vec![retry, first]),
        (&["--text", event, "--status", "503"], vec![first]),
    ] {
        let listed = client.says(0, &[&["attempt", "list"], filter].concat());
        assert_eq!(ids(&listed), expected, "{filter:?}");
    }
    let refused = client.ended(&["attempt", "list", "--status", "50x"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("a class of them such as 5xx"), "{words}");
}

/// All of it to whoever may read payloads; to others neither what was sent nor its
/// signature.
fn is_shown_as_it_was_sent(client: &Client<'_>, tried: &Value) {
    let id = tried["attempt"]["id"].to_string();
    let shown = client.says(0, &["attempt", "show", &id]);
    assert_eq!(shown["attempt"], tried["attempt"]);
    let request = &shown["request"];
    let header = |request: &Value, name: &str| {
        let headers = request["headers"].as_array().unwrap();
        let found = headers.iter().find(|header| header["name"] == name);
        found
            .cloned()
            .unwrap_or_else(|| panic!("{name}: {request}"))
    };
    assert_eq!(header(request, "webhook-id")["value"], tried["event_id"]);
    let signature = header(request, "webhook-signature");
    assert!(signature["value"].as_str().unwrap().starts_with("v1,"));
    assert_eq!(request["payload"]["payload"]["test"], true, "{shown}");

    let tenant = engine::ports::DEFAULT_TENANT.to_string();
    let made = client.says(0, &["key", "create", &tenant, "--scope", "read"]);
    let key = made["key"].as_str().unwrap();
    let shown = client.says(0, &["attempt", "show", &id, "--api-key", key]);
    let request = &shown["request"];
    assert_eq!(request["payload"], Value::Null, "{shown}");
    let signature = header(request, "webhook-signature");
    assert_eq!(signature["value"], Value::Null);
    assert_eq!(signature["withheld"], "hidden");

    let table = client.ended(&["attempt", "show", &id]).stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("> POST http://"), "{table}");
    assert!(table.contains("> paceline-try: 1"), "{table}");
}
