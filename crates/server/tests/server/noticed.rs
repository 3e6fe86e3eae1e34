//! What operators must know, told to people: by a real mail server, with and without
//! TLS, and by a receiver that plays a chat.
//!
//! Needs aiosmtpd: the path in `PACELINE_TEST_AIOSMTPD` (`scripts/test` sets it), or
//! else what `scripts/tool` installs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;
use server::receiver::{Behaviour, Observed, Receiver};
use tokio::sync::mpsc;

use crate::process::{Server, free_port, paceline, poll};
use crate::tls;

fn aiosmtpd() -> PathBuf {
    let named = env::var("PACELINE_TEST_AIOSMTPD").ok();
    let path = named.filter(|path| !path.is_empty()).unwrap_or_else(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let tool = Command::new("scripts/tool")
            .arg("aiosmtpd")
            .current_dir(root)
            .output();
        let tool = tool.unwrap();
        assert!(
            tool.status.success(),
            "{}",
            String::from_utf8_lossy(&tool.stderr)
        );
        String::from_utf8(tool.stdout).unwrap().trim().to_owned()
    });
    fs::canonicalize(path).unwrap()
}

/// A mail server that keeps what it gets in a folder. Ends with the test.
struct Mails {
    server: Child,
    folder: PathBuf,
}

impl Drop for Mails {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Mails {
    fn start(folder: &Path, port: u16, tls: &[&str]) -> Self {
        let mails = folder.join("mails");
        let server = Command::new(aiosmtpd())
            .args(["-n", "-l", &format!("localhost:{port}")])
            .args(["-c", "aiosmtpd.handlers.Mailbox"])
            .args(tls)
            .arg(&mails)
            .current_dir(folder)
            .stderr(Stdio::null())
            .spawn();
        Self {
            server: server.unwrap(),
            folder: mails.join("new"),
        }
    }

    fn all(&self) -> Vec<String> {
        let Ok(files) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let read = |file: fs::DirEntry| fs::read_to_string(file.path()).unwrap();
        files
            .map(|file| read(file.unwrap()).replace("=\n", ""))
            .collect()
    }

    /// The mail that has this text, once it is there.
    fn with(&self, text: &str) -> String {
        poll(text, || {
            self.all().into_iter().find(|mail| mail.contains(text))
        })
    }
}

struct Place {
    folder: tempfile::TempDir,
    port: u16,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn serve(&self, smtp: &str) -> Server {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.log());
        let mut command = paceline(self.path());
        let command = command
            .env("PACELINE_SMTP_URL", smtp)
            .env("PACELINE_MAIL_FROM", "Paceline <paceline@example.com>")
            .env("PACELINE_PUBLIC_URL", "https://hooks.example.com")
            .env("SSL_CERT_FILE", self.path().join("tls.crt"))
            .args(["--log", "info"])
            .stderr(log.unwrap());
        Server::spawn(self.port, command)
    }

    fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    fn command(&self, arguments: &[&str]) -> Value {
        let url = format!("http://127.0.0.1:{}", self.port);
        let done = paceline(self.path())
            .args(arguments)
            .args(["--url", &url, "--output", "json"])
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{error}");
        serde_json::from_slice(&done.stdout).unwrap()
    }

    fn shell(&self) -> Connection {
        let shell = Connection::open(self.path().join("paceline.db")).unwrap();
        shell.busy_timeout(Duration::from_secs(20)).unwrap();
        shell
    }

