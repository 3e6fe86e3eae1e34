//! Handshakes: over the API, and the whole program before a receiver that counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::{Server, free_port, paceline, poll};
use crate::world::World;

#[tokio::test]
async fn it_is_set_with_the_destination_and_looked_at_beside_it() {
    let world = World::new();
    let plain = world.destination(json!({})).await;
    let off = json!({
        "handshake": "none", "outcome": null, "problem": null, "allowed_per_minute": null,
        "allowed_until": null, "asked_at": null, "next_ask_at": null, "failures": 0,
    });
    assert_eq!(world.get(&format!("{plain}/handshake")).await.json, off);
    let refused = world.post(&format!("{plain}/handshake"), json!({})).await;
    refused.refuses(422, "handshake");

    let asking = world
        .destination(json!({"handshake": "cloud_events"}))
        .await;
    assert_eq!(world.get(&asking).await.json["handshake"], "cloud_events");
    let path = format!("{asking}/handshake");
    let new = world.get(&path).await.json;
    assert_eq!(
        (&new["outcome"], &new["allowed_per_minute"]),
        (&json!(null), &json!(0))
    );
    let asked = world.post(&path, json!({})).await;
    assert_eq!((asked.status.as_u16(), asked.json), (202, new));
    let none = world.patch(&asking, json!({"handshake": "none"})).await;
    assert_eq!(none.json["handshake"], "none");
    let nonsense = world.patch(&asking, json!({"handshake": "maybe"})).await;
    nonsense.refuses(422, "handshake");
}

const ORIGIN: &str = "hooks.example.com";

/// A receiver that allows 60 a minute, once it allows any; and what it was sent.
#[derive(Default)]
struct Counting {
    allows: AtomicBool,
    asked: Mutex<Vec<Vec<String>>>,
    sent: Mutex<Vec<(Instant, Vec<String>)>>,
}

impl Counting {
    fn start() -> (Arc<Self>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let counting = Arc::new(Self::default());
        let serving = Arc::clone(&counting);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                thread::spawn(move || while serving.answer(&stream).is_some() {});
            }
        });
        (counting, url)
    }

    /// One request of a connection; `None` at its end.
    fn answer(&self, mut stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let is_end = reader.read_line(&mut line).ok()? == 0;
            let line = line.trim().to_lowercase();
            match (is_end, line.is_empty()) {
                (true, _) => return None,
                (false, true) => break,
                (false, false) => lines.push(line),
            }
        }
        let at = tokio::time::Instant::now().into_std();
        let length = lines
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        let head = match (
            lines[0].starts_with("options"),
            self.allows.load(Ordering::SeqCst),
        ) {
            (false, _) => "204 No Content\r\n",
            (true, false) => "405 Method Not Allowed\r\ncontent-length: 0\r\n",
            (true, true) => {
                "200 OK\r\ncontent-length: 0\r\nWebHook-Allowed-Origin: *\r\n\
                 WebHook-Allowed-Rate: 60\r\n"
            }
        };
        match lines[0].starts_with("options") {
            true => self.asked.lock().unwrap().push(lines),
            false => self.sent.lock().unwrap().push((at, lines)),
        }
        stream
            .write_all(format!("HTTP/1.1 {head}\r\n").as_bytes())
            .ok()
    }

    fn sent(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// As fast as is configured, and each says who sends it.
    fn has_counted(&self, requests: usize) {
        let sent = self.sent.lock().unwrap();
        assert_eq!(sent.len(), requests);
        let (first, last) = (sent[0].0, sent[requests - 1].0);
        // The first and the last of them may be those that were not sent.
        assert!(
            last - first >= Duration::from_millis(requests as u64 * 100 - 1_000),
            "no more than 10 a second"
        );
        let named = |(_, lines): &(Instant, Vec<String>)| {
            lines
                .iter()
                .any(|line| line == "webhook-request-origin: hooks.example.com")
        };
        assert!(sent.iter().all(named));
    }
}

/// A receiver that refuses is sent nothing; one that allows 60 a minute, of 10 a second that
/// are configured, counts 60.
#[test]
#[expect(clippy::disallowed_methods, reason = "what does not come has no event")]
fn a_receiver_is_asked_first_and_counts_what_it_allows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (receiver, endpoint) = Counting::start();
    let port = free_port();
    let _server = Server::start_as(folder, port, ORIGIN);
    let url = format!("http://127.0.0.1:{port}");
    let run = |arguments: &[&str]| {
        let with = ["--url", &url, "--output", "json"];
        let done = paceline(folder)
            .args(arguments)
            .args(with)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{error}");
        done.stdout
    };
    let client = |arguments: &[&str]| -> Value { serde_json::from_slice(&run(arguments)).unwrap() };
    let create = ["destination", "create", &endpoint, "--per-second", "10"];
    let created = client(&[&create[..], &["--handshake", "cloud_events"]].concat());
    let id = created["id"].as_str().unwrap();
    let events = folder.join("events.ndjson");
    let line = json!({"destination_id": id, "payload": {"order": 1}}).to_string() + "\n";
    std::fs::write(&events, line.repeat(150)).unwrap();
    run(&["event", "import", events.to_str().unwrap()]);

    let refused = poll("refused", || {
        let status = client(&["destination", "handshake", id]);
        (status["outcome"] == "refused").then_some(status)
    });
    assert_eq!(refused["problem"], "it answered 405");
    assert_eq!(refused["allowed_per_minute"], 0);
    let explained = client(&["destination", "explain", id]);
    assert_eq!(explained["reason"], "not_allowed", "{explained}");
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(receiver.sent(), 0);
    let question = receiver.asked.lock().unwrap()[0].clone();
    let has = |line: &str| question.iter().any(|one| one == line);
    assert!(
        has("webhook-request-origin: hooks.example.com"),
        "{question:?}"
    );
    assert!(has("webhook-request-rate: 600"), "{question:?}");
    assert_eq!(receiver.asked.lock().unwrap().len(), 1, "again in a minute");

    receiver.allows.store(true, Ordering::SeqCst);
    client(&["destination", "handshake", id, "--ask"]);
    // A start that a loaded machine was too slow to send counts in the window as well.
    let too_late = || {
        let late = client(&["attempt", "list", id, "--state", "not_sent"]);
        late["attempts"].as_array().unwrap().len()
    };
    poll("sixty", || {
        (receiver.sent() + too_late() >= 60).then_some(())
    });
    let explained = client(&["destination", "explain", id]);
    assert_eq!(explained["reason"], "window", "{explained}");
    let words = explained["explanation"].as_str().unwrap_or_default();
    assert!(
        words.contains("60 a minute, which the receiver allows"),
        "{explained}"
    );
    // At 10 a second there would be 50 more.
    thread::sleep(Duration::from_secs(5));
    let late = too_late();
    assert!(late < 30, "{late} of 60 were not sent");
    receiver.has_counted(60 - late);
    let told = client(&["operations", "events"]);
    let told = told.to_string();
    assert!(
        told.contains("handshake_refused") && told.contains("handshake_allowed"),
        "{told}"
    );
}
