//! A database of its own for each test, on the server that
//! `PACELINE_TEST_DATABASE_URL` names.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use adapters::postgres::{PostgresOptions, PostgresStore};
use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use engine::ports::{Catalog, DEFAULT_TENANT, Heartbeat, NewDestination, Run, RunResult, Store};
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;
use uuid::Uuid;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The migrated database that others are copies of, while there are any: to
/// migrate each takes longer than most tests.
static TEMPLATE: Mutex<Weak<Place>> = Mutex::const_new(Weak::new());

/// A fresh, migrated database; dropped with this value.
pub(crate) struct Database {
    pub(crate) store: PostgresStore,
    pub(crate) url: String,
    _place: Place,
    _template: Option<Arc<Place>>,
}

/// A database on the server; dropped with this value.
struct Place {
    server: String,
    name: String,
}

/// Measures pages up to nine times, until `holds` is true of them: what others do to
/// the server's catalogue makes a connection plan anew, and planning counts.
pub(crate) async fn measured<T: Debug>(
    what: &str,
    measure: impl AsyncFn() -> T,
    holds: impl Fn(&T) -> bool,
) {
    let mut tried = Vec::new();
    loop {
        let measured = measure().await;
        if holds(&measured) {
            return;
        }
        tried.push(measured);
        assert!(tried.len() < 9, "{what}: {tried:?}");
    }
}

impl Database {
    /// Creates one. Fails where no server is given: a test that is skipped
    /// looks like one that passed.
    pub(crate) async fn create() -> Self {
        let template = template().await;
        let place = Place::create(&format!("template {}", template.name)).await;
        Self::at(place, Some(template)).await
    }

    /// One with no schema.
    pub(crate) async fn empty() -> Self {
        Self::at(Place::create("").await, None).await
    }

    async fn at(place: Place, template: Option<Arc<Place>>) -> Self {
        Self {
            store: place.connect(12).await,
            url: place.url(),
            _place: place,
            _template: template,
        }
    }

    /// A connection as a user's own tool has it, without our settings.
    pub(crate) async fn user(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }
}

/// The one that is there, or a new one.
async fn template() -> Arc<Place> {
    let mut template = TEMPLATE.lock().await;
    if let Some(there) = template.upgrade() {
        return there;
    }
    let place = Place::create("").await;
    let store = place.connect(1).await;
    store.migrate().await.unwrap();
    // Nobody may be connected to what is copied.
    store.close().await;
    let mut user = PgConnection::connect(&place.url()).await.unwrap();
    // The ids of the contract's events are of that day.
    let day = "select ensure_day('events', '2037-07-04')";
    run(&mut user, day.to_owned()).await;
    user.close().await.unwrap();
    let place = Arc::new(place);
    *template = Arc::downgrade(&place);
    place
}

impl Place {
    /// A new one, as the server has them or as these `options` say.
    async fn create(options: &str) -> Self {
        let server = std::env::var("PACELINE_TEST_DATABASE_URL")
            .expect("PACELINE_TEST_DATABASE_URL names the server to test on");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("paceline_test_{}_{number}", std::process::id());
        let mut admin = PgConnection::connect(&server)
            .await
            .expect("the test server answers");
        let statements = [
            format!("drop database if exists {name} with (force)"),
            format!("create database {name} {options}"),
            // Sessions add what they have counted when they like, so that one would be
            // measured for another; and autovacuum, which goes by it, stays away.
            format!("alter database {name} set track_counts = off"),
        ];
        for statement in statements {
            run(&mut admin, statement).await;
        }
        Self { server, name }
    }

    fn url(&self) -> String {
        let (before, _) = (self.server.rsplit_once('/')).expect("the URL ends in a database");
        format!("{before}/{}", self.name)
    }

    async fn connect(&self, connections: u32) -> PostgresStore {
        let options = PostgresOptions {
            url: self.url(),
            max_connections: connections,
        };
        PostgresStore::connect(options).await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A runtime of its own: the test's may be at its end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                let mut admin = PgConnection::connect(&server).await.unwrap();
                run(&mut admin, format!("drop database {name} with (force)")).await;
            });
        });
        dropping.join().unwrap();
    }
}

/// Runs SQL that a test wrote.
pub(crate) async fn run(connection: &mut PgConnection, sql: String) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(connection)
        .await
        .unwrap();
}

