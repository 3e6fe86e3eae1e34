//! Where the store is: a file, or a database on the server that
//! `PACELINE_TEST_DATABASE_URL` names.

use std::sync::atomic::{AtomicU32, Ordering};

use adapters::shell;
use server::config::{ScheduleConfig, StoreConfig, TargetConfig};
use server::parts::{self, Parts};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A store of its own.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: tempfile::TempDir,
    /// The server, and the database there.
    pub(crate) database: Option<(String, String)>,
}

impl Place {
    /// A file in a folder of its own.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:{}", folder.path().join("paceline.db").display()),
            _folder: folder,
            database: None,
        }
    }

    /// A database that goes with the place.
    pub(crate) async fn postgres() -> Self {
        let server = std::env::var("PACELINE_TEST_DATABASE_URL")
            .expect("PACELINE_TEST_DATABASE_URL names the server to test on");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline_isolation_{}_{number}", std::process::id());
        let sql = format!("drop database if exists {name} with (force)");
        shell::psql(&server, &sql).await.unwrap();
        let sql = format!("create database {name}");
        shell::psql(&server, &sql).await.unwrap();
        let (before, _) = server.rsplit_once('/').expect("the URL ends in a database");
        Self {
            url: format!("{before}/{name}"),
            _folder: tempfile::tempdir().unwrap(),
            database: Some((server, name)),
        }
    }

    /// Migrated, and connected to.
    pub(crate) async fn parts(&self) -> Parts {
        let store = StoreConfig {
            database_url: self.url.parse().unwrap(),
            database_connections: 4,
        };
        let schedule = ScheduleConfig {
            schedule_url: "in-process".parse().unwrap(),
            schedule_prefix: "paceline".to_owned(),
            schedule_shards: 1,
        };
        parts::migrate(&store).await.unwrap();
        let target = TargetConfig::default();
        let [store, reading] = store.divided();
        let parts = Parts::connect(&store, &schedule, None, &target).await;
        parts.unwrap().read_apart(&reading).await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((server, name)) = self.database.take() else {
            return;
        };
        // A runtime of its own: the test's may be at its end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let sql = format!("drop database {name} with (force)");
            let dropped = runtime.unwrap().block_on(shell::psql(&server, &sql));
            dropped.unwrap();
        });
        dropping.join().unwrap();
    }
}
