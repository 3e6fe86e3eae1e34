//! The real program, `paceline serve`, and those who talk to it.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::ask::{ask, send};
use crate::page::{Page, between};

pub(crate) const KEY: &str = "the-key-of-the-operator";
const SECRET_KEY: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Polls for up to a minute: a slow machine is no failure.
const POLLS: usize = 1_200;

/// A server, and the folder that it was started in.
pub(crate) struct Site {
    pub(crate) port: u16,
    server: Child,
    folder: tempfile::TempDir,
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Looks until something is there.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    wait_until(what, || look().ok_or(String::new()))
}

/// Looks until it is so; fails with what was seen last.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
#[track_caller]
pub(crate) fn wait_until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let mut seen = String::new();
    for _ in 0..POLLS {
        match look() {
            Ok(found) => return found,
            Err(otherwise) => seen = otherwise,
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("{what}: not within time: {seen}")
}

impl Site {
    /// Over the store of this URL, once it is ready; `None` for the file that it
    /// makes in its folder.
    pub(crate) fn start(store: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let made = |name| File::create(folder.path().join(name)).unwrap();
        let mut command = paceline(folder.path(), KEY);
        command
            .env("PACELINE_MANAGE_PER_SECOND", "1000000")
            .env("PACELINE_TENANT_MANAGE_PER_SECOND", "1000000")
            .env("PACELINE_METRICS_TOP", "100")
            .env("PACELINE_PUBLIC_URL", public(port))
            .args(["--log", "info", "serve", "--allow-http"])
            .args(["--allow-networks", "127.0.0.1:*"])
            .args(["--request-timeout", "3s"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdout(made("said"))
            .stderr(made("log"));
        if let Some(store) = store {
            migrated(store, folder.path());
            command.env("PACELINE_DATABASE_URL", store);
            command.env("PACELINE_SECRET_KEYS", SECRET_KEY);
        }
        let site = Self {
            port,
            server: command.spawn().unwrap(),
            folder,
        };
        wait_for("ready", || {
            let ready = send(site.port, ("GET", "/readyz"), &[], "").ok()?;
            ready.2.contains("\"ready\":true").then_some(())
        });
        site
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What its customers' links begin with: another name of the same place.
    pub(crate) fn public(&self) -> String {
        public(self.port)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it wrote: `said` to its terminal, `log` to its log.
    pub(crate) fn wrote(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap()
    }

    /// Whatever the API answers.
    pub(crate) fn answer(&self, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = (!body.is_null()).then_some(body);
        let (status, text) = ask((self.port, key), method, path, body).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// What it answers to what it does.
    #[track_caller]
    pub(crate) fn api(&self, key: &str, method: &str, path: &str, body: &Value) -> Value {
        let (status, json) = self.answer(key, method, path, body);
        assert!(status < 300, "{method} {path}: {status} {json}");
        json
    }

    #[track_caller]
    pub(crate) fn get(&self, key: &str, path: &str) -> Value {
        self.api(key, "GET", path, &Value::Null)
    }

    pub(crate) fn metrics(&self) -> String {
        send(self.port, ("GET", "/metrics"), &[], "").unwrap().2
    }

    /// A command of somebody with this key, whether it succeeds or not.
    pub(crate) fn tried(&self, key: &str, arguments: &[&str]) -> Said {
        let mut command = paceline(self.folder.path(), key);
        command.env("PACELINE_URL", self.origin()).args(arguments);
        said(&mut command)
    }

    /// What a command prints that succeeds.
    #[track_caller]
    pub(crate) fn run(&self, key: &str, arguments: &[&str]) -> String {
        let said = self.tried(key, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    #[track_caller]
    pub(crate) fn json(&self, key: &str, arguments: &[&str]) -> Value {
        let said = self.run(key, &[arguments, &["--output", "json"]].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// A browser in which somebody has signed in.
    pub(crate) fn sign_in(&self, key: &str) -> Browser<'_> {
        let form = form(&[("key", key)]);
        self.browser("/dashboard/sign-in", &form)
    }

    /// A browser in which a link was opened.
    pub(crate) fn open(&self, link: &str) -> Browser<'_> {
        let places = [self.origin(), self.public()];
        let path = places.iter().find_map(|place| link.strip_prefix(place));
        self.browser(path.unwrap_or_else(|| panic!("{link} opens nothing")), "")
    }

    #[track_caller]
    fn browser(&self, path: &str, form: &str) -> Browser<'_> {
        let mut browser = Browser {
            site: self,
            cookie: String::new(),
            token: String::new(),
        };
        let (status, head, text) = browser.send(("POST", path), form);
        assert_eq!(status, 303, "{path}: {text}");
        let cookie = between(&head.to_lowercase(), "set-cookie: ", ";").map(str::len);
        let begins = head.to_lowercase().find("set-cookie: ").unwrap() + "set-cookie: ".len();
        browser.cookie = head[begins..begins + cookie.unwrap()].to_owned();
        let page = browser.page("/dashboard");
        browser.token = page.attribute("name=\"token\"", "value");
        browser
    }
}

/// The program, as somebody with this key starts it there.
pub(crate) fn paceline(folder: &Path, key: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_paceline"));
    command
        .current_dir(folder)
        .env_clear()
        .env("PACELINE_API_KEY", key);
    command
}

pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn public(port: u16) -> String {
    format!("http://localhost:{port}")
}

fn migrated(store: &str, folder: &Path) {
    let mut migrate = paceline(folder, KEY);
    let migrate = said(migrate.env("PACELINE_DATABASE_URL", store).arg("migrate"));
    assert_eq!(migrate.code, Some(0), "{migrate:?}");
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields).finish()
}

/// A browser without a screen, in which somebody is signed in.
pub(crate) struct Browser<'a> {
    site: &'a Site,
    cookie: String,
    token: String,
}

impl Browser<'_> {
    fn send(&self, what: (&str, &str), body: &str) -> (u16, String, String) {
        let origin = self.site.origin();
        let headers = [
            ("cookie", self.cookie.as_str()),
            ("origin", origin.as_str()),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        send(self.site.port, what, &headers, body).unwrap()
    }

    #[track_caller]
    pub(crate) fn page(&self, path: &str) -> Page {
        let (status, _, text) = self.send(("GET", path), "");
        assert_eq!(status, 200, "{path}: {text}");
        Page(text)
    }

    /// The page after a form, wherever that leads.
    #[track_caller]
    pub(crate) fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        let fields = [&[("token", self.token.as_str())], fields].concat();
        let (status, head, text) = self.send(("POST", path), &form(&fields));
        if status != 303 {
            assert_eq!(status, 200, "{path}: {text}");
            return Page(text);
        }
        let to = between(&format!("{head}\r\n"), "location: ", "\r\n").map(str::to_owned);
        self.page(&to.unwrap_or_else(|| panic!("{head}")))
    }
}
