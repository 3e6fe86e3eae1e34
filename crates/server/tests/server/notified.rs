//! What operators must know, from where it happens to the receiver that they
//! registered: signed, once, also where the process is killed on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;
use tokio::sync::mpsc;

use crate::process::{Server, free_port, paceline, post};

/// The destination at the receiver that is told, and the one that is gone.
const TOLD: u32 = 0;
const GONE: u32 = 1;

struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
}

/// A receiver that is told, and what it and the one that is gone were sent.
struct Place {
    receiver: Receiver,
    told: mpsc::Receiver<Request>,
    gone: mpsc::Receiver<Request>,
}

impl Place {
    async fn new() -> Self {
        let (told_in, told) = mpsc::channel(1_000);
        let (gone_in, gone) = mpsc::channel(1_000);
        let observer = move |request: Observed<'_>| {
            let to = match request.destination {
                TOLD => &told_in,
                _ => &gone_in,
            };
            to.try_send(Request {
                headers: request.headers.clone(),
                body: request.body.to_vec(),
            })
            .unwrap();
            (request.destination == GONE).then_some(StatusCode::GONE.into())
        };
        let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(observer)));
        Self {
            receiver: receiver.await.unwrap(),
            told,
            gone,
        }
    }
}

#[track_caller]
fn created(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

/// `paceline operations …`, and what it prints as JSON.
fn operations(folder: &Path, port: u16, arguments: &[&str]) -> Value {
    let url = format!("http://127.0.0.1:{port}");
    let done = paceline(folder)
        .arg("operations")
        .args(arguments)
        .args(["--url", &url, "--output", "json"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{error}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The log lines of this message.
fn logged(logs: &[&Path], message: &str) -> Vec<Value> {
    let texts = logs.iter().map(|log| fs::read_to_string(log).unwrap());
    let lines: Vec<Value> = texts
        .flat_map(|text| {
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            lines.collect::<Vec<_>>()
        })
        .collect();
    (lines.into_iter())
        .filter(|line| line["message"] == message)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_receiver_is_told_once_and_signed_although_the_process_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut place = Place::new().await;
    let port = free_port();
    let logs = [folder.join("first.log"), folder.join("second.log")];
    let server = Server::start_logging(folder, port, "info", &logs[0]);
    let create = |number| {
        let body = json!({"url": place.receiver.url(number)}).to_string();
        created(&post(folder, port, "/v1/destinations", &body))
    };
    let (told, gone) = (create(TOLD), create(GONE));
    let (told_id, gone_id) = (told["id"].as_str().unwrap(), gone["id"].as_str().unwrap());
    let registered = operations(folder, port, &["register", told_id]);
    assert_eq!(registered["scope"], "tenant");

    let event = json!({"destination_id": gone_id, "payload": {}}).to_string();
    created(&post(folder, port, "/v1/events", &event));
    // Answered 410: recorded or not, told or not, it is killed.
    place.gone.recv().await.unwrap();
    drop(server);
    let server = Server::start_logging(folder, port, "info", &logs[1]);

    let secret = Webhook::new(told["secret"]["secret"].as_str().unwrap()).unwrap();
    let mut by_id: BTreeMap<String, Value> = BTreeMap::new();
    let both = BTreeSet::from(["dead_letters", "destination_disabled"]);
    loop {
        let types = by_id.values().map(|told| told["type"].as_str().unwrap());
        if types.collect::<BTreeSet<_>>() == both {
            break;
        }
        let request = place.told.recv().await.unwrap();
        secret.verify(&request.body, &request.headers).unwrap();
        let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
        let body = serde_json::from_slice(&request.body).unwrap();
        if let Some(before) = by_id.insert(id.clone(), body) {
            assert_eq!(by_id[&id], before, "the same again");
        }
    }
    assert_eq!(by_id.len(), 2, "each once: {by_id:?}");

    let list = operations(folder, port, &["events"]);
    let rows = list["operational_events"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        let said = by_id.values().find(|told| told["type"] == row["type"]);
        let said = said.unwrap();
        assert_eq!(said["timestamp"], row["timestamp"]);
        assert_eq!(said["data"]["operational_event_id"], row["id"]);
        assert_eq!(said["data"]["destination_id"], gone_id);
        assert_eq!(said["data"]["tenant_id"], row["tenant_id"]);
        for (name, value) in row["details"].as_object().unwrap() {
            assert_eq!(said["data"][name], *value, "{name}");
        }
    }
    assert_eq!(server.stop(), Some(0));
    let logs: Vec<&Path> = logs.iter().map(|log| log.as_path()).collect();
    let lines = logged(&logs, "operational event");
    // After the commit: a process that is killed in between logs nothing.
    assert!(lines.len() <= 1, "{lines:?}");
    for line in lines {
        assert_eq!(line["event"], "dead_letters");
        assert_eq!(line["destination"], gone_id);
        assert_eq!(line["level"], "WARN");
    }
}
