//! A key is typed once: `login`, what follows from it, and `logout`.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

use crate::process::{Server, free_port, paceline};

/// A server, and somebody on another machine: nothing of the server's folder is there.
struct Desk {
    url: String,
    key: String,
    home: tempfile::TempDir,
    _server: Server,
    _folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let server = Server::start(folder.path(), port);
        let key = fs::read_to_string(folder.path().join("paceline.db.key")).unwrap();
        Self {
            url: format!("http://127.0.0.1:{port}"),
            key: key.trim().to_owned(),
            home: tempfile::tempdir().unwrap(),
            _server: server,
            _folder: folder,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = paceline(self.home.path());
        command.env("HOME", self.home.path()).args(arguments);
        command
    }

    fn typed(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Whoever refuses it at once reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    fn login(&self, profile: &str) {
        let login = ["login", "--url", &self.url, "--profile", profile];
        let output = self.typed(&login, &format!("{}\n", self.key));
        assert!(output.status.success(), "{output:?}");
    }

    fn file(&self) -> std::path::PathBuf {
        self.home.path().join(".config/paceline/profiles.toml")
    }
}

#[track_caller]
fn said(output: &Output, code: i32, says: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in says {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn who_has_logged_in_names_neither_place_nor_key() {
    let desk = Desk::new();
    let list = ["destination", "list"];
    let run = |command: &mut Command| command.output().unwrap();
    let before = run(&mut desk.command(&list));
    said(&before, 1, &["no API key", "paceline login"]);

    let login = ["login", "--url", &desk.url, "--output", "json"];
    let output = desk.typed(&login, &format!("  {}\n", desk.key));
    assert!(output.status.success(), "{output:?}");
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["profile"], "default");
    assert_eq!(shown["file"], desk.file().to_str().unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&desk.file()), 0o600);
    assert_eq!(mode(desk.file().parent().unwrap()), 0o700);
    let all = [&output.stdout[..], &output.stderr].concat();
    assert!(!String::from_utf8(all).unwrap().contains(&desk.key));
    said(&run(&mut desk.command(&list)), 0, &[]);

    // Of another name, and which of them is meant.
    desk.login("test");
    said(
        &run(desk.command(&list).args(["--profile", "test"])),
        0,
        &[],
    );
    let stranger = run(desk.command(&list).env("PACELINE_PROFILE", "prod"));
    let says = "there is no profile prod: `paceline login --profile prod` makes it; there are: \
                default, test";
    said(&stranger, 2, &["--profile (PACELINE_PROFILE)", says]);

    // What is said wins, and the key goes to no other place.
    let named = ["--profile", "test"];
    let wrong = run(desk
        .command(&list)
        .args(named)
        .env("PACELINE_API_KEY", "wrong"));
    said(
        &wrong,
        1,
        &[&desk.url, "refused the API key: set PACELINE_API_KEY"],
    );
    let elsewhere = run(desk
        .command(&list)
        .args(named)
        .args(["--url", "http://127.0.0.1:1"]));
    said(
        &elsewhere,
        2,
        &["--url (PACELINE_URL): the key of the profile test is for"],
    );

    let logout = desk.command(&["logout"]).output().unwrap();
    said(&logout, 0, &[]);
    said(&run(&mut desk.command(&list)), 1, &["no API key"]);
    said(&run(desk.command(&list).args(named)), 0, &[]);
    let again = desk.command(&["logout"]).output().unwrap();
    said(
        &again,
        2,
        &["there is no profile default", "there are: test"],
    );
}

#[test]
fn a_key_that_is_refused_is_not_kept() {
    let desk = Desk::new();
    let login = ["login", "--url", &desk.url];
    said(&desk.typed(&login, "wrong\n"), 1, &["refused the API key"]);
    said(
        &desk.typed(&login, " \n"),
        2,
        &["--api-key (PACELINE_API_KEY): no key was given"],
    );
    said(
        &desk.typed(&login, &"k".repeat(2_000)),
        2,
        &["more than 1024 bytes"],
    );
    let clear = ["login", "--url", "http://192.0.2.1"];
    said(&desk.typed(&clear, "key\n"), 2, &["in clear to 192.0.2.1"]);
    let name = ["login", "--url", &desk.url, "--profile", "../x"];
    said(&desk.typed(&name, "key\n"), 2, &["letters, digits"]);
    assert!(!desk.file().exists());

    // Another key for the same API; one that is no longer good says what to do.
    desk.login("default");
    let text = fs::read_to_string(desk.file()).unwrap();
    fs::write(desk.file(), text.replace(&desk.key, "revoked")).unwrap();
    let list = desk.command(&["destination", "list"]).output().unwrap();
    said(
        &list,
        1,
        &["of the profile default: `paceline login --profile default` keeps another"],
    );
    let output = desk.typed(&["login"], &desk.key);
    assert!(output.status.success(), "{output:?}");
    let list = desk.command(&["destination", "list"]).output().unwrap();
    said(&list, 0, &[]);
    fs::set_permissions(desk.file(), fs::Permissions::from_mode(0o644)).unwrap();
    let list = desk.command(&["destination", "list"]).output().unwrap();
    said(&list, 1, &["others may read it", "chmod 600"]);
}

#[test]
fn a_key_that_may_not_look_is_kept_and_told() {
    let desk = Desk::new();
    desk.login("default");
    let json = |arguments: &[&str]| -> Value {
        let output = desk
            .command(arguments)
            .args(["--output", "json"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let tenant = json(&["tenant", "create", "shop"]);
    let tenant = tenant["id"].as_str().unwrap();
    let made = json(&["key", "create", tenant, "--scope", "ingest"]);
    let login = ["login", "--url", &desk.url, "--profile", "shop"];
    let output = desk.typed(&login, made["key"].as_str().unwrap());
    said(
        &output,
        0,
        &["the key is good, but it has not the scope `read`"],
    );
    let send = ["event", "send", "1", "--type", "a", "--profile", "shop"];
    said(&desk.command(&send).output().unwrap(), 0, &[]);
}

#[test]
fn on_a_terminal_it_asks_and_does_not_show_what_is_typed() {
    let desk = Desk::new();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new())
        .unwrap()
        .into_string()
        .unwrap();
    let mut terminal = File::from(terminal);
    let open = || {
        Stdio::from(
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(&name)
                .unwrap(),
        )
    };
    let mut command = desk.command(&["login", "--url", &desk.url]);
    command.stdin(open()).stderr(open()).stdout(open());
    let mut child = command.spawn().unwrap();
    // Ours are closed with it: what is read ends where the program does.
    drop(command);
    let mut said = Vec::new();
    let mut part = [0; 4_096];
    let asked = format!("API key for {}/: ", desk.url);
    while !String::from_utf8_lossy(&said).contains(&asked) {
        let read = terminal.read(&mut part).unwrap();
        said.extend_from_slice(&part[..read]);
    }
    terminal
        .write_all(format!("{}\n", desk.key).as_bytes())
        .unwrap();
    while let Ok(read @ 1..) = terminal.read(&mut part) {
        said.extend_from_slice(&part[..read]);
    }
    let said = String::from_utf8(said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert!(said.contains("logged in to"), "{said}");
    assert!(!said.contains(&desk.key), "{said}");
}
