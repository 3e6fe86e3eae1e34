//! What cannot be taken back is asked first: on a terminal, and nowhere else.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::process::{Server, free_port, paceline};

const ID: &str = "00000000-0000-7000-8000-000000000001";

/// Before anything was accepted here.
const SINCE: &str = "2020-01-01T00:00:00Z";

/// It is refused before anybody is asked: nobody listens at that address.
#[test]
fn without_a_terminal_it_has_to_be_said() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        &["destination", "delete", ID][..],
        &["destination", "delete", "by its name"],
        &["destination", "cancel", ID],
        &["destination", "secret", "delete", ID, ID],
        &["attempt", "cancel", "1"],
        &["key", "revoke", ID, "00000000000000ff"],
        &["link", "revoke", ID, "00000000000000ff"],
        &["replay", "cancel", ID],
        &["dead-letters", "replay", "--all-destinations"],
        &["dead-letters", "replay", "--destination", ID],
        &["destination", "resend", ID, "--since", SINCE],
        &[
            "destination",
            "resend",
            "--all-destinations",
            "--since",
            SINCE,
        ],
    ] {
        let run = |arguments: &[&str]| {
            let output = paceline(folder.path())
                .args(command)
                .args(arguments)
                .args(["--url", "http://127.0.0.1:1", "--api-key", "k"])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            (output.status.code(), text)
        };
        let (code, text) = run(&[]);
        assert_eq!(code, Some(2), "{command:?}: {text}");
        let says = "--yes: this asks before it begins, and there is no terminal";
        assert!(text.contains(says), "{command:?}: {text}");
        let (code, text) = run(&["--yes"]);
        assert_eq!(code, Some(1), "{command:?}: {text}");
        assert!(text.contains("cannot reach"), "{command:?}: {text}");
    }
}

/// A `paceline serve`, and somebody who sits at a terminal.
struct Desk<'a> {
    folder: &'a Path,
    url: String,
}

impl Desk<'_> {
    fn json(&self, arguments: &[&str]) -> Value {
        let output = paceline(self.folder)
            .args(arguments)
            .args(["--url", &self.url, "--output", "json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn create(&self, name: &str) {
        let endpoint = "https://receiver.example/";
        let create = ["destination", "create", endpoint, "--per-second", "4"];
        self.json(&[&create[..], &["--name", name]].concat());
    }

    /// A destination with this name, at which an event was given up.
    fn create_dying(&self, name: &str) {
        self.create(name);
        self.json(&["destination", "retries", name, "--max-age", "1ms"]);
        self.json(&["event", "send", "1", "--destination", name]);
        while self.json(&["dead-letters", "list"])["dead_letters"][0].is_null() {
            std::thread::yield_now();
        }
    }

    /// What is said to one who answers so, and the exit code.
    fn typed(&self, arguments: &[&str], answer: &str) -> (Option<i32>, String) {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new())
            .unwrap()
            .into_string()
            .unwrap();
        let mut terminal = File::from(terminal);
        let open = || {
            let opened = OpenOptions::new().read(true).write(true).open(&name);
            Stdio::from(opened.unwrap())
        };
        let mut command = paceline(self.folder);
        command
            .args(arguments)
            .args(["--url", &self.url])
            .stdin(open())
            .stderr(open())
            .stdout(open());
        terminal.write_all(answer.as_bytes()).unwrap();
        let mut child = command.spawn().unwrap();
        // Ours are closed with it: what is read ends where the program does.
        drop(command);
        let mut said = Vec::new();
        let mut part = [0; 4_096];
        while let Ok(read @ 1..) = terminal.read(&mut part) {
            said.extend_from_slice(&part[..read]);
        }
        let code = child.wait().unwrap().code();
        (code, String::from_utf8(said).unwrap())
    }
}

