//! A database of its own for each test, on the server that
//! `PACELINE_TEST_DATABASE_URL` names.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use adapters::postgres::{PostgresOptions, PostgresStore};
use bytes::Bytes;
use domain::event::{Audience, NewEvent, Timing};
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId, WorkerId};
use domain::permit::Permit;
use domain::policy::LimitSettings;
use domain::share::Room;
use engine::ports::{Catalog, DEFAULT_TENANT, Heartbeat, NewDestination, Run, RunResult, Store};
use sqlx::{Connection, Executor, PgConnection};
use uuid::Uuid;

use crate::scratch::Scratch;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The ids of the contract's events are of that day.
const DAY: &str = "select ensure_day('events', '2037-07-04')";

/// A fresh, migrated database; dropped with this value.
pub(crate) struct Database {
    pub(crate) store: PostgresStore,
    pub(crate) url: String,
    shell: Shell,
    _scratch: Scratch,
}

/// Rows inserted, updated and deleted, by table.
pub(crate) type Versions = BTreeMap<String, [i64; 3]>;

/// A user's own tool at a database, one statement after another. To start a session takes
/// the server longer than most of these statements, so one that is done is used again.
pub(crate) struct Shell {
    url: String,
    idle: Mutex<Vec<PgConnection>>,
}

impl Shell {
    pub(crate) fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            idle: Mutex::default(),
        }
    }

    /// What is asked in a session that nobody else is in meanwhile.
    pub(crate) async fn ask<T>(&self, ask: impl AsyncFnOnce(&mut PgConnection) -> T) -> T {
        let idle = self.idle.lock().unwrap().pop();
        let mut session = match idle {
            Some(session) => session,
            None => PgConnection::connect(&self.url).await.unwrap(),
        };
        let answer = ask(&mut session).await;
        // As it was, but for its prepared statements.
        let reset = "reset role; reset all; discard temp; select pg_advisory_unlock_all()";
        if !session.is_in_transaction() && session.execute(reset).await.is_ok() {
            self.idle.lock().unwrap().push(session);
        }
        answer
    }
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
        Self::at(Scratch::migrated(DAY).await).await
    }

    /// One with no schema.
    pub(crate) async fn empty() -> Self {
        Self::at(Scratch::empty().await).await
    }

    async fn at(scratch: Scratch) -> Self {
        let options = PostgresOptions {
            url: scratch.url(),
            max_connections: 12,
        };
        Self {
            store: PostgresStore::connect(options).await.unwrap(),
            url: scratch.url(),
            shell: Shell::at(&scratch.url()),
            _scratch: scratch,
        }
    }

    /// A connection as a user's own tool has it, without our settings.
    pub(crate) async fn user(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
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
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()));
        let number = async |user: &mut PgConnection| query.fetch_one(user).await;
        self.shell.ask(number).await.unwrap()
    }

    /// Pages of tables, of what is too long for their rows, and of indexes, touched by this
    /// on a connection of its own.
    pub(crate) async fn pages_of(&self, work: impl AsyncFn(PostgresStore)) -> i64 {
        let touched = "select sum(
                heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
                + coalesce(toast_blks_read + toast_blks_hit, 0)
                + coalesce(tidx_blks_read + tidx_blks_hit, 0)
            )::bigint
            from pg_statio_user_tables";
        let before = self.number(touched).await;
        self.counting(work).await;
        self.number(touched).await - before
    }

    /// Rows that this inserts, updates and deletes on a connection of its own, by table; the
    /// days of one are one, and those that it leaves alone are not there.
    pub(crate) async fn versions_of(&self, work: impl AsyncFn(PostgresStore)) -> Versions {
        let before = self.versions().await;
        self.counting(work).await;
        let mut versions = self.versions().await;
        for (table, counts) in &mut versions {
            for (count, before) in counts.iter_mut().zip(before.get(table).unwrap_or(&[0; 3])) {
                *count -= before;
            }
        }
        versions.retain(|_, counts| *counts != [0; 3]);
        versions
    }

    async fn versions(&self) -> Versions {
        let query = sqlx::query_as::<_, (String, i64, i64, i64)>(
            r"select regexp_replace(relname::text, '_\d{4,}_\d\d_\d\d$', ''),
                sum(n_tup_ins)::bigint, sum(n_tup_upd)::bigint, sum(n_tup_del)::bigint
            from pg_stat_user_tables
            group by 1",
        );
        let all = async |user: &mut PgConnection| query.fetch_all(user).await;
        let rows = self.shell.ask(all).await.unwrap();
        let counts = |(table, inserted, updated, deleted)| (table, [inserted, updated, deleted]);
        rows.into_iter().map(counts).collect()
    }

    /// Does this on a connection of its own, the only one that counts. Its counters are added
    /// to the statistics when it ends.
    async fn counting(&self, work: impl AsyncFn(PostgresStore)) {
        let ours = "select count(*) from pg_stat_activity where application_name = 'paceline'
            and datname = current_database()";
        let others = self.number(ours).await;
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
        let run = async |user: &mut PgConnection| run(user, sql.to_owned()).await;
        self.shell.ask(run).await;
    }

    /// Runs SQL that must be refused.
    pub(crate) async fn refused(&self, sql: &str) -> sqlx::Error {
        let query = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()));
        let refused = async |user: &mut PgConnection| query.execute(user).await;
        self.shell.ask(refused).await.unwrap_err()
    }
}

/// So many per second in every window.
pub(crate) fn per_second(limit: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(limit),
        ..LimitSettings::EXACT
    }
}
