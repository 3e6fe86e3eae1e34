//! The notifier on SQLite: a process that is killed again and again.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, its helpers too"
)]

#[path = "notifier/killed.rs"]
mod killed;

use std::path::{Path, PathBuf};
use std::time::Duration;

use adapters::sqlite::{SqliteStore, system_clock};
use killed::Place;
use rusqlite::Connection;

struct Killed(PathBuf);

impl Killed {
    fn shell(&self) -> Connection {
        let shell = Connection::open(&self.0).unwrap();
        shell.busy_timeout(Duration::from_secs(60)).unwrap();
        shell
    }
}

impl Place for Killed {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn notifiers(&self) -> (&'static str, usize) {
        ("notifier_of_another_process", 1)
    }

    fn tally(&self) -> &'static str {
        "insert into dead_letter_tallies (destination_id, tenant_id)
        select destination_id, tenant_id from deliveries where id in (select id from ledger)"
    }

    async fn sql(&self, sql: &str) {
        self.shell().execute_batch(sql).unwrap();
    }

    async fn number(&self, sql: &str) -> i64 {
        self.shell().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    async fn texts(&self, sql: &str) -> Vec<(String, String)> {
        let shell = self.shell();
        let mut statement = shell.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }
}

/// Not a test by itself: the process that the next one starts and kills.
#[tokio::test]
async fn notifier_of_another_process() {
    if let Some(path) = killed::store_to_notify_of() {
        let store = SqliteStore::open(Path::new(&path), system_clock()).unwrap();
        killed::notify(store).await;
    }
}

#[tokio::test]
async fn notifiers_that_are_killed_lose_and_repeat_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let place = Killed(directory.path().join("paceline.db"));
    let store = SqliteStore::open(&place.0, system_clock()).unwrap();
    killed::furnish(&store).await;
    drop(store);
    killed::notifiers_that_are_killed_lose_and_repeat_nothing(&place).await;
}