#[test]
fn on_a_terminal_it_says_what_it_will_do_and_asks() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Server::start(folder.path(), port);
    let desk = Desk {
        folder: folder.path(),
        url: format!("http://127.0.0.1:{port}"),
    };
    desk.create_dying("dying");
    desk.create("held");
    desk.json(&["destination", "pause", "held"]);
    for _ in 0..3 {
        desk.json(&["event", "send", "1", "--destination", "held"]);
    }

    let replay = ["dead-letters", "replay", "--destination", "dying"];
    let (code, said) = desk.typed(&replay, "\n");
    assert_eq!(code, Some(1), "{said}");
    let says = "Replays 1 dead letters of 1 destination(s) at 0.5 of their limits, which takes \
                about 0.5s.";
    for says in [says, "Go on? [y/N]", "nothing was done"] {
        assert!(said.contains(says), "{says} is not in {said}");
    }
    assert_eq!(
        desk.json(&["replay", "list"])["replays"],
        Value::Array(Vec::new())
    );
    let (code, said) = desk.typed(&replay, "y\n");
    assert_eq!(code, Some(0), "{said}");
    let begun = desk.json(&["replay", "list"]);
    let id = begun["replays"][0]["id"].as_str().unwrap();
    let says = format!("How far it is: paceline replay show {id} --follow");
    assert!(said.contains(&says), "{said}");

    let delete = ["destination", "delete", "held"];
    let (code, said) = desk.typed(&delete, "no\n");
    assert_eq!(code, Some(1), "{said}");
    let says = "Deletes the destination held: 3 deliveries wait and are dropped.";
    assert!(said.contains(says), "{said}");
    desk.json(&["destination", "show", "held"]);
    let (code, said) = desk.typed(&delete, "yes\n");
    assert_eq!(code, Some(0), "{said}");
    let left = desk.json(&["destination", "list"]);
    assert_eq!(left["destinations"].as_array().unwrap().len(), 1, "{left}");
    server.stop();
}

/// To all destinations, once it was shown how much that is; and to nobody where no more than
/// that was asked for.
#[test]
fn a_resend_says_how_many_deliveries_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Server::start(folder.path(), port);
    let desk = Desk {
        folder: folder.path(),
        url: format!("http://127.0.0.1:{port}"),
    };
    desk.create_dying("dying");
    desk.create("calm");
    let to = |to| ["destination", "resend", to, "--since", SINCE];
    let (all, one) = (to("--all-destinations"), to("dying"));
    for (asked, to) in [(all, 1), (one, 1), (to("calm"), 0)] {
        let found = desk.json(&[&asked[..], &["--dry-run"]].concat());
        assert_eq!(
            (&found["deliveries"], &found["is_all"]),
            (&json!(to), &json!(true))
        );
        let (code, said) = desk.typed(&[&asked[..], &["--dry-run"]].concat(), "");
        assert_eq!(code, Some(0), "{said}");
        let says = format!("That is {to} deliveries to {to} destination(s) at 0.5 of their limits");
        assert!(said.contains(&says), "{says} is not in {said}");
    }
    let (code, said) = desk.typed(&all, "\n");
    assert_eq!(code, Some(1), "{said}");
    let says = format!(
        "Sends to every destination again what it has not got, since {SINCE}. That is 1 \
         deliveries to 1 destination(s) at 0.5 of their limits, which takes about 0.5s."
    );
    for says in [says.as_str(), "Go on? [y/N]", "nothing was done"] {
        assert!(said.contains(says), "{says} is not in {said}");
    }
    let begun = |list: Value| list["replays"].as_array().unwrap().len();
    assert_eq!(begun(desk.json(&["replay", "list"])), 0);
    let (code, said) = desk.typed(&all, "y\n");
    assert_eq!(code, Some(0), "{said}");
    let list = desk.json(&["replay", "list"]);
    assert_eq!(list["replays"][0]["source"], "events", "{list}");
    assert_eq!(begun(list), 1, "none for the calm one");
    let both = [&all[..], &["calm"]].concat();
    assert_eq!(desk.typed(&both, "y\n").0, Some(2), "one or all of them");
    let neither = ["destination", "resend", "--since", SINCE];
    assert_eq!(desk.typed(&neither, "y\n").0, Some(2), "one or all of them");
    server.stop();
}
