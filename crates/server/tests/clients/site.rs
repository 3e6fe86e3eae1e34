//! A `paceline serve` of its own: over its file, or over a database.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::ask::{ask, send};

pub(crate) const KEY: &str = "the-key-of-the-clients-test";

/// By a file it makes its own.
const SECRET_KEY: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Polls for up to a minute: a slow machine is no failure.
const POLLS: usize = 600;

pub(crate) struct Site {
    port: u16,
    server: Child,
    pub(crate) folder: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What it said, if it succeeded.
#[track_caller]
pub(crate) fn done(command: &mut Command) -> String {
    let output: Output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{command:?}:\n{said}");
    String::from_utf8(output.stdout).unwrap()
}

impl Site {
    pub(crate) fn start() -> Self {
        Self::started(None)
    }

    /// Over this database of Postgres, which has our schema.
    pub(crate) fn over(database: &str) -> Self {
        Self::started(Some(database))
    }

    fn started(database: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = Command::new(env!("CARGO_BIN_EXE_paceline"));
        server
            .current_dir(folder.path())
            .env_clear()
            .env("PACELINE_API_KEY", KEY)
            // A test of conformance is not one of rates.
            .env("PACELINE_MANAGE_PER_SECOND", "1000000")
            .env("PACELINE_TENANT_MANAGE_PER_SECOND", "1000000")
            .args(["--log", "warn", "serve", "--allow-http"])
            .args(["--allow-networks", "localhost:*"])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .stdout(Stdio::null());
        if let Some(database) = database {
            server.env("PACELINE_DATABASE_URL", database);
            server.env("PACELINE_SECRET_KEYS", SECRET_KEY);
        }
        let site = Self {
            port,
            server: server.spawn().unwrap(),
            folder,
        };
        site.wait();
        site
    }

    #[expect(clippy::disallowed_methods, reason = "waits for another process")]
    fn wait(&self) {
        for _ in 0..POLLS {
            let ready = self.ask("GET", "/readyz", None);
            if ready.is_ok_and(|(_, text)| text.contains("\"ready\":true")) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("not ready within time");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, text) = self.ask("GET", path, None).unwrap();
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask("POST", path, Some(body)).unwrap();
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask("PUT", path, Some(body)).unwrap();
        assert!(status < 300, "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// With the one key, for this tenant.
    pub(crate) fn acting(&self, tenant: &str, method: &str, path: &str, body: &Value) -> Value {
        let key = format!("Bearer {KEY}");
        let headers = [
            ("authorization", key.as_str()),
            ("content-type", "application/json"),
            ("paceline-tenant", tenant),
        ];
        let answer = send(self.port, (method, path), &headers, &body.to_string());
        let (status, _, text) = answer.unwrap();
        assert!(status < 300, "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// A key of a tenant of its own, with every scope that it can have.
    pub(crate) fn tenants_key(&self) -> String {
        let tenant = self.post("/v1/tenants", &json!({"name": "clients"}));
        let path = format!("/v1/tenants/{}/keys", tenant["id"].as_str().unwrap());
        let scopes = json!({"name": "all", "scopes": ["ingest", "manage", "read"]});
        let made = self.post(&path, &scopes);
        made["key"].as_str().unwrap().to_owned()
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<(u16, String)> {
        ask((self.port, KEY), method, path, body)
    }
}
