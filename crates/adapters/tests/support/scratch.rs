//! A Postgres database of its own for each test, on the server that
//! `PACELINE_TEST_DATABASE_URL` names. Shared by the test programs of several crates.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use adapters::postgres::{PostgresOptions, PostgresStore};
use adapters::shell::psql;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Mutex;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The migrated database that others are copies of, while there are any: to
/// migrate each takes longer than most tests.
static TEMPLATE: Mutex<Weak<Scratch>> = Mutex::const_new(Weak::new());

/// A database; dropped with this value.
pub(crate) struct Scratch {
    pub(crate) server: String,
    pub(crate) name: String,
    _template: Option<Arc<Self>>,
}

impl Scratch {
    /// One with no schema. Fails where no server is given: a test that is skipped
    /// looks like one that passed.
    pub(crate) async fn empty() -> Self {
        Self::create("", None).await
    }

    /// One with all migrations, and then this SQL, which is the same for all of a
    /// program's databases.
    pub(crate) async fn migrated(and: &str) -> Self {
        let template = template(and).await;
        let like = format!("template {}", template.name);
        Self::create(&like, Some(template)).await
    }

    /// As the server makes them, or as these `options` say.
    async fn create(options: &str, template: Option<Arc<Self>>) -> Self {
        let server = std::env::var("PACELINE_TEST_DATABASE_URL")
            .expect("PACELINE_TEST_DATABASE_URL names the server to test on");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline_test_{}_{number}", std::process::id());
        let mut admin = PgConnection::connect(&server)
            .await
            .expect("the test server answers");
        for sql in [
            format!("drop database if exists {name} with (force)"),
            format!("create database {name} {options}"),
            // Sessions add what they have counted when they like, so that one would be
            // measured for another; and autovacuum, which goes by it, stays away.
            format!("alter database {name} set track_counts = off"),
        ] {
            let sql = sqlx::raw_sql(AssertSqlSafe(sql));
            sql.execute(&mut admin).await.unwrap();
        }
        Self {
            server,
            name,
            _template: template,
        }
    }

    pub(crate) fn url(&self) -> String {
        let (before, _) = (self.server.rsplit_once('/')).expect("the URL ends in a database");
        format!("{before}/{}", self.name)
    }
}

/// The one that is there, or a new one.
async fn template(and: &str) -> Arc<Scratch> {
    let mut template = TEMPLATE.lock().await;
    if let Some(there) = template.upgrade() {
        return there;
    }
    let new = Scratch::empty().await;
    let options = PostgresOptions {
        url: new.url(),
        max_connections: 1,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    store.migrate().await.unwrap();
    psql(&new.url(), and).await.unwrap();
    // Nobody may be connected to what is copied.
    store.close().await;
    let new = Arc::new(new);
    *template = Arc::downgrade(&new);
    new
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let sql = format!("drop database {} with (force)", self.name);
        let server = self.server.clone();
        // A runtime of its own: the test's may be at its end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(psql(&server, &sql)).unwrap();
        });
        dropping.join().unwrap();
    }
}
