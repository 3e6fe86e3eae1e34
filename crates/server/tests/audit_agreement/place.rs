//! A store of each kind with its own dialect of the same SQL: a database on
//! the server that `PACELINE_TEST_DATABASE_URL` names, and a file.

use std::sync::Arc;

use adapters::shell;
use domain::handshake::Handshake;
use domain::limit::Shape;
use domain::policy::LimitSettings;
use engine::ports::{Catalog, DEFAULT_TENANT, NewDestination};
use server::cli::{Command, parse};
use server::config::StoreConfig;
use server::parts;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::ledger::{Kind, Ledger, Second};
use crate::scratch::Scratch;

/// An empty store.
pub(crate) struct Place {
    pub(crate) url: String,
    folder: tempfile::TempDir,
    database: Option<Scratch>,
}

impl Place {
    /// A file in a folder of its own.
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("ledger.db").display());
        let place = Self {
            url,
            folder,
            database: None,
        };
        parts::migrate(&place.config()).await.unwrap();
        place
    }

    /// A database that goes with the place.
    pub(crate) async fn postgres() -> Self {
        // The ledgers number their attempts from 0 on, and no day has such ids.
        let of_no_day = "create table attempts_of_no_day partition of ledger
            for values from (0) to (1000000)";
        let database = Scratch::migrated(of_no_day).await;
        Self {
            url: database.url(),
            folder: tempfile::tempdir().unwrap(),
            database: Some(database),
        }
    }

    /// As the command line understands the URL.
    pub(crate) fn config(&self) -> StoreConfig {
        let cli = parse(["paceline", "audit", "--database-url", &self.url]).unwrap();
        match cli.command {
            Command::Audit(args) => args.store,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.database.is_some()
    }

    /// A URL like this one, of a store that is not there.
    pub(crate) fn missing(&self) -> String {
        match &self.database {
            Some(database) => self.url.replace(&database.name, "paceline_audit_missing"),
            None => self.url.replace("ledger.db", "missing.db"),
        }
    }

    /// How many files there are beside the store.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count()
    }

    /// Runs statements as a user does.
    pub(crate) async fn sql(&self, sql: &str) {
        let done = match &self.database {
            Some(_) => shell::psql(&self.url, sql).await,
            None => shell::sqlite3(&self.folder.path().join("ledger.db"), sql),
        };
        done.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }

    /// The destination by the catalog, its changes and starts by SQL.
    pub(crate) async fn write(&self, ledger: &Ledger) {
        let limits = LimitSettings {
            per_second: ledger.history[0].limit,
            burst: ledger.burst,
            shape: (ledger.kind == Kind::Bucket).then_some(Shape::TokenBucket),
            ..LimitSettings::default()
        };
        let new = NewDestination {
            external_id: None,
            id: ledger.destination,
            name: format!("{:?}", ledger.kind),
            url: "https://receiver.example/".to_owned(),
            event_types: Vec::new(),
            filter: None,
            limits,
            pass_traceparent: false,
            handshake: Handshake::None,
            limit_group: None,
        };
        let catalog = self.to_write().await;
        let created = catalog.create_destination(DEFAULT_TENANT, &new).await;
        created.unwrap();
        drop(catalog);
        self.sql(&self.history(ledger)).await;
        self.sql(&self.attempts(ledger)).await;
    }

    async fn to_write(&self) -> Arc<dyn Catalog> {
        use adapters::sqlite::{SqliteStore, system_clock};
        match &self.database {
            Some(_) => parts::open_to_read(&self.config()).await.unwrap(),
            None => {
                let file = self.folder.path().join("ledger.db");
                Arc::new(SqliteStore::open(&file, system_clock()).unwrap())
            }
        }
    }

    /// Changes the limits as a user does, and then moves the changes' times.
    fn history(&self, ledger: &Ledger) -> String {
        let id = ledger.destination;
        let change = |limit: Option<u32>| match limit {
            Some(limit) => format!("limit_per_second = {limit}"),
            None => "limit_per_second = null, unlimited = true".to_owned(),
        };
        let moved = |from: i64, which: &str| {
            format!(
                "update limit_history set in_force_from = {} where id = (select {which}(id)
                from limit_history where destination_id = '{id}');",
                self.time(from)
            )
        };
        let mut sql = moved(ledger.history[0].from, "min");
        for entry in &ledger.history[1..] {
            let set = change(entry.limit);
            sql += &format!("update destinations set {set} where id = '{id}';");
            sql += &moved(entry.from, "max");
        }
        sql
    }

    fn attempts(&self, ledger: &Ledger) -> String {
        let (event, destination) = (ledger.event, ledger.destination);
        let (nothing, day, of_day) = match self.is_postgres() {
            true => ("''", ", day", format!(", event_day('{event}')")),
            false => ("x''", "", String::new()),
        };
        let rows = ledger.starts.iter().map(|(at, id)| {
            let (created, finished) = (self.time(at - 1), self.time(at + 1));
            format!(
                "({id}, '{event}', '{destination}', '{DEFAULT_TENANT}', 'succeeded',
                {created}, {at}, {at}, {finished})",
                at = self.time(*at)
            )
        });
        let rows: Vec<String> = rows.collect();
        format!(
            "insert into events (id, tenant_id, content_type, payload, created_at{day})
            values ('{event}', '{DEFAULT_TENANT}', 'text/plain', {nothing}, {}{of_day});
            insert into ledger (id, event_id, destination_id, tenant_id, state, created_at,
                claimed_at, started_at, finished_at) values {};",
            self.time(0),
            rows.join(",")
        )
    }

    fn time(&self, micros: i64) -> String {
        match self.is_postgres() {
            true => format!("from_micros({micros})"),
            false => micros.to_string(),
        }
    }

    /// How many entries a destination's history has.
    pub(crate) async fn changes(&self, id: &str) -> i64 {
        let sql = format!("select count(*) from limit_history where destination_id = '{id}'");
        if self.is_postgres() {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            let query = sqlx::query_scalar(AssertSqlSafe(sql));
            return query.fetch_one(&mut connection).await.unwrap();
        }
        let file = self.folder.path().join("ledger.db");
        let connection = rusqlite::Connection::open(file).unwrap();
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    }

    /// What a query with the columns of `starts_per_second` answers.
    pub(crate) async fn seconds(&self, query: &str) -> Vec<Second> {
        let query = query.trim().trim_end_matches(';');
        if self.is_postgres() {
            return self.seconds_of_postgres(query).await;
        }
        let sql = format!(
            "select unixepoch(q.second), q.starts, q.limit_per_second, q.over
            from ({query}) q order by 1"
        );
        let file = self.folder.path().join("ledger.db");
        let connection = rusqlite::Connection::open(file).unwrap();
        let mut statement = connection.prepare(&sql).unwrap();
        let rows = statement.query_map([], |row| {
            Ok(Second {
                second: row.get(0)?,
                starts: row.get(1)?,
                limit: row.get(2)?,
                over: row.get::<_, Option<bool>>(3)?.unwrap_or(false),
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    async fn seconds_of_postgres(&self, query: &str) -> Vec<Second> {
        let sql = format!(
            "select micros(q.second) / 1000000, q.starts, q.limit_per_second::bigint, q.over
            from ({query}) q order by 1"
        );
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let rows: Vec<(i64, i64, Option<i64>, bool)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let second = |(second, starts, limit, over)| Second {
            second,
            starts,
            limit,
            over,
        };
        rows.into_iter().map(second).collect()
    }
}
