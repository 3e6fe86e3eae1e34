//! Who is told what, by the address that they reach.

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use server::listening::Bounds;
use tokio::time::Instant;

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

/// Resident memory of a process, in MiB.
fn memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<usize>().unwrap() / 1024
}

/// Heads that never end: what hyper buffers by itself is 400 KiB of each, and it
/// waits for them as long as it is let. As many as there may be fit into the memory that
/// the manifests give the API; here is a fifth of them.
#[test]
fn strangers_cost_little_memory_and_do_not_hold_up_the_end() {
    const STRANGERS: usize = 2_000;
    const MEMORY_MIB: usize = 512;
    let most = Bounds::default().connections;
    server::open_files::raise_limit();
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let bound = (STRANGERS + 100).to_string();
    let server = serve(
        folder.path(),
        port,
        &["--max-connections-per-address", &bound],
    );
    let before = memory(server.id());
    let half = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "a".repeat(15_000));
    let strangers: Vec<TcpStream> = (0..STRANGERS)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(half.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(status(port, "/livez"), "200");
    let grown = memory(server.id()).saturating_sub(before);
    let with_all = before + grown * most / STRANGERS;
    assert!(
        with_all < MEMORY_MIB,
        "{before} MiB, and {grown} for {STRANGERS} strangers: {with_all} for {most}"
    );

    let began = Instant::now();
    assert_eq!(server.stop(), Some(0), "drained");
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(9),
        "{took:?}, of a grace of 25 s"
    );
    drop(strangers);
}
