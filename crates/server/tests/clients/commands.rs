//! What the command line prints and says, against a real server.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json as body};
use server::receiver::{Behaviour, Receiver};
use tokio::time::Instant;

use crate::site::{KEY, Site};

/// As long as a slow machine may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn command(site: &Site, key: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command
        .current_dir(site.folder.path())
        .env_clear()
        .env("PACELINE_URL", site.url())
        .env("PACELINE_API_KEY", key)
        .args(arguments);
    command
}

fn paceline(site: &Site, key: &str, arguments: &[&str]) -> Output {
    command(site, key, arguments).output().unwrap()
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
fn what_is_put_twice_is_one_thing_and_shows_its_secret_once() {
    let site = Site::start();
    let tenant = |tier| {
        json(
            &site,
            &["tenant", "put", "customer-7", "Acme", "--tier", tier],
        )
    };
    let (first, again) = (tenant("free"), tenant("standard"));
    let told = |of: &Value| {
        (
            of["id"].clone(),
            of["external_id"].clone(),
            of["tier"].clone(),
        )
    };
    let called = Value::from("customer-7");
    assert_eq!(
        told(&first),
        (first["id"].clone(), called.clone(), "free".into())
    );
    assert_eq!(
        told(&again),
        (first["id"].clone(), called, "standard".into())
    );

    let endpoint = "http://127.0.0.1:9/";
    let put = ["destination", "put", "ep-7", endpoint];
    let made = json(&site, &[&put[..], &["--per-second", "5"]].concat());
    assert!(made["secret"]["secret"].is_string(), "{made}");
    assert_eq!(
        (&made["external_id"], &made["limits"]["per_second"]),
        (&Value::from("ep-7"), &Value::from(5))
    );
    let again = json(&site, &put);
    assert_eq!(again["id"], made["id"]);
    // What is not named is as of a new one.
    assert!(
        again.get("secret").is_none() && again["limits"]["per_second"].is_null(),
        "{again}"
    );
    let contradicts = [&put[..], &["--external-id", "ep-8"]].concat();
    let refused = paceline(&site, KEY, &contradicts);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("--external-id"),
        "{said}"
    );
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
    let listed = json(&site, &["limit-request", "list", "--limit", "1"]);
    assert_eq!(listed["limit_requests"].as_array().unwrap().len(), 1);
    assert!(listed["next"].is_string(), "{listed}");
    let listed = json(&site, &["limit-request", "list"]);
    assert!(listed["next"].is_null(), "{listed}");
    let more = |arguments: &[&str]| {
        let list = [&["limit-request", "list"][..], arguments].concat();
        let said = String::from_utf8(paceline(&site, KEY, &list).stderr).unwrap();
        said.contains("there may be more: see --limit")
    };
    assert!(more(&["--limit", "1"]) && !more(&[]));
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

/// A destination to which nothing is sent yet; its id.
fn paused(site: &Site) -> String {
    let endpoint = "http://127.0.0.1:9/";
    let made = json(site, &["destination", "create", endpoint]);
    json(site, &["destination", "pause", id(&made)]);
    id(&made).to_owned()
}

/// As it was sent; but for what the catalogue hides, and for nobody who may not read it.
#[test]
fn what_an_event_carries_is_printed_byte_for_byte() {
    let site = Site::start();
    let to = paused(&site);
    let send = |more: &[&str]| {
        let send = ["event", "send", "--destination", &to, "--type"];
        id(&json(&site, &[&send[..], more].concat())).to_owned()
    };
    let payload = |key: &str, event: &str| {
        let output = paceline(&site, key, &["event", "payload", event]);
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), output.stdout, said)
    };
    let spaced = r#"{"card":  "4711", "total": 1.50}"#;
    let paid = send(&["order.paid", spaced]);
    let text = send(&["order.paid", "4711", "--content-type", "text/plain"]);
    let whole = (Some(0), spaced.as_bytes().to_vec(), String::new());
    assert_eq!(payload(KEY, &paid), whole);
    let told = json(&site, &["event", "payload", &text]);
    let carries = (&told["content_type"], &told["shown"]);
    assert_eq!(carries, (&body!("text/plain"), &body!("all")), "{told}");

    let hides = body!({"name": "order.paid", "redact": ["/card"]});
    site.post("/v1/event-types", &hides);
    let hidden = spaced.replace("\"4711\"", "\"[redacted]\"");
    assert_eq!(payload(KEY, &paid).1, hidden.as_bytes());
    // Bytes that are JSON are redacted whatever they are called: a number has no card.
    assert_eq!(payload(KEY, &text).1, b"4711");
    let raw = send(&["order.paid", "no JSON", "--content-type", "text/plain"]);
    let (code, printed, said) = payload(KEY, &raw);
    assert_eq!((code, &printed[..]), (Some(1), &b""[..]), "{said}");
    assert!(said.contains("its payload is not shown"), "{said}");
    let (code, _, said) = payload(&site.tenants_key(), &paid);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("read-payloads"), "{said}");
}

