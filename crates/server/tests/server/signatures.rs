//! Requests of a real worker, verified by the official libraries of Rust,
//! Python and Node; and no secret anywhere that it should not be.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;
use serde_json::{Value, json};
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;

use crate::process::{Server, free_port, get, paceline, poll, post};

/// Looked for in whatever must not hold a secret.
const CANARY: &str = "canary-of-a-header";

/// Taken byte for byte: spaces, other letters, a number's own digits; and text.
const PAYLOADS: [&str; 2] = [
    r#""payload": {"order" :  42.50, "name":"Läden ✓"}"#,
    r#""payload_base64": "bm90IEpTT04gYXQgYWxs", "content_type": "text/plain""#,
];

/// One request, as it arrived.
#[derive(Clone)]
struct Request {
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    fn json(&self) -> Value {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let headers = names.map(|name| (name.to_owned(), self.header(name).into()));
        json!({
            "headers": serde_json::Map::from_iter(headers),
            "body": BASE64_STANDARD.encode(&self.body),
        })
    }
}

#[track_caller]
fn created(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap()
}

fn text(json: &Value) -> String {
    json.as_str().unwrap().to_owned()
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// How many checks a verifier made; it fails by itself if one did not hold.
fn verified(command: &mut Command, given: &Value) -> usize {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(given.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_libraries_verify_what_a_worker_sends() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let observer = move |request: Observed<'_>| {
        seen.lock().unwrap().push(Request {
            headers: request.headers.clone(),
            body: request.body.to_vec(),
        });
        None
    };
    let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(observer)));
    let receiver = receiver.await.unwrap();
    let port = free_port();
    let log = folder.join("log");
    let server = Server::start_logging(folder, port, "trace", &log);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(folder.join("paceline.db.secret-keys"))
            .unwrap()
            .permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);

    let body = json!({
        "url": receiver.url(0),
        "headers": { "Authorization": format!("Bearer {CANARY}"), "X-Env": "production" },
    });
    let first = created(&post(folder, port, "/v1/destinations", &body.to_string()));
    let path = format!("/v1/destinations/{}/secrets", text(&first["id"]));
    let second = created(&post(folder, port, &path, "{}"));
    let third = created(&post(folder, port, &path, r#"{"kind":"ed25519"}"#));
    let secrets = [text(&first["secret"]["secret"]), text(&second["secret"])];
    for payload in PAYLOADS {
        let event = format!(r#"{{"destination_id":{},{payload}}}"#, first["id"]);
        let answer = post(folder, port, "/v1/events", &event);
        assert!(answer.starts_with("HTTP/1.1 202"), "{answer}");
    }
    receiver.wait_for(PAYLOADS.len() as u64).await;
    let requests = requests.lock().unwrap().clone();

    for request in &requests {
        let signatures = request.header("webhook-signature");
        let versions: Vec<_> = (signatures.split(' '))
            .map(|signature| signature.split(',').next().unwrap())
            .collect();
        assert_eq!(versions, ["v1a", "v1", "v1"], "the newest first");
        assert_eq!(request.header("x-env"), "production");
        assert_eq!(request.header("authorization"), format!("Bearer {CANARY}"));
        for secret in &secrets {
            let webhook = Webhook::new(secret).unwrap();
            webhook.verify(&request.body, &request.headers).unwrap();
            assert!(webhook.verify(b"{}", &request.headers).is_err());
        }
    }
    let given = json!({
        "secrets": secrets,
        "public_keys": [third["public_key"]],
        "requests": requests.iter().map(Request::json).collect::<Vec<_>>(),
    });
    let installed = Command::new(root().join("scripts/standard-webhooks"));
    let checks = requests.len() * 3;
    assert_eq!(by_python_and_node(installed, &given), [checks; 2]);

    no_secret_is_seen(folder, port, &log, &secrets);
    assert_eq!(server.stop(), Some(0));
    no_secret_is_seen_in(&fs::read_to_string(&log).unwrap(), &secrets, "the log");
}

fn by_python_and_node(mut install: Command, given: &Value) -> [usize; 2] {
    let output = install.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{install:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let libraries = Path::new(said.trim());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server");
    let mut python = Command::new(libraries.join("python/bin/python"));
    let mut node = Command::new("node");
    node.arg(tests.join("verify.mjs"))
        .arg(libraries.join("node"));
    [
        verified(python.arg(tests.join("verify.py")), given),
        verified(&mut node, given),
    ]
}

/// Not over the API, not in the metrics, not in the database's file.
fn no_secret_is_seen(folder: &Path, port: u16, log: &Path, secrets: &[String]) {
    no_secret_is_seen_in(&get(port, "/metrics").unwrap(), secrets, "metrics");
    no_secret_is_seen_in(&get(port, "/readyz").unwrap(), secrets, "readiness");
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        if file != log {
            let bytes = fs::read(&file).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            no_secret_is_seen_in(&text, secrets, &file.display().to_string());
        }
    }
}

fn no_secret_is_seen_in(text: &str, secrets: &[String], place: &str) {
    let hidden = secrets.iter().map(|secret| &secret["whsec_".len()..]);
    for secret in hidden.chain([CANARY]) {
        assert!(!text.contains(secret), "{place} shows a secret");
    }
    // Nor in another coat.
    for secret in secrets {
        let bytes = BASE64_STANDARD.decode(&secret["whsec_".len()..]).unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let listed = format!("{bytes:?}");
        assert!(!text.contains(&hex), "{place} shows a secret in hex");
        assert!(!text.contains(&listed), "{place} shows a secret as bytes");
    }
}

/// Ends it even if the test fails.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_example_of_a_receiver_takes_what_is_genuine_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let example_port = free_port();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let example = Command::new("python3")
        .arg(root().join("examples/receiver.py"))
        .args([secret, &example_port.to_string()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _example = Example(example);
    poll("the example listens", || {
        std::net::TcpStream::connect(("127.0.0.1", example_port)).ok()
    });
    let url = format!("http://127.0.0.1:{example_port}/");
    let genuine = json!({ "url": url, "secret": secret });
    let forged = json!({ "url": url });
    for (body, status) in [(genuine, 204), (forged, 401)] {
        let destination = created(&post(folder, port, "/v1/destinations", &body.to_string()));
        let event = json!({ "destination_id": destination["id"], "payload": { "order": 42 } });
        let sent = post(folder, port, "/v1/events", &event.to_string());
        let sent: Value = serde_json::from_str(sent.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let answered = poll("an outcome", || {
            let url = format!("http://127.0.0.1:{port}");
            let show = paceline(folder)
                .args(["event", "show", sent["id"].as_str().unwrap()])
                .args(["--url", &url, "--output", "json"])
                .output()
                .unwrap();
            let event: Value = serde_json::from_slice(&show.stdout).ok()?;
            event["attempts"][0]["status"].as_u64()
        });
        assert_eq!(answered, status);
    }
    assert_eq!(server.stop(), Some(0));
}
