//! A `paceline serve` of its own, and what it delivers to.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use server::receiver::{Behaviour, Receiver};

use crate::ask::ask;

pub(crate) const KEY: &str = "the-key-of-the-browser-test";

pub(crate) struct Site {
    port: u16,
    pub(crate) receiver: Receiver,
    server: Child,
    folder: tempfile::TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With these settings besides.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let server = Command::new(env!("CARGO_BIN_EXE_paceline"))
            .current_dir(folder.path())
            .env_clear()
            .env("PACELINE_API_KEY", KEY)
            .args([
                "--log",
                "warn",
                "serve",
                "--allow-http",
                "--allow-networks",
                "localhost:*",
            ])
            .args(["--listen", &format!("127.0.0.1:{port}")])
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let site = Self {
            port,
            receiver: Receiver::start(Behaviour::ACCEPT, 100_000).await.unwrap(),
            server,
            folder,
        };
        let began = tokio::time::Instant::now();
        while !site
            .ask("GET", "/readyz", None)
            .is_ok_and(|(_, text)| text.contains("\"ready\":true"))
        {
            assert!(began.elapsed() < Duration::from_secs(60), "not ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        site
    }

    /// Ends it without warning.
    pub(crate) fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    /// The audit as a page of its own: a file.
    pub(crate) fn audit(&self) -> PathBuf {
        let audit = Command::new(env!("CARGO_BIN_EXE_paceline"))
            .current_dir(self.folder.path())
            .env_clear()
            .args(["audit", "--output", "html"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&audit.stderr);
        assert!(audit.status.success(), "{said}");
        let file = self.folder.path().join("audit.html");
        std::fs::write(&file, audit.stdout).unwrap();
        file
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn api(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, text) = self.ask(method, path, Some(&body)).unwrap();
        assert!(status < 300, "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// By another key.
    pub(crate) fn api_by(&self, key: &str, (method, path): (&str, &str), body: Value) -> Value {
        let (status, text) = ask((self.port, key), method, path, Some(&body)).unwrap();
        assert!(status < 300, "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// A destination of the receiver's with this number; its id.
    pub(crate) fn destination(&self, number: u32, name: &str, per_second: u32) -> String {
        let body = json!({"name": name, "url": self.receiver.url(number),
            "limits": {"per_second": per_second}});
        let made = self.api("POST", "/v1/destinations", body);
        made["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn flood(&self, destination: &str, events: usize) {
        for from in (0..events).step_by(500) {
            let one = json!({"destination_id": destination, "type": "order.paid",
                "payload": {"total_cents": 4200}});
            let batch = vec![one; 500.min(events - from)];
            self.api("POST", "/v1/events/batch", json!({ "events": batch }));
        }
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
