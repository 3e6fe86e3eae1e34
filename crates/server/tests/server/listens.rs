//! `paceline listen`: a tenant's new events, at a program that is being written.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};

use http::{HeaderMap, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use server::receiver::{Behaviour, Observed, Receiver};
use standardwebhooks::Webhook;
use tokio::sync::mpsc;

use crate::process::{Server, free_port, paceline};
use crate::svix::unbranded;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Request = (HeaderMap, Vec<u8>);

/// Answers what is not JSON with 500.
async fn program() -> (Receiver, mpsc::Receiver<Request>) {
    let (seen, requests) = mpsc::channel(100);
    let observer = move |request: Observed<'_>| {
        let request = (request.headers.clone(), request.body.to_vec());
        let status = match serde_json::from_slice::<Value>(&request.1) {
            Ok(_) => StatusCode::CREATED,
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        seen.try_send(request).unwrap();
        Some(status.into())
    };
    let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(observer)));
    (receiver.await.unwrap(), requests)
}

/// The command, while it runs.
struct Listening {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    asides: Lines<BufReader<ChildStderr>>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Listening {
    fn start(folder: &std::path::Path, port: u16, arguments: &[&str]) -> Self {
        let mut child = paceline(folder)
            .args([
                "--log",
                "warn",
                "listen",
                "--url",
                &format!("http://127.0.0.1:{port}"),
            ])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let asides = BufReader::new(child.stderr.take().unwrap()).lines();
        Self {
            child,
            lines,
            asides,
        }
    }

    fn line(&mut self) -> String {
        self.lines.next().unwrap().unwrap()
    }

    fn aside(&mut self) -> String {
        self.asides.next().unwrap().unwrap()
    }

    /// Ctrl-C, and what it says then.
    fn interrupt(mut self) -> (String, Option<i32>) {
        let pid = Pid::from_raw(self.child.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let last = self.line();
        assert!(self.lines.next().is_none());
        (last, self.child.wait().unwrap().code())
    }
}

fn send(folder: &std::path::Path, port: u16, event_type: &str, payload: &str) {
    let content = match serde_json::from_str::<Value>(payload) {
        Ok(_) => "application/json",
        Err(_) => "text/plain",
    };
    let done = paceline(folder)
        .args(["event", "send", payload, "--type", event_type])
        .args(["--content-type", content])
        .args(["--url", &format!("http://127.0.0.1:{port}")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_events_go_to_a_local_program_in_order_and_signed() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = Server::start(folder.path(), port);
    let (receiver, mut requests) = program().await;
    send(folder.path(), port, "order.paid", "\"before\"");
    let to = receiver.url(1);
    let mut listening = Listening::start(
        folder.path(),
        port,
        &[
            "--forward-to",
            &to,
            "--secret",
            SECRET,
            "--type",
            "order.paid",
        ],
    );
    assert!(listening.aside().contains("Ctrl-C ends it"));
    let payloads = ["{ \"a\": 1 }", "2", "no JSON", "4"];
    for payload in payloads {
        send(folder.path(), port, "order.paid", payload);
        send(folder.path(), port, "another", "0");
    }
    let verifier = Webhook::new(SECRET).unwrap();
    for (payload, status) in payloads.into_iter().zip([201, 201, 500, 201]) {
        let line = listening.line();
        let (headers, body) = (requests.try_recv()).unwrap_or_else(|_| panic!("{line}"));
        assert_eq!(String::from_utf8(body.clone()).unwrap(), payload);
        verifier.verify(&body, &headers).unwrap();
        assert_eq!(headers["paceline-try"], "1");
        let id = headers["webhook-id"].to_str().unwrap();
        assert!(
            line.starts_with(&format!("{id}  order.paid  {status}  ")),
            "{line}"
        );
        assert!(line.ends_with(" ms"), "{line}");
    }
    let (last, code) = listening.interrupt();
    assert_eq!(last, "4 events forwarded, 3 of them answered with 2xx");
    assert_eq!(code, Some(0));
    assert!(requests.try_recv().is_err(), "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_looks_for_the_headers_of_svix_gets_those() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = Server::start(folder.path(), port);
    let (receiver, mut requests) = program().await;
    let to = receiver.url(1);
    let svix = ["--signature-prefix", "svix-", "--secret", SECRET];
    let arguments = [&["--forward-to", &to], &svix[..]].concat();
    let mut listening = Listening::start(folder.path(), port, &arguments);
    assert!(listening.aside().contains("Ctrl-C ends it"));
    send(folder.path(), port, "order.paid", "1");
    let line = listening.line();
    let (headers, body) = (requests.try_recv()).unwrap_or_else(|_| panic!("{line}"));
    assert!(!headers.contains_key("webhook-id"), "{headers:?}");
    let verifier = Webhook::new(SECRET).unwrap();
    verifier.verify(&body, &unbranded(&headers)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_when_program_and_api_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let server = Server::start(folder.path(), port);
    let nobody = format!("http://127.0.0.1:{}/hook", free_port());
    let mut listening = Listening::start(
        folder.path(),
        port,
        &["--forward-to", &nobody, "--output", "json"],
    );
    assert!(listening.aside().contains("Ctrl-C ends it"));
    send(folder.path(), port, "a", "1");
    let line: Value = serde_json::from_str(&listening.line()).unwrap();
    assert_eq!(
        (&line["type"], &line["status"]),
        (&"a".into(), &Value::Null)
    );
    assert!(
        line["error"]
            .as_str()
            .unwrap()
            .starts_with("connect failed"),
        "{line}"
    );

    assert_eq!(server.stop(), Some(0));
    let aside = listening.aside();
    assert!(
        aside.contains("cannot reach the API") && aside.contains("looks again in 2 s"),
        "{aside}"
    );
    let _server = Server::start(folder.path(), port);
    send(folder.path(), port, "b", "2");
    let line: Value = serde_json::from_str(&listening.line()).unwrap();
    assert_eq!(line["type"], "b");
    let (last, code) = listening.interrupt();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&last["forwarded"], &last["succeeded"]),
        (&2.into(), &0.into())
    );
    assert_eq!(code, Some(0));
}

#[test]
fn what_it_cannot_obey_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], code: i32, says: &str| {
        let done = paceline(folder.path())
            .args(["listen", "--url", "http://127.0.0.1:1", "--api-key", "k"])
            .args(arguments)
            .output()
            .unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(code), "{text}");
        assert!(text.contains(says), "{text}");
    };
    let to = ["--forward-to", "http://127.0.0.1:1/hook"];
    refused(&[], 2, "--forward-to <URL>");
    refused(
        &["--forward-to", "ftp://127.0.0.1/"],
        2,
        "--forward-to: refused: ",
    );
    let secret = [&to[..], &["--secret", "s"]].concat();
    refused(
        &secret,
        2,
        "--secret (PACELINE_SECRET): must begin with whsec_",
    );
    refused(&to, 1, "cannot reach the API");
}
