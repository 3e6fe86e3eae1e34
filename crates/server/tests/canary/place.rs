//! A server in a folder of its own, and what it says.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Polls for up to a minute: a slow machine is no failure.
const POLLS: usize = 1_200;

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

/// Where nobody listens.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A running server.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    child: Child,
    port: u16,
}

/// Ends the server even if the test fails.
impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    /// `paceline serve`, which logs all that it can, with these variables.
    pub(crate) fn start(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let file = |name| File::create(folder.path().join(name)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_paceline"))
            .current_dir(folder.path())
            .env_clear()
            .envs(variables.iter().copied())
            .args(["--log", "trace", "serve", "--allow-http"])
            .args(["--allow-networks", "localhost:*"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        let place = Self {
            folder,
            child,
            port,
        };
        poll("ready", || {
            let answer = place.try_call("GET", "/readyz", "", "")?;
            answer.contains("\"ready\":true").then_some(())
        });
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The key that it made.
    pub(crate) fn key(&self) -> String {
        let key = fs::read_to_string(self.path().join("paceline.db.key")).unwrap();
        key.trim().to_owned()
    }

    /// One request with these header lines; the whole answer.
    pub(crate) fn call(&self, method: &str, path: &str, lines: &str, body: &str) -> String {
        self.try_call(method, path, lines, body).unwrap()
    }

    fn try_call(&self, method: &str, path: &str, lines: &str, body: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\n{lines}content-length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// The same with the server's key, of a request that succeeds; as JSON.
    pub(crate) fn done(&self, method: &str, path: &str, lines: &str, body: &Value) -> Value {
        let lines = format!("authorization: Bearer {}\r\n{lines}", self.key());
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let answer = self.call(method, path, &lines, &body);
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        let (_, json) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(json).unwrap_or(Value::Null)
    }

    /// Waits until the event's attempts are as wanted.
    pub(crate) fn attempts(&self, event: &Value, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/events/{}", event["id"].as_str().unwrap());
        poll("attempts", || {
            let shown = self.done("GET", &path, "", &Value::Null);
            wanted(&shown["attempts"]).then_some(shown)
        })
    }

    /// Ends it in order. Its exit code, and all that it printed.
    pub(crate) fn stop(&mut self) -> (Option<i32>, String) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        let read = |name| fs::read_to_string(self.path().join(name)).unwrap();
        (code, read("stdout") + &read("stderr"))
    }
}
