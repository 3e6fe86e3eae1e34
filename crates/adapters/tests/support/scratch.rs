//! A Postgres database of its own for each test, on the server that
//! `PACELINE_TEST_DATABASE_URL` names. Shared by the test programs of several crates.
//!
//! No database serves two tests. To empty one and to prove that it is as it was takes the
//! server as long as to drop it and copy another.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak, mpsc};

use adapters::postgres::{PostgresOptions, PostgresStore};
use adapters::shell::psql;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::{Builder, Runtime};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The migrated database that others are copies of, while there are any: to
/// migrate each takes longer than most tests.
static TEMPLATE: tokio::sync::Mutex<Weak<Scratch>> = tokio::sync::Mutex::const_new(Weak::new());

static SESSIONS: LazyLock<Sessions> = LazyLock::new(|| Sessions {
    runtime: Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap(),
    idle: Mutex::default(),
});

/// What makes and drops databases. A session is used again: to start two for each database
/// costs more than to drop it. They live in a runtime that all tests share, since a test's
/// own ends with it.
struct Sessions {
    runtime: Runtime,
    idle: Mutex<Vec<PgConnection>>,
}

/// A database; dropped with this value.
pub(crate) struct Scratch {
    server: String,
    pub(crate) name: String,
    _template: Option<Arc<Self>>,
}

impl Scratch {
    /// One with no schema. Fails where no server is given: a test that is skipped
    /// looks like one that passed.
    pub(crate) async fn empty() -> Self {
        Self::create(String::new(), None).await
    }

    /// One with all migrations, and then this SQL, which is the same for all of a
    /// program's databases.
    pub(crate) async fn migrated(and: &str) -> Self {
        let template = template(and).await;
        let like = format!("template {}", template.name);
        Self::create(like, Some(template)).await
    }

    /// As the server makes them, or as these `options` say.
    async fn create(options: String, template: Option<Arc<Self>>) -> Self {
        let server = std::env::var("PACELINE_TEST_DATABASE_URL")
            .expect("PACELINE_TEST_DATABASE_URL names the server to test on");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline_test_{}_{number}", std::process::id());
        let made = make(server.clone(), name.clone(), options);
        SESSIONS.runtime.spawn(made).await.unwrap();
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

/// How to make a database. To copy files takes a third of what it takes to copy page by
/// page through the log, and the file comes along from which sessions know the catalogue.
/// But all that is unwritten is flushed, which is slow where it has to reach a disk.
/// Postgres has the choice since 15.
const STRATEGY: &str = "select case
    when current_setting('fsync') = 'off'
        and current_setting('server_version_num')::integer >= 150000
    then 'strategy file_copy' else '' end";

async fn make(server: String, name: String, options: String) {
    let mut session = session(&server).await;
    let strategy = sqlx::query_scalar(STRATEGY).fetch_one(&mut session).await;
    let strategy: String = strategy.unwrap();
    for sql in [
        format!("drop database if exists {name} with (force)"),
        format!("create database {name} {options} {strategy}"),
        // Sessions add what they have counted when they like, so that one would be
        // measured for another; and autovacuum, which goes by it, stays away.
        format!("alter database {name} set track_counts = off"),
    ] {
        execute(&mut session, sql).await;
    }
    SESSIONS.idle.lock().unwrap().push(session);
}

async fn remove(server: String, name: String) {
    let mut session = session(&server).await;
    execute(&mut session, format!("drop database {name} with (force)")).await;
    SESSIONS.idle.lock().unwrap().push(session);
}

/// One that nobody else is in meanwhile.
async fn session(server: &str) -> PgConnection {
    let idle = SESSIONS.idle.lock().unwrap().pop();
    match idle {
        Some(session) => session,
        None => PgConnection::connect(server)
            .await
            .expect("the test server answers"),
    }
}

async fn execute(session: &mut PgConnection, sql: String) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql));
    sql.execute(session).await.unwrap();
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
        let (done, dropped) = mpsc::sync_channel(1);
        let removed = remove(self.server.clone(), self.name.clone());
        // Not in the test's runtime, which may be at its end.
        SESSIONS.runtime.spawn(async move {
            removed.await;
            done.send(()).unwrap();
        });
        dropped.recv().expect("the database is dropped");
    }
}
