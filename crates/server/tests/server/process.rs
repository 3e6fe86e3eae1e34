//! The whole program, embedded, as a user runs it: serve, create, send, show,
//! audit, stop.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use domain::attempt::AttemptState;
use domain::time::Timestamp;
use serde_json::Value;
use server::receiver::{Behaviour, Receiver};

/// Polls for up to twenty seconds: a slow machine is no failure.
const POLLS: usize = 400;

pub(crate) fn paceline(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command.current_dir(folder).env_clear();
    command
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Ends the server even if the test fails.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    pub(crate) fn start(folder: &Path, port: u16) -> Self {
        Self::start_with(folder, port, &[])
    }

    /// One with these settings.
    pub(crate) fn start_with(folder: &Path, port: u16, settings: &[(&str, &str)]) -> Self {
        let mut command = paceline(folder);
        command
            .args(["--log", "warn"])
            .envs(settings.iter().copied());
        Self::spawn(port, &mut command)
    }

    /// One that logs so into a file.
    pub(crate) fn start_logging(folder: &Path, port: u16, filter: &str, log: &Path) -> Self {
        let log = fs::File::create(log).unwrap();
        Self::spawn(port, paceline(folder).args(["--log", filter]).stderr(log))
    }

    /// One that asks receivers as this origin.
    pub(crate) fn start_as(folder: &Path, port: u16, origin: &str) -> Self {
        let mut command = paceline(folder);
        command.env("PACELINE_HANDSHAKE_ORIGIN", origin);
        Self::spawn(port, command.args(["--log", "warn"]))
    }

    /// Any role, once it has been spawned.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// `serve` with what the command says already, once it is ready.
    pub(crate) fn spawn(port: u16, command: &mut Command) -> Self {
        let child = command
            .args(["serve", "--allow-http", "--allow-networks", "localhost:*"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            // Nobody listens there: whoever obeys it delivers nothing.
            .envs(
                ["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:1")),
            )
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let server = Self(child);
        poll("ready", || {
            get(port, "/readyz").filter(|answer| answer.contains("\"ready\":true"))
        });
        server
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.0.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub(crate) fn stop(mut self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.0.wait().unwrap().code()
    }
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
pub(crate) fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within time")
}

pub(crate) fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Takes one request, answers 204, and returns its body.
fn receive(listener: &TcpListener) -> Vec<u8> {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
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
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    reader
        .get_mut()
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .unwrap();
    body
}

#[track_caller]
fn json(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn an_event_goes_from_the_command_line_to_its_receiver_and_into_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/hook", receiver.local_addr().unwrap());
    let port = free_port();
    let server = Server::start(folder, port);
    assert!(folder.join("paceline.db.key").exists());
    assert!(get(port, "/livez").unwrap().starts_with("HTTP/1.1 200"));
    assert!(get(port, "/metrics").unwrap().starts_with("HTTP/1.1 200"));

    let url = format!("http://127.0.0.1:{port}");
    let client = |arguments: &[&str]| {
        let with = ["--url", &url, "--output", "json"];
        paceline(folder)
            .args(arguments)
            .args(with)
            .output()
            .unwrap()
    };
    let create = [
        "destination",
        "create",
        &endpoint,
        "--name",
        "shop",
        "--per-second",
        "5",
    ];
    let created = json(&client(&create));
    let id = created["id"].as_str().unwrap();
    assert_eq!(created["limits"]["per_second"], 5);

    // Spaces, order and digits that no parser would keep.
    let payload = r#"{ "b":1.00,  "a": 12345678901234567890123 }"#;
    let accepted = json(&client(&["event", "send", "--destination", id, payload]));
    assert_eq!(receive(&receiver), payload.as_bytes());

    let event = accepted["id"].as_str().unwrap();
    let delivered = poll("recorded", || {
        let shown = json(&client(&["event", "show", event]));
        (shown["attempts"][0]["state"] == "succeeded").then_some(shown)
    });
    assert_eq!(delivered["attempts"][0]["status"], 204);
    assert!(
        delivered["attempts"][0]["delivery_latency_ms"]
            .as_f64()
            .unwrap()
            > 0.0
    );

    // Half a second after it.
    let report = poll("judged", || {
        let mut audit = paceline(folder);
        let report = json(&audit.args(["audit", "--output", "json"]).output().unwrap());
        (report["destinations"][0]["starts"] == 1).then_some(report)
    });
    assert_eq!(report["compliant"], true);
    assert_eq!(
        report["destinations"][0]["rules"][0]["largest_sliding"]["starts"],
        1
    );

    assert_eq!(server.stop(), Some(0), "drained");
}

#[test]
fn a_restart_finds_the_key_and_what_was_changed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let url = format!("http://127.0.0.1:{port}");
    let client = |arguments: &[&str]| {
        let with = ["--url", &url, "--output", "json"];
        paceline(folder)
            .args(arguments)
            .args(with)
            .output()
            .unwrap()
    };
    let created = json(&client(&["destination", "create", "http://127.0.0.1:9/"]));
    let id = created["id"].as_str().unwrap();
    let changed = json(&client(&["destination", "update", id, "--per-second", "9"]));
    assert_eq!(changed["limits"]["per_second"], 9);
    assert_eq!(
        json(&client(&["destination", "pause", id]))["state"],
        "paused"
    );

    assert_eq!(server.stop(), Some(0), "drained");
    let key = fs::read_to_string(folder.join("paceline.db.key")).unwrap();
    let again = Server::start(folder, port);
    assert_eq!(
        fs::read_to_string(folder.join("paceline.db.key")).unwrap(),
        key
    );
    assert_eq!(
        json(&client(&["destination", "show", id]))["state"],
        "paused"
    );
    assert_eq!(again.stop(), Some(0));
}

/// As a tidy-up script does it. Of what would be lost nothing is accepted.
#[test]
fn a_database_that_is_deleted_under_it_ends_readiness_and_ingest() {
    let folder = tempfile::tempdir().unwrap();
    let folder = fs::canonicalize(folder.path()).unwrap();
    let (port, log) = (free_port(), folder.join("log"));
    let server = Server::start_logging(&folder, port, "info", &log);
    let database = folder.join("paceline.db");
    let said = || fs::read_to_string(&log).unwrap();
    let made = format!("made a new database at {}", database.display());
    assert!(said().contains(&made), "{}", said());
    let body = r#"{"type":"order.paid","payload":{}}"#;
    let accepted = post(&folder, port, "/v1/events", body);
    assert!(accepted.starts_with("HTTP/1.1 202"), "{accepted}");

    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", database.display())).unwrap();
    }
    let refused = post(&folder, port, "/v1/events", body);
    assert!(refused.starts_with("HTTP/1.1 503"), "{refused}");
    assert!(
        refused.contains("urn:paceline:problem:store-lost"),
        "{refused}"
    );
    poll("not ready", || {
        get(port, "/readyz").filter(|answer| answer.starts_with("HTTP/1.1 503"))
    });
    let said = said();
    // The answer's id finds its line.
    let (_, problem) = refused.split_once("\r\n\r\n").unwrap();
    let problem: Value = serde_json::from_str(problem).unwrap();
    let id = format!("\"request_id\":{}", problem["request_id"]);
    let line = said.lines().find(|line| line.contains(&id));
    let line = line.unwrap_or_else(|| panic!("{id} is not in {said}"));
    assert!(line.contains("the store is lost"), "{line}");
    let errors: Vec<_> = (said.lines())
        .filter(|line| line.contains("\"level\":\"ERROR\""))
        .collect();
    let [error] = errors[..] else {
        panic!("{} errors in {said}", errors.len());
    };
    for words in [
        format!("{} was deleted or moved away", database.display()),
        "start Paceline again".to_owned(),
    ] {
        assert!(error.contains(&words), "{error}");
    }
    drop(server);
}

