//! Where the store is: a file, or a database on the server that
//! `PACELINE_TEST_DATABASE_URL` names.

use server::config::{ScheduleConfig, StoreConfig, TargetConfig};
use server::parts::{self, Parts};

use crate::scratch::Scratch;

/// A store of its own.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: tempfile::TempDir,
    /// Kept while the place is.
    _database: Option<Scratch>,
}

impl Place {
    /// A file in a folder of its own.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            url: format!("sqlite:{}", folder.path().join("paceline.db").display()),
            _folder: folder,
            _database: None,
        }
    }

    /// A database that goes with the place.
    pub(crate) async fn postgres() -> Self {
        let database = Scratch::migrated("").await;
        Self {
            url: database.url(),
            _folder: tempfile::tempdir().unwrap(),
            _database: Some(database),
        }
    }

    /// Migrated, and connected to.
    pub(crate) async fn parts(&self) -> Parts {
        let store = StoreConfig {
            database_url: self.url.parse().unwrap(),
            // As by default: six are for what people read, two of them for reports.
            database_connections: 16,
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
