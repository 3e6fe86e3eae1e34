//! What the tour needs around it: a folder, the built program, ports of its
//! own, a receiver, and an HTTP client instead of `curl`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// Polls for up to twenty seconds: a slow machine is no failure.
const POLLS: usize = 400;

/// How long an event may be on its way.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    /// The shell's, exported or not.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) api: String,
    pub(crate) receiver: String,
    arrivals: Receiver<String>,
    server: Option<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = listener.local_addr().unwrap().to_string();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let api = free.local_addr().unwrap().to_string();
        let (sender, arrivals) = sync_channel(100);
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                if sender.send(receive(stream.unwrap())).is_err() {
                    return;
                }
            }
        });
        Self {
            folder: tempfile::tempdir().unwrap(),
            variables: BTreeMap::new(),
            api,
            receiver,
            arrivals,
            server: None,
        }
    }

    fn paceline(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PACELINE_LISTEN", &self.api)
            .env("PACELINE_URL", format!("http://{}", self.api));
        if let Some(key) = self.variables.get("PACELINE_API_KEY") {
            command.env("PACELINE_API_KEY", key);
        }
        command
    }

    /// Leaves it running, and waits until it is ready.
    pub(crate) fn serve(&mut self, arguments: &[String]) {
        let mut command = self.paceline(arguments);
        command.stdout(Stdio::null()).env("PACELINE_LOG", "warn");
        self.server = Some(command.spawn().unwrap());
        let api = self.api.clone();
        poll("ready", || {
            let (status, _) = http(&api, "GET", "/readyz", &[], "")?;
            (status == 200).then_some(())
        });
    }

    /// Runs to its end, which has to be good.
    pub(crate) fn run(&self, arguments: &[String]) -> Output {
        let output = self.paceline(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    /// A JSON answer of the API, which has to be a good one.
    pub(crate) fn curl(&self, arguments: &[String]) -> Value {
        let (mut headers, mut body, mut url) = (Vec::new(), String::new(), String::new());
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "-s" => {}
                "-H" => headers.push(rest.next().unwrap().clone()),
                "-d" => body.clone_from(rest.next().unwrap()),
                given if given.starts_with("http://") => given.clone_into(&mut url),
                other => panic!("curl {other} is not understood"),
            }
        }
        let path = url.strip_prefix(&format!("http://{}", self.api)).unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let (status, answer) = http(&self.api, method, path, &headers, &body).unwrap();
        assert!((200..300).contains(&status), "{url}: {status} {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The id of the next event that arrives.
    pub(crate) fn arrival(&self) -> String {
        self.arrivals.recv_timeout(PATIENCE).unwrap()
    }

    /// Asks the API until it answers so.
    pub(crate) fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) {
        let key = &self.variables["PACELINE_API_KEY"];
        let headers = [format!("Authorization: Bearer {key}")];
        poll(path, || {
            let (_, answer) = http(&self.api, "GET", path, &headers, "")?;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            wanted(&answer).then_some(())
        });
    }
}

#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within time")
}

/// Status and body; none if nobody answers.
fn http(
    address: &str,
    method: &str,
    path: &str,
    headers: &[String],
    body: &str,
) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let headers: String = headers.iter().map(|one| format!("{one}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nhost: {address}\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Takes one request, answers 204 and returns its `webhook-id`.
fn receive(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut length, mut id) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = line.strip_prefix("webhook-id:") {
            value.trim().clone_into(&mut id);
        }
        if line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).unwrap();
    id
}
