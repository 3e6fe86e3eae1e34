//! What the tour needs around it: a folder, the built program, ports of its
//! own, programs in Python, and an HTTP client instead of `curl`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::ask::{ask, send};

/// Polls for up to twenty seconds: a slow machine is no failure.
const POLLS: usize = 400;

/// How long an event may be on its way.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    /// The shell's, exported or not.
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) api: String,
    /// Where the first receiver is, and where the customer's own is.
    pub(crate) receiver: String,
    pub(crate) second: String,
    /// What each of them prints, by where it is.
    printed: BTreeMap<String, Receiver<String>>,
    running: Vec<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Addresses where nobody is.
pub(crate) fn free<const N: usize>() -> [String; N] {
    let taken = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    taken.map(|one| one.local_addr().unwrap().to_string())
}

pub(crate) fn port(address: &str) -> u16 {
    address.rsplit(':').next().unwrap().parse().unwrap()
}

impl Stage {
    pub(crate) fn new() -> Self {
        let [api, receiver, second] = free();
        Self {
            folder: tempfile::tempdir().unwrap(),
            variables: BTreeMap::new(),
            api,
            receiver,
            second,
            printed: BTreeMap::new(),
            running: Vec::new(),
        }
    }

    /// The API's.
    pub(crate) fn port(&self) -> u16 {
        port(&self.api)
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
        self.running.push(command.spawn().unwrap());
        poll("ready", || {
            let (status, _, _) = send(self.port(), ("GET", "/readyz"), &[], "").ok()?;
            (status == 200).then_some(())
        });
    }

    /// A program of the repository's, started in its folder.
    fn python(&self, arguments: &[String]) -> Command {
        let mut command = Command::new("python3");
        command
            .args(arguments)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if let Some(key) = self.variables.get("PACELINE_API_KEY") {
            command.env("PACELINE_API_KEY", key);
        }
        command
    }

    /// Leaves a receiver running here, and waits until it listens.
    pub(crate) fn receive(&mut self, at: &str, arguments: &[String]) {
        let mut command = self.python(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.running.push(child);
        let (sender, printed) = sync_channel(100);
        // Ends with what it reads.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        self.printed.insert(at.to_owned(), printed);
        poll("it listens", || TcpStream::connect(at).ok());
    }

    /// What a program prints that runs to its end, which has to be good.
    pub(crate) fn program(&self, arguments: &[String]) -> String {
        let output = self.python(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
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
                "-H" => headers.push(rest.next().unwrap().split_once(": ").unwrap()),
                "-d" => body.clone_from(rest.next().unwrap()),
                given if given.starts_with("http://") => given.clone_into(&mut url),
                other => panic!("curl {other} is not understood"),
            }
        }
        let path = url.strip_prefix(&format!("http://{}", self.api)).unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let answer = send(self.port(), (method, path), &headers, &body);
        let (status, _, answer) = answer.unwrap();
        assert!((200..300).contains(&status), "{url}: {status} {answer}");
        serde_json::from_str(&answer).unwrap()
    }

    /// The id of the next event that arrives here, and what its receiver makes of it.
    pub(crate) fn arrival(&self, at: &str) -> (String, String) {
        let line = self.printed[at].recv_timeout(PATIENCE).unwrap();
        let mut words = line.split(' ').map(str::to_owned);
        (words.next().unwrap(), words.next().unwrap())
    }

    /// Asks the API until it answers so.
    pub(crate) fn wait_for(&self, path: &str, wanted: impl Fn(&Value) -> bool) {
        let key = &self.variables["PACELINE_API_KEY"];
        poll(path, || {
            let (_, answer) = ask((self.port(), key.as_str()), "GET", path, None).ok()?;
            let answer: Value = serde_json::from_str(&answer).unwrap();
            wanted(&answer).then_some(())
        });
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
