//! What Postgres did meanwhile: statements and bytes of its log.
//!
//! Statements are counted by `pg_stat_statements` where the server has it;
//! otherwise transactions are, which is said. Counts are of our database; the
//! log is the whole server's, so nobody else should be at work on it.

use std::collections::HashMap;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

/// The most statements that are listed, those that took the longest.
const MAX_LISTED: usize = 15;

const WAL: &str = "-- wal\nselect pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";

const TRANSACTIONS: &str = "-- transactions\nselect xact_commit + xact_rollback \
    from pg_stat_database where datname = current_database()";

const STATEMENTS: &str = "-- statements\nselect queryid, query, calls, total_exec_time, \
    rows::bigint, wal_bytes::bigint from pg_stat_statements \
    where dbid = (select oid from pg_database where datname = current_database()) \
    and queryid is not null";

/// A statement and what it has cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Statement {
    /// Its first line, where that is a comment; else how it begins.
    pub(crate) name: String,
    pub(crate) calls: u64,
    /// In the server, all calls together.
    pub(crate) total_ms: f64,
    pub(crate) rows: u64,
    pub(crate) wal_bytes: u64,
}

/// A connection to look through, and what there was at first.
pub(crate) struct Database {
    connection: PgConnection,
    before: Snapshot,
    /// Whether the server counts statements.
    pub(crate) counts_statements: bool,
}

struct Snapshot {
    wal_bytes: i64,
    transactions: i64,
    statements: HashMap<i64, Statement>,
}

/// What was done since the beginning.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Done {
    pub(crate) wal_bytes: u64,
    pub(crate) transactions: u64,
    /// Of all statements; `None` where the server does not count them.
    pub(crate) calls: Option<u64>,
    pub(crate) longest: Vec<Statement>,
}

impl Database {
    /// Connects, and switches the counting on where the server can.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let connection = PgConnection::connect(url).await;
        let mut connection = connection.context("connect to the database")?;
        let create = "create extension if not exists pg_stat_statements";
        let created = sqlx::raw_sql(create).execute(&mut connection).await;
        // It can be created and yet refuse to answer, when it was not preloaded.
        let counts_statements = created.is_ok() && statements(&mut connection).await.is_ok();
        let before = Snapshot::take(&mut connection, counts_statements).await?;
        Ok(Self {
            connection,
            before,
            counts_statements,
        })
    }

    /// Begins anew.
    pub(crate) async fn begin(&mut self) -> anyhow::Result<()> {
        self.before = Snapshot::take(&mut self.connection, self.counts_statements).await?;
        Ok(())
    }

    /// What was done since.
    pub(crate) async fn done(&mut self) -> anyhow::Result<Done> {
        let now = Snapshot::take(&mut self.connection, self.counts_statements).await?;
        Ok(difference(&self.before, &now, self.counts_statements))
    }
}

impl Snapshot {
    async fn take(connection: &mut PgConnection, statements_too: bool) -> anyhow::Result<Self> {
        let statements = match statements_too {
            true => statements(connection).await?,
            false => HashMap::new(),
        };
        Ok(Self {
            wal_bytes: sqlx::query_scalar(WAL).fetch_one(&mut *connection).await?,
            transactions: sqlx::query_scalar(TRANSACTIONS)
                .fetch_one(connection)
                .await?,
            statements,
        })
    }
}

async fn statements(connection: &mut PgConnection) -> sqlx::Result<HashMap<i64, Statement>> {
    let rows: Vec<PgRow> = sqlx::query(STATEMENTS).fetch_all(connection).await?;
    rows.iter().map(statement).collect()
}

fn statement(row: &PgRow) -> sqlx::Result<(i64, Statement)> {
    let count = |column: &str| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let statement = Statement {
        name: name(row.try_get("query")?),
        calls: count("calls")?,
        total_ms: row.try_get("total_exec_time")?,
        rows: count("rows")?,
        wal_bytes: count("wal_bytes")?,
    };
    Ok((row.try_get("queryid")?, statement))
}

/// What our statements call themselves in their first line.
fn name(query: &str) -> String {
    let first = query.trim_start().lines().next().unwrap_or_default();
    match first.strip_prefix("--") {
        Some(name) => name.trim().to_owned(),
        None => first.chars().take(60).collect(),
    }
}

fn difference(before: &Snapshot, now: &Snapshot, counted: bool) -> Done {
    let mut by_name: HashMap<&str, Statement> = HashMap::new();
    for (id, after) in &now.statements {
        let zero = Statement {
            name: String::new(),
            calls: 0,
            total_ms: 0.0,
            rows: 0,
            wal_bytes: 0,
        };
        let before = before.statements.get(id).unwrap_or(&zero);
        let sum = by_name.entry(&after.name).or_insert_with(|| Statement {
            name: after.name.clone(),
            ..zero.clone()
        });
        sum.calls += after.calls.saturating_sub(before.calls);
        sum.total_ms += after.total_ms - before.total_ms;
        sum.rows += after.rows.saturating_sub(before.rows);
        sum.wal_bytes += after.wal_bytes.saturating_sub(before.wal_bytes);
    }
    let mut longest: Vec<_> = by_name.into_values().filter(|one| one.calls > 0).collect();
    let calls = longest.iter().map(|one| one.calls).sum();
    longest.sort_by(|one, other| other.total_ms.total_cmp(&one.total_ms));
    longest.truncate(MAX_LISTED);
    Done {
        wal_bytes: (now.wal_bytes - before.wal_bytes).unsigned_abs(),
        transactions: (now.transactions - before.transactions).unsigned_abs(),
        calls: counted.then_some(calls),
        longest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_called_by_its_comment() {
        assert_eq!(name("-- admit\nselect 1"), "admit");
        assert_eq!(name("begin"), "begin");
        assert_eq!(name(&"x".repeat(100)).len(), 60);
    }

    #[test]
    fn differences_are_added_up_by_name() {
        let statement = |name: &str, calls, total_ms| Statement {
            name: name.to_owned(),
            calls,
            total_ms,
            rows: calls,
            wal_bytes: 10 * calls,
        };
        let snapshot = |wal_bytes, statements: Vec<(i64, Statement)>| Snapshot {
            wal_bytes,
            transactions: wal_bytes / 10,
            statements: statements.into_iter().collect(),
        };
        let before = snapshot(
            100,
            vec![
                (1, statement("claim", 5, 1.0)),
                (2, statement("idle", 3, 9.0)),
            ],
        );
        let now = snapshot(
            400,
            vec![
                (1, statement("claim", 7, 2.0)),
                (2, statement("idle", 3, 9.0)),
                (3, statement("claim", 1, 0.5)),
                (4, statement("admit", 10, 8.0)),
            ],
        );
        let done = difference(&before, &now, true);
        assert_eq!(
            (done.wal_bytes, done.transactions, done.calls),
            (300, 30, Some(13))
        );
        let listed: Vec<_> = done
            .longest
            .iter()
            .map(|one| (one.name.as_str(), one.calls))
            .collect();
        assert_eq!(listed, [("admit", 10), ("claim", 3)]);
        assert_eq!(difference(&before, &now, false).calls, None);
    }
}
