//! An installation, as whoever operates it has one: a folder, settings in its
//! environment, processes, and a receiver. What a page shows is run by a shell there,
//! with the programs that it names.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use server::receiver::{Behaviour, Receiver};
use tokio::runtime::Runtime;

use crate::ask::{ask, send};
use crate::stage::{free, poll, port};

/// The folder of programs that stand in for others.
const STAND_INS: &str = "stand-ins";

/// A role, and what its process is told beside the others.
pub(crate) type Role = (&'static str, Vec<(&'static str, String)>);

pub(crate) struct Installation {
    pub(crate) receiver: Receiver,
    /// Of every process and of the shell.
    pub(crate) settings: BTreeMap<&'static str, String>,
    roles: Vec<Role>,
    running: Vec<Process>,
    /// Where the API is.
    api: String,
    /// Where programs are looked for.
    programs: OsString,
    folder: tempfile::TempDir,
}

struct Process {
    role: &'static str,
    child: Child,
}

/// `kill -9`.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Installation {
    /// One that has these roles when it is started. Other programs than `paceline` are
    /// looked for in these folders before the others.
    pub(crate) fn new(roles: Vec<Role>, folders: &[PathBuf]) -> Self {
        let [api] = free();
        let settings = [
            ("PACELINE_ALLOW_HTTP", "true".to_owned()),
            ("PACELINE_ALLOW_NETWORKS", "localhost:*".to_owned()),
            ("PACELINE_LOG", "warn".to_owned()),
            // A request that is not answered is under way as long as a test looks.
            ("PACELINE_REQUEST_TIMEOUT", "30s".to_owned()),
            ("PACELINE_URL", format!("http://{api}")),
        ];
        let folder = tempfile::tempdir().unwrap();
        let ours = Path::new(env!("CARGO_BIN_EXE_paceline")).parent().unwrap();
        let path = std::env::var_os("PATH").unwrap();
        let first = [folder.path().join(STAND_INS), ours.to_owned()];
        let first = first.into_iter().chain(folders.iter().cloned());
        let programs = std::env::join_paths(first.chain(std::env::split_paths(&path)));
        let runtime = Runtime::new().unwrap();
        let receiver = runtime.block_on(Receiver::start(Behaviour::ACCEPT, 1_000));
        Self {
            receiver: receiver.unwrap(),
            settings: BTreeMap::from(settings),
            roles,
            running: Vec::new(),
            api,
            programs: programs.unwrap(),
            folder,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a script in the place of a program that cannot run here.
    pub(crate) fn stand_in(&self, program: &str, script: &str) {
        let folder = self.path().join(STAND_INS);
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(program);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.path())
            .env_clear()
            .env("PATH", &self.programs)
            .env("HOME", self.path())
            .envs(&self.settings);
        command
    }

    fn shell(&self, lines: &str) -> Command {
        let mut command = self.command("bash");
        command.args(["-euo", "pipefail", "-c", lines]);
        command
    }

    /// What lines of a page say, which have to end well.
    #[track_caller]
    pub(crate) fn run(&self, lines: &str) -> String {
        said(lines, self.shell(lines).output().unwrap())
    }

    /// What SQL says in the store's own shell.
    #[track_caller]
    pub(crate) fn sql(&self, sql: &str) -> String {
        let shell = match self.settings.contains_key("PACELINE_DATABASE_URL") {
            true => "psql -qAtX -v ON_ERROR_STOP=1 \"$PACELINE_DATABASE_URL\" -c \"$SQL\"",
            false => "sqlite3 -bail -cmd '.timeout 5000' paceline.db \"$SQL\"",
        };
        said(sql, self.shell(shell).env("SQL", sql).output().unwrap())
    }

    /// Starts each process anew, one after the other, and waits until it is ready.
    pub(crate) fn start(&mut self) {
        self.start_where(|_| true);
    }

    /// Those that open secrets, or let somebody in.
    pub(crate) fn start_with_other_keys(&mut self) {
        self.start_where(|role| role != "scheduler");
    }

    fn start_where(&mut self, is_meant: impl Fn(&str) -> bool) {
        let meant = self.roles.iter().filter(|(role, _)| is_meant(role));
        for (role, own) in meant.cloned().collect::<Vec<_>>() {
            self.running.retain(|process| process.role != role);
            self.launch(role, &own);
        }
    }

    fn launch(&mut self, role: &'static str, own: &[(&'static str, String)]) {
        let listen = match role {
            "api" | "serve" => self.api.clone(),
            _ => {
                let [address] = free();
                address
            }
        };
        let mut command = self.command(env!("CARGO_BIN_EXE_paceline"));
        command.arg(role);
        self.spawn(role, command, &listen, own);
    }

    /// Leaves what a line of a page starts running, and says where, once it is ready.
    pub(crate) fn leave(&mut self, line: &str, own: &[(&'static str, String)]) -> String {
        let [listen] = free();
        let command = self.shell(&format!("exec {line}"));
        self.spawn("beside", command, &listen, own);
        listen
    }

    fn spawn(
        &mut self,
        role: &'static str,
        mut command: Command,
        listen: &str,
        own: &[(&'static str, String)],
    ) {
        command
            .env("PACELINE_LISTEN", listen)
            .envs(own.iter().cloned())
            .stdout(Stdio::null());
        let child = command.spawn().unwrap();
        self.running.push(Process { role, child });
        poll(role, || {
            let (status, _, _) = send(port(listen), ("GET", "/readyz"), &[], "").ok()?;
            (status == 200).then_some(())
        });
    }

    /// Ends all processes, whatever they are at.
    pub(crate) fn stop(&mut self) {
        self.running.clear();
    }

    /// The API's key: its setting, or the one that it made.
    pub(crate) fn key(&self) -> String {
        let set = self.settings.get("PACELINE_API_KEY").cloned();
        set.unwrap_or_else(|| {
            let kept = fs::read_to_string(self.path().join("paceline.db.key"));
            kept.unwrap().trim().to_owned()
        })
    }

    /// What the API answers to somebody with this key.
    pub(crate) fn answer(&self, key: &str, path: &str) -> (u16, Value) {
        let (status, text) = ask((port(&self.api), key), "GET", path, None).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Makes a destination of this name, which sends to the receiver's place of this number.
    pub(crate) fn destination(&self, name: &str, place: u32) {
        let url = self.receiver.url(place);
        self.run(&format!(
            "paceline destination create {url} --name {name} --per-second 50"
        ));
        // What fails is tried again at once.
        self.run(&format!(
            "paceline destination retries {name} --delay 100ms"
        ));
    }

    /// The id of an event that is accepted for a destination.
    pub(crate) fn event_for(&self, name: &str) -> String {
        let send = format!("paceline event send --destination {name} '{{\"for\": \"{name}\"}}'");
        let sent = self.run(&format!("{send} --output json"));
        let sent: Value = serde_json::from_str(&sent).unwrap();
        sent["id"].as_str().unwrap().to_owned()
    }

    /// Waits until an event has been delivered, which the store says as well.
    #[track_caller]
    pub(crate) fn await_delivery(&self, event: &str) {
        let path = format!("/v1/events/{event}");
        poll(&path, || {
            let (status, found) = self.answer(&self.key(), &path);
            assert_eq!(status, 200, "{path}: {found}");
            let attempts = found["attempts"].as_array().unwrap();
            let is_over = attempts.iter().any(|one| one["state"] == "succeeded");
            is_over.then_some(())
        });
    }

    /// How often an event has arrived.
    pub(crate) fn arrivals(&self, event: &str) -> usize {
        let arrivals = self.receiver.record().arrivals;
        let of_it = arrivals.iter().filter(|one| {
            let id = one.event.map(|id| id.to_string());
            id.as_deref() == Some(event)
        });
        of_it.count()
    }
}

#[track_caller]
fn said(what: &str, output: Output) -> String {
    let (out, err) = (output.stdout, output.stderr);
    let out = String::from_utf8(out).unwrap();
    let err = String::from_utf8_lossy(&err);
    assert!(output.status.success(), "{what}\n{out}\n{err}");
    out
}
