//! Where the demo listens: as it is told, or at the next port that is free. It is
//! `serve`, and answers what `serve` answers.

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::process::{free_port, get, paceline, poll};

/// What it says until its dashboard is there, and the demo, which goes on.
struct Demo {
    said: String,
    process: Child,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(self.process.id() as i32).unwrap();
        // So that it takes its files away.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.process.wait();
    }
}

fn demo(folder: &Path, ports: &[&str]) -> Command {
    let mut command = paceline(folder);
    // What it makes goes with the test.
    command.env("TMPDIR", folder).args(["demo"]).args(ports);
    command
}

fn begun(folder: &Path, ports: &[&str]) -> Demo {
    let mut process = demo(folder, ports).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(process.stdout.take().unwrap());
    while !said.contains("Dashboard, while it runs: ") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    // It goes on to write, and nobody is there to read it.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Demo { said, process }
}

/// The port that it says its dashboard is at.
fn port(said: &str) -> u16 {
    let (_, rest) = said
        .split_once("Dashboard, while it runs: http://127.0.0.1:")
        .unwrap();
    rest.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn it_takes_the_next_port_where_the_usual_one_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    // Ours, or somebody else's: it is in use.
    let _in_use = TcpListener::bind("127.0.0.1:8090");
    let demo = begun(folder.path(), &[]);
    let port = port(&demo.said);
    assert_ne!(port, 8_090);
    let says = format!("Port 8090 is in use: the dashboard is at {port}.");
    assert!(demo.said.contains(&says), "{}", demo.said);
    let page = get(port, "/dashboard/sign-in").unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
}

#[test]
fn it_listens_where_it_is_told_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (dashboard, receivers) = (free_port(), free_port());
    let words = [dashboard, receivers].map(|port| port.to_string());
    let ports = ["--port", &words[0], "--receiver-port", &words[1]];
    let running = begun(folder, &ports);
    assert_eq!(port(&running.said), dashboard);
    assert!(!running.said.contains("in use"), "{}", running.said);
    TcpStream::connect(("127.0.0.1", receivers)).unwrap();
    for (flag, port) in [("--port", dashboard), ("--receiver-port", receivers)] {
        let again = demo(folder, &[flag, &port.to_string()]).output().unwrap();
        let error = String::from_utf8(again.stderr).unwrap();
        assert_eq!(again.status.code(), Some(2), "{error}");
        let says = format!("{flag}: port {port} is in use: name another, or leave it out");
        assert!(error.contains(&says), "{error}");
    }
}

/// The survey is one of the loops that only `serve` has, and the last to be heard of.
#[test]
fn it_is_serve_with_all_its_loops() {
    let folder = tempfile::tempdir().unwrap();
    let demo = begun(folder.path(), &["--port", "0"]);
    let port = port(&demo.said);
    let ready = get(port, "/readyz").unwrap();
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    let surveyed = || {
        let metrics = get(port, "/metrics").unwrap();
        assert!(metrics.starts_with("HTTP/1.1 200"), "{metrics}");
        let is_heard = metrics.contains("\npaceline_survey_timestamp_seconds ")
            && metrics.contains("role=\"serve\"");
        is_heard.then_some(())
    };
    poll("the survey is heard of", surveyed);
}