/// Events, permits and workers, made by the store itself.
impl Database {
    /// An id that nothing else in this process has.
    pub(crate) fn id(&self) -> Uuid {
        Uuid::from_u128((0x01f1_u128 << 112) | u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// A destination with these limits.
    pub(crate) async fn destination(&self, limits: LimitSettings) -> DestinationId {
        let new = NewDestination {
            external_id: None,
            id: DestinationId(self.id()),
            name: String::new(),
            url: "https://receiver.example/".to_owned(),
            event_types: Vec::new(),
            filter: None,
            limits,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
        };
        self.store
            .create_destination(DEFAULT_TENANT, &new)
            .await
            .unwrap();
        new.id
    }

    /// A new one for a destination.
    pub(crate) fn event(&self, destination: DestinationId) -> NewEvent {
        NewEvent {
            id: EventId(self.id()),
            tenant: DEFAULT_TENANT,
            audience: Audience::Destination(destination),
            event_type: None,
            content_type: "text/plain".to_owned(),
            payload: Bytes::from_static(b"hello"),
            idempotency: None,
            trace: None,
            timing: Timing::default(),
        }
    }

    /// `count` attempts that wait.
    pub(crate) async fn accept(&self, destination: DestinationId, count: u32) {
        let events: Vec<NewEvent> = (0..count).map(|_| self.event(destination)).collect();
        for batch in events.chunks(500) {
            self.store.accept_events(batch).await.unwrap();
        }
    }

    /// A worker that lives.
    pub(crate) async fn worker(&self) -> WorkerId {
        let worker = WorkerId(self.id());
        self.store
            .heartbeat(&Heartbeat {
                worker,
                places: 100,
            })
            .await
            .unwrap();
        worker
    }

    /// The result of one run of one destination.
    pub(crate) async fn run(&self, destination: DestinationId) -> RunResult {
        let run = Run {
            destination,
            republish: false,
        };
        let mut admitted = self.store.admit(&[run], &Room::of(u32::MAX)).await.unwrap();
        admitted.results.remove(0)
    }

    /// The permits of one run, none if it was skipped.
    pub(crate) async fn permits(&self, destination: DestinationId) -> Vec<Permit> {
        match self.run(destination).await {
            RunResult::Decided { permits, .. } => permits,
            RunResult::Skipped | RunResult::Gone => Vec::new(),
        }
    }

    /// However slow the machine is: neither the permits that there are nor the
    /// workers come too late.
    pub(crate) async fn let_nothing_lapse(&self) {
        self.sql(
            "update attempts set deadline = deadline + interval '1 hour'
            where state = 'admitted'",
        )
        .await;
        self.sql("update workers set seen_at = clock_timestamp() + interval '1 hour'")
            .await;
    }

    /// One number that a query answers.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let mut user = self.user().await;
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
        query.fetch_one(&mut user).await.unwrap()
    }

    /// Pages of tables and indexes touched by this on a connection of its own,
    /// the only one that counts. Its counters are added to the statistics when it
    /// ends.
    pub(crate) async fn pages_of(&self, work: impl AsyncFn(PostgresStore)) -> i64 {
        let touched = "select sum(
                heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
            )::bigint
            from pg_statio_user_tables";
        let ours = "select count(*) from pg_stat_activity where application_name = 'paceline'
            and datname = current_database()";
        let others = self.number(ours).await;
        let before = self.number(touched).await;
        let options = PostgresOptions {
            url: format!("{}?options=-c%20track_counts%3Don", self.url),
            max_connections: 1,
        };
        let store = PostgresStore::connect(options).await.unwrap();
        work(store.clone()).await;
        store.close().await;
        while self.number(ours).await > others {
            tokio::task::yield_now().await;
        }
        self.number(touched).await - before
    }

    /// Returns once a statement waits for a lock.
    pub(crate) async fn until_somebody_waits(&self) {
        while !self.somebody_waits().await {
            tokio::task::yield_now().await;
        }
    }

    /// Whether a statement waits for a lock.
    pub(crate) async fn somebody_waits(&self) -> bool {
        let waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'
            and datname = current_database()";
        self.number(waits).await > 0
    }

    /// Runs SQL as a user.
    pub(crate) async fn sql(&self, sql: &str) {
        run(&mut self.user().await, sql.to_owned()).await;
    }

    /// Runs SQL that must be refused.
    pub(crate) async fn refused(&self, sql: &str) -> sqlx::Error {
        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        query.execute(&mut self.user().await).await.unwrap_err()
    }
}

/// So many per second in every window.
pub(crate) fn per_second(limit: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(limit),
        ..LimitSettings::EXACT
    }
}