fn asked(folder: &Path, port: u16, arguments: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{port}");
    let with = ["--url", &url, "--output", "json"];
    let mut command = paceline(folder);
    command.args(arguments).args(with).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// On the command line: nobody knows ids by heart.
#[test]
fn a_destination_and_a_tenant_go_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let client = |arguments: &[&str]| asked(folder, port, arguments);
    let create = |name: &str| {
        let endpoint = "https://receiver.example/";
        let pauses = ["--per-second", "0"];
        let create = ["destination", "create", endpoint, "--name", name];
        json(&client(&[create.as_slice(), &pauses].concat()))["id"].clone()
    };
    let (shop, first, second) = (create("shop"), create("twin"), create("twin"));

    let shown = json(&client(&["destination", "show", "shop"]));
    assert_eq!(shown["id"], shop);
    let sent = json(&client(&["event", "send", "1", "--destination", "shop"]));
    assert_eq!(sent["destinations"], serde_json::json!([shop]));
    let tenant = json(&client(&["tenant", "show", "default"]));
    assert_eq!(tenant["name"], "default");

    let unknown = stderr(&client(&["destination", "pause", "shopp"]));
    let says = "no destination is called shopp: `paceline destination list` shows their names";
    assert!(unknown.contains(says), "{unknown}");
    let twins = stderr(&client(&["event", "send", "1", "--destination", "twin"]));
    let ids = [&first, &second].map(|id| id.as_str().unwrap());
    let ids = ids.join(", ");
    let says = format!("2 destinations are called twin: name one by its id: {ids}");
    assert!(twins.contains(&says), "{twins}");
    drop(server);
}

