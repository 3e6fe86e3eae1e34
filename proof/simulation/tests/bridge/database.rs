//! A database of its own for each case, on the server that
//! `PACELINE_TEST_DATABASE_URL` names.

use std::sync::atomic::{AtomicU32, Ordering};

use adapters::postgres::{PostgresOptions, PostgresStore};
use adapters::shell::psql;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A fresh, migrated database.
pub(crate) struct Database {
    store: PostgresStore,
    server: String,
    name: String,
}

impl Database {
    /// Creates one. Fails where no server is given: a test that is skipped
    /// looks like one that passed.
    pub(crate) async fn create(connections: usize) -> Self {
        let server = std::env::var("PACELINE_TEST_DATABASE_URL")
            .expect("PACELINE_TEST_DATABASE_URL names the server to test on");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline_bridge_{}_{number}", std::process::id());
        let drop = format!("drop database if exists {name} with (force)");
        psql(&server, &drop).await.unwrap();
        psql(&server, &format!("create database {name}"))
            .await
            .unwrap();
        let (before, _) = server.rsplit_once('/').expect("the URL ends in a database");
        let url = format!("{before}/{name}");
        let options = PostgresOptions {
            url,
            max_connections: u32::try_from(connections).unwrap(),
        };
        let store = PostgresStore::connect(options).await.unwrap();
        store.migrate().await.unwrap();
        Self {
            store,
            server,
            name,
        }
    }
}

/// Where a database is to be dropped, whatever becomes of the case.
pub(crate) struct Dropped {
    server: String,
    name: String,
}

impl Database {
    /// The store, and the guard that drops the database.
    pub(crate) fn into_parts(self) -> (PostgresStore, Dropped) {
        let (server, name) = (self.server, self.name);
        (self.store, Dropped { server, name })
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let sql = format!("drop database {} with (force)", self.name);
        runtime.unwrap().block_on(psql(&self.server, &sql)).unwrap();
    }
}
