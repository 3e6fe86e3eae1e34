//! Who is told what, by the address that they reach.

use std::process::Stdio;

use crate::process::{Server, free_port, get, paceline, poll};

/// With a schedule that nobody serves: a part that is not ready, and why is the
/// operator's affair.
fn serve(folder: &std::path::Path, port: u16, more: &[&str]) -> Server {
    let mut command = paceline(folder);
    let command = command
        .args(["--log", "off", "serve", "--listen"])
        .arg(format!("127.0.0.1:{port}"))
        .args(["--schedule-url", "redis://127.0.0.1:1/"])
        .args(more)
        .stdout(Stdio::null());
    let server = Server::of(command);
    poll("it answers", || get(port, "/livez"));
    server
}

fn status(port: u16, path: &str) -> String {
    let answer = get(port, path).unwrap();
    answer.split_whitespace().nth(1).unwrap().to_owned()
}

#[test]
fn metrics_and_reasons_are_only_at_the_address_that_is_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let (port, inside) = (free_port(), free_port());
    let address = format!("127.0.0.1:{inside}");
    let _server = serve(folder.path(), port, &["--metrics-listen", &address]);

    assert_eq!(status(port, "/metrics"), "404");
    assert_eq!(status(inside, "/metrics"), "200");
    assert_eq!(status(port, "/livez"), "200");
    assert_eq!(status(inside, "/livez"), "200");
    assert_eq!(status(inside, "/work"), "200");
    assert_eq!(status(inside, "/v1/destinations"), "404");

    for at in [port, inside] {
        let answer = get(at, "/readyz").unwrap();
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        assert!(answer.contains(r#""store":{"ready":true}"#), "{answer}");
        assert!(answer.contains(r#""schedule":{"ready":false"#), "{answer}");
        assert_eq!(answer.contains("problem"), at == inside, "{answer}");
    }
}

#[test]
fn without_such_an_address_metrics_stay_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let _server = serve(folder.path(), port, &[]);
    assert_eq!(status(port, "/metrics"), "200");
    assert!(!get(port, "/readyz").unwrap().contains("problem"));
}