/// A mistyped type is how everybody's first event gets lost.
#[test]
fn an_event_for_nobody_is_noticed_and_types_can_be_cleared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let server = Server::start(folder, port);
    let client = |arguments: &[&str]| asked(folder, port, arguments);
    let endpoint = "https://receiver.example/";
    let create = ["destination", "create", endpoint, "--name", "shop"];
    let types = ["--event-type", "order.paid", "--per-second", "0"];
    let created = json(&client(&[create.as_slice(), &types].concat()));
    assert_eq!(created["event_types"], serde_json::json!(["order.paid"]));

    let lost = client(&["event", "send", "1", "--type", "order.payd"]);
    assert!(lost.status.success());
    let says = "accepted, but no destination subscribes to order.payd, or its filter";
    assert!(stderr(&lost).contains(says), "{lost:?}");
    let strict = client(&["event", "send", "1", "--type", "order.payd", "--strict"]);
    assert!(!strict.status.success());
    let says = "type: no destination subscribes to order.payd, or its filter";
    assert!(stderr(&strict).contains(says), "{strict:?}");
    let found = client(&["event", "send", "1", "--type", "order.paid", "--strict"]);
    assert_eq!(stderr(&found), "");

    let file = folder.join("filter.json");
    std::fs::write(&file, r#"{"/total": {"gte": 100}}"#).unwrap();
    let from = format!("@{}", file.display());
    let filtered = json(&client(&[
        "destination",
        "update",
        "shop",
        "--filter",
        &from,
    ]));
    assert_eq!(
        filtered["filter"],
        serde_json::json!({"/total": {"gte": 100}})
    );
    let small = r#"{"total": 99}"#;
    let lost = client(&["event", "send", small, "--type", "order.paid", "--strict"]);
    assert!(
        stderr(&lost).contains("or its filter does not take this"),
        "{lost:?}"
    );
    let refused = client(&["destination", "update", "shop", "--filter", r#"{"/a": {}}"#]);
    let says = r#"filter["/a"]: must have an operator"#;
    assert!(stderr(&refused).contains(says), "{refused:?}");
    let all = json(&client(&[
        "destination",
        "update",
        "shop",
        "--filter",
        "none",
    ]));
    assert_eq!(all["filter"], serde_json::Value::Null);

    let cleared = json(&client(&[
        "destination",
        "update",
        "shop",
        "--type",
        "none",
    ]));
    assert_eq!(cleared["event_types"], serde_json::json!([]));
    drop(server);
}

/// What an operator may open is nothing to a caller; the id of the refusal finds it.
#[test]
fn the_log_has_what_a_refusal_does_not_say() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (port, log) = (free_port(), folder.join("log"));
    let server = Server::start_logging(folder, port, "info", &log);
    let closed = asked(
        folder,
        port,
        &["destination", "create", "http://10.1.2.3:9000/"],
    );
    let closed = stderr(&closed);
    assert!(
        closed.contains("private addresses are not allowed"),
        "{closed}"
    );
    assert!(!closed.contains("PACELINE_ALLOW"), "{closed}");
    let says = "; the server's log has the flag that opens it (request ";
    assert!(closed.contains(says), "{closed}");
    let (_, id) = closed.trim_end().rsplit_once(" (request ").unwrap();
    let id = format!("\"request_id\":\"{}\"", id.trim_end_matches(')'));
    let log = fs::read_to_string(&log).unwrap();
    let opens = "--allow-networks 10.1.2.3:9000";
    let line = log.lines().find(|line| line.contains(opens));
    assert!(line.is_some_and(|line| line.contains(&id)), "{id}: {log}");
    let page = get(port, "/dashboard/sign-in").unwrap();
    assert!(page.contains("\r\nx-request-id: 0"), "{page}");

    let with_path = paceline(folder)
        .args(["destination", "list", "--url"])
        .arg(format!("http://127.0.0.1:{port}/dashboard"))
        .output();
    let said = stderr(&with_path.unwrap());
    let says = "--url (PACELINE_URL): must have no path, leave out /dashboard";
    assert!(said.contains(says), "{said}");
    drop(server);
}

/// Reads a page with the key that `serve` made.
pub(crate) fn get_with_key(folder: &Path, port: u16, path: &str) -> Option<String> {
    let key = fs::read_to_string(folder.join("paceline.db.key")).ok()?;
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let key = key.trim();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer {key}\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Sends one request with that key, and returns the answer.
pub(crate) fn post(folder: &Path, port: u16, path: &str, body: &str) -> String {
    let key = fs::read_to_string(folder.join("paceline.db.key")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         authorization: Bearer {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        key.trim(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts that nobody knows the outcome of, by the ledger in the file.
async fn unknown_starts(folder: &Path, id: &str) -> usize {
    let config = server::config::StoreConfig {
        database_url: format!("sqlite:{}", folder.join("paceline.db").display())
            .parse()
            .unwrap(),
        database_connections: 2,
    };
    let stored = server::parts::open_to_read(&config).await.unwrap();
    let (from, until) = (Timestamp::from_micros(0), Timestamp::MAX);
    let ledger = stored.ledger(id.parse().unwrap(), from, until, None, 10_000);
    (ledger.await.unwrap().iter())
        .filter(|row| row.state == AttemptState::Unknown)
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_is_delivered_although_the_process_was_killed() {
    const EVENTS: usize = 150;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let receiver = Receiver::start(Behaviour::ACCEPT, 10 * EVENTS)
        .await
        .unwrap();
    let port = free_port();
    let mut server = Server::start(folder, port);
    let body = format!(
        r#"{{"url":"{}","limits":{{"per_second":50}}}}"#,
        receiver.url(0)
    );
    let created = post(folder, port, "/v1/destinations", &body);
    let created: Value = serde_json::from_str(created.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let id = created["id"].as_str().unwrap();
    let event = format!(r#"{{"destination_id":"{id}","payload":{{}}}}"#);
    let events = vec![event; EVENTS].join(",");
    let accepted = post(
        folder,
        port,
        "/v1/events/batch",
        &format!(r#"{{"events":[{events}]}}"#),
    );
    assert!(accepted.starts_with("HTTP/1.1 202"), "{accepted}");

    receiver.wait_for(60).await;
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let again = Server::start(folder, port);
    let delivered = || {
        let arrivals = receiver.record().arrivals;
        let events: HashSet<_> = arrivals
            .iter()
            .filter_map(|arrival| arrival.event)
            .collect();
        (events.len() == EVENTS).then_some(arrivals.len())
    };
    let arrivals = poll("all delivered", delivered);
    let unknown = unknown_starts(folder, id).await;
    assert!(
        arrivals <= EVENTS + unknown,
        "{arrivals} arrivals, {unknown} unknown"
    );
    assert_eq!(again.stop(), Some(0));
}