/// Waits until the first attempt of an event is so.
async fn until(site: &Site, event: &str, state: &str) {
    let began = Instant::now();
    loop {
        let shown = json(site, &["event", "show", event]);
        if shown["attempts"][0]["state"] == state {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{shown}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whatever became of it, once somebody is sure; not while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_resent_to_all_where_it_was_or_to_one() {
    let site = Site::start();
    let receiver = Receiver::start(Behaviour::ACCEPT, 100).await.unwrap();
    let create = |number: u32, name: &str| {
        let url = receiver.url(number);
        let made = json(&site, &["destination", "create", &url, "--name", name]);
        id(&made).to_owned()
    };
    let (first, second) = (create(1, "first"), create(2, "second"));
    let send = ["event", "send", "--destination", &first, "1"];
    let event = id(&json(&site, &send)).to_owned();
    let arrived = async |total: u64| {
        let all = tokio::time::timeout(PATIENCE, receiver.wait_for(total));
        all.await.unwrap();
    };
    arrived(1).await;
    until(&site, &event, "succeeded").await;

    let unsure = paceline(&site, KEY, &["event", "resend", &event]);
    let said = String::from_utf8_lossy(&unsure.stderr);
    assert!(!unsure.status.success() && said.contains("--yes"), "{said}");
    let resend = ["event", "resend", "--yes", &event];
    let begun = |more: &[&str]| json(&site, &[&resend[..], more].concat())["replays"].clone();
    let all = begun(&[]);
    let told = (all.as_array().unwrap().len(), &all[0]["destination_id"]);
    assert_eq!(told, (1, &body!(first)), "{all}");
    arrived(2).await;
    let other = begun(&["--destination", "second", "--share", "1"]);
    let told = (&other[0]["destination_id"], &other[0]["share"]);
    assert_eq!(told, (&body!(second), &body!(1.0)), "{other}");
    arrived(3).await;
    let record = receiver.record();
    let to_second = record.arrivals.iter().filter(|one| one.destination == 2);
    assert_eq!(to_second.count(), 1);

    let to = paused(&site);
    let waits = json(&site, &["event", "send", "--destination", &to, "1"]);
    let refused = paceline(&site, KEY, &["event", "resend", "--yes", id(&waits)]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("it waits there still"), "{said}");
}

/// Ends it, even if the test fails.
struct Ends(Child);

impl Ends {
    /// As Ctrl-C does, and it ends well.
    #[track_caller]
    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn interrupt(&mut self) {
        let interrupt = format!("kill -INT {}", self.0.id());
        let interrupt = Command::new("sh").args(["-c", &interrupt]).status();
        assert!(interrupt.unwrap().success());
        let began = Instant::now();
        let ended = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "it goes on");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines as they come.
fn lines(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (seen, lines) = mpsc::channel();
    thread::spawn(move || {
        let printed = BufReader::new(stdout).lines().map_while(Result::ok);
        printed.map(|line| seen.send(line)).all(|sent| sent.is_ok())
    });
    lines
}

/// What comes from then on, of the type that is asked for; until it is interrupted.
#[test]
fn new_events_are_printed_as_they_come() {
    let site = Site::start();
    let to = paused(&site);
    let send = |of: &str| {
        let send = ["event", "send", "--destination", &to, "--type", of, "1"];
        id(&json(&site, &send)).to_owned()
    };
    let old = send("order.paid");
    let tail = ["event", "tail", "--type", "order.paid", "--output", "json"];
    let tail = command(&site, KEY, &tail)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tail = Ends(tail.unwrap());
    let printed = lines(tail.0.stdout.take().unwrap());
    let mut said = BufReader::new(tail.0.stderr.take().unwrap()).lines();
    let begins = |line: &String| line.contains("Ctrl-C ends");
    let begun = said.by_ref().map_while(Result::ok).find(begins);
    assert!(begun.is_some(), "it ended before it began");

    send("order.sent");
    let new = [send("order.paid"), send("order.paid")];
    let seen = [(); 2].map(|()| {
        let line = printed.recv_timeout(PATIENCE).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["type"], "order.paid", "{line}");
        id(&event).to_owned()
    });
    assert_eq!(seen, new, "and not {old}");
    tail.interrupt();
    assert_eq!(printed.recv_timeout(PATIENCE).ok(), None, "no more of them");
}

/// What is asked first, by a connection that stays open.
fn first_line(listener: TcpListener) -> mpsc::Receiver<(String, TcpStream)> {
    let (seen, asked) = mpsc::channel();
    thread::spawn(move || {
        let (connection, _) = listener.accept().unwrap();
        let line = BufReader::new(&connection).lines().next();
        seen.send((line.unwrap().unwrap(), connection))
    });
    asked
}

/// Ctrl-C ends it while it waits for an answer, too.
#[test]
fn a_tail_ends_while_the_server_is_silent() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let tail = Command::new(env!("CARGO_BIN_EXE_paceline"))
        .current_dir(folder.path())
        .env_clear()
        .env(
            "PACELINE_URL",
            format!("http://{}", silent.local_addr().unwrap()),
        )
        .env("PACELINE_API_KEY", KEY)
        .args(["event", "tail", "--since", "2026-01-31T12:00:00Z"])
        .spawn();
    let mut tail = Ends(tail.unwrap());
    let asked = first_line(silent).recv_timeout(PATIENCE).unwrap();
    assert!(asked.0.starts_with("GET /v1/events?"), "{}", asked.0);
    tail.interrupt();
}
