//! What cannot be taken back is asked first: on a terminal, and nowhere else.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::process::{Server, free_port, paceline};

const ID: &str = "00000000-0000-7000-8000-000000000001";

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
    let endpoint = "https://receiver.example/";
    let create = [
        "destination",
        "create",
        endpoint,
        "--per-second",
        "4",
        "--name",
    ];
    let dying = desk.json(&[&create[..], &["dying"]].concat());
    let dying = dying["id"].as_str().unwrap();
    desk.json(&["destination", "retries", dying, "--max-age", "1ms"]);
    desk.json(&["event", "send", "1", "--destination", dying]);
    desk.json(&[&create[..], &["held"]].concat());
    desk.json(&["destination", "pause", "held"]);
    for _ in 0..3 {
        desk.json(&["event", "send", "1", "--destination", "held"]);
    }
    while desk.json(&["dead-letters", "list"])["dead_letters"][0].is_null() {
        std::thread::yield_now();
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