    fn number(&self, sql: &str) -> i64 {
        self.shell().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// News about a destination, as whoever raises them writes them.
    fn raise(&self, count: u32, event_type: &str, about: &str) {
        let sql = "insert into operational_events
                (event_type, destination_id, tenant_id, details, created_at)
            select ?1, id, tenant_id, '{\"count\":4}', created_at from destinations
            where id = ?2";
        let mut shell = self.shell();
        let all = shell.transaction().unwrap();
        for _ in 0..count {
            all.execute(sql, (event_type, about)).unwrap();
        }
        all.commit().unwrap();
    }

    /// As if the time between two messages had passed, or a pause after a failure.
    fn due(&self) {
        let sql = "update notice_addresses set not_before = 0";
        self.shell().execute(sql, []).unwrap();
    }

    fn destination(&self) -> String {
        let create = [
            "destination",
            "create",
            "http://127.0.0.1:9/",
            "--name",
            "shop",
        ];
        let created = self.command(&create);
        created["id"].as_str().unwrap().to_owned()
    }
}

#[test]
fn a_flood_is_one_mail_after_the_first() {
    let place = Place::new();
    let smtp = free_port();
    let mails = Mails::start(place.path(), smtp, &[]);
    let server = place.serve(&format!("smtp://localhost:{smtp}"));
    let shop = place.destination();
    let added = place.command(&["operations", "add-address", "ops@example.com"]);
    assert_eq!(added["every_seconds"], 600);
    place.raise(1, "destination_disabled", &shop);
    let first = mails.with("Subject: [Paceline] shop: destination disabled");
    for line in [
        "From: Paceline <paceline@example.com>",
        "To: ops@example.com",
        "Auto-Submitted: auto-generated",
        &format!("  https://hooks.example.com/dashboard/destinations/{shop}"),
    ] {
        assert!(first.contains(line), "{line}: {first}");
    }
    place.raise(200, "dead_letters", &shop);
    place.raise(3, "backlog_high", &shop);
    let waiting = "select count(*) from notices";
    poll("relayed", || (place.number(waiting) == 203).then_some(()));
    assert_eq!(mails.all().len(), 1, "the rest waits for its time");
    place.due();
    let digest = mails.with("203 operational events since the last notice");
    assert!(digest.contains("    200  dead_letters"), "{digest}");
    assert!(digest.contains("      3  backlog_high"), "{digest}");
    poll("noted", || (place.number(waiting) == 0).then_some(()));
    assert_eq!(mails.all().len(), 2, "a flood is one mail");
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_mail_server_that_was_away_gets_what_it_missed_over_tls() {
    for (scheme, query, tls) in [
        ("smtp", "?tls=required", ["--tlscert", "--tlskey"]),
        ("smtps", "", ["--smtpscert", "--smtpskey"]),
    ] {
        let place = Place::new();
        tls::write(place.path(), tls::ONE);
        let smtp = free_port();
        let server = place.serve(&format!("{scheme}://localhost:{smtp}{query}"));
        let shop = place.destination();
        place.command(&["operations", "add-address", "ops@example.com"]);
        place.raise(1, "destination_disabled", &shop);
        let failures = "select max(failures) from notice_addresses";
        poll("failed", || (place.number(failures) > 0).then_some(()));
        let log = fs::read_to_string(place.log()).unwrap();
        assert!(log.contains("notices not sent, will try again"), "{log}");
        let [certificate, key] = tls;
        let arguments = [certificate, "tls.crt", key, "tls.key"];
        let mails = Mails::start(place.path(), smtp, &arguments);
        poll("it arrives", || {
            place.due();
            (!mails.all().is_empty()).then_some(())
        });
        mails.with("Subject: [Paceline] shop: destination disabled");
        let told = "select count(*) from notices";
        poll("noted", || (place.number(told) == 0).then_some(()));
        assert_eq!(place.number(failures), 0);
        assert_eq!(server.stop(), Some(0));
    }
}

/// A chat that never answers: the process is killed between the message and the note.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_is_told_again_by_who_was_killed_before_it_was_noted() {
    let place = Place::new();
    let (told_in, mut told) = mpsc::channel(100);
    let observer = move |request: Observed<'_>| {
        let id = request.headers["webhook-id"].to_str().unwrap().to_owned();
        let body: Value = serde_json::from_slice(request.body).unwrap();
        told_in.try_send((id, body)).unwrap();
        None
    };
    let silent = Behaviour::NeverAnswer;
    let chat = Receiver::start_observed(silent, 100, Some(Box::new(observer)));
    let chat = chat.await.unwrap();
    let server = place.serve("smtp://localhost:9");
    let shop = place.destination();
    let url = chat.url(0);
    let added = place.command(&["operations", "add-address", &url, "--type", "dead_letters"]);
    assert_eq!(added["form"], "slack");
    let sealed = place
        .shell()
        .query_row("select sealed, shown from notice_addresses", [], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, String>(1)?))
        });
    let (sealed, shown) = sealed.unwrap();
    assert!(!String::from_utf8_lossy(&sealed).contains("127.0.0.1"));
    assert!(!shown.contains("/r/"), "{shown}");

    place.raise(2, "backlog_high", &shop);
    place.raise(1, "dead_letters", &shop);
    let first = told.recv().await.unwrap();
    drop(server);
    assert_eq!(place.number("select count(*) from notices"), 1, "not noted");
    chat.set_behaviour(0, Behaviour::ACCEPT);
    let server = place.serve("smtp://localhost:9");
    place.due();
    let again = told.recv().await.unwrap();
    assert_eq!(again, first, "the same, by the same id");
    let text = again.1["text"].as_str().unwrap();
    assert!(
        text.starts_with("[Paceline] shop: dead letters\n"),
        "{text}"
    );
    assert_eq!(again.1.as_object().unwrap().len(), 1);
    poll("noted", || {
        (place.number("select count(*) from notices") == 0).then_some(())
    });
    assert_eq!(server.stop(), Some(0));
    let log = fs::read_to_string(place.log()).unwrap();
    assert!(!log.contains(&url), "{log}");
}
