//! Connections, and what each of them is told before it is used.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use engine::ports::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgConnection, PgPool};

/// Where the database is, and how many connections to hold at most.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://…`; may hold a password, so it is never shown.
    pub url: String,
    /// The size of the pool.
    pub max_connections: u32,
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &"[redacted]")
            .field("max_connections", &self.max_connections)
            .finish()
    }
}

/// How long a caller waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that was returned longer ago than this is asked whether it
/// lives before it is used. Every one is asked when it is returned; to ask again
/// a moment later would put another round trip before each statement.
const TRUSTED: Duration = Duration::from_secs(1);

/// What every session is told. Timeouts are the server's, because a future
/// that is dropped at a timeout of ours leaves a connection in a state that
/// the pool does not know.
///
/// The plans: all our statements reach their rows by index, from arrays that
/// are small beside the tables. A planner with the statistics of an empty
/// table may think otherwise and keep its generic plan until the next analyze,
/// when there are a million rows; so it is not given the choice.
///
/// Nor may it read an index as a whole, entry by entry, and ask of each which of the array it
/// is: it thinks of that wherever the order of the index could serve a merge, and of a table
/// that was vacuumed while nothing was owed it is cheaper by a hair. So where a statement
/// reaches a row of a table that grows by its key the join is `= any (array[key])`, which no
/// merge could use, and what is locked is ordered by the array's column and not by the row's.
const SETTINGS: [(&str, &str); 13] = [
    ("statement_timeout", "5s"),
    ("lock_timeout", "2s"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("default_transaction_isolation", "read committed"),
    ("synchronous_commit", "on"),
    ("timezone", "UTC"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("max_parallel_workers_per_gather", "0"),
];

/// Begins a transaction whose commit waits neither for the disk nor for a standby. A
/// server that crashes may forget it: whoever uses this says why that is safe.
pub(super) const BEGIN_UNFLUSHED: &str = "begin; set local synchronous_commit = off";

/// Begins a transaction for whose end starts wait that are committed, or permits that are
/// over: a statement of it takes at most half of [`domain::admission::MAX_CLAIM_TO_SEND`], and
/// a lock a tenth, or it fails.
pub(super) const BEGIN_HURRIED: &str =
    "begin; set local lock_timeout = '50ms'; set local statement_timeout = '250ms'";

/// The schema that our tables live in, unless the URL's `options` name another. Not
/// what the server would choose: that is `"$user", public`, and a role called
/// `paceline` would find the schema of that name first, which is made half-way through
/// the migrations for users of the outbox.
pub(super) const HOME: &str = "public";

/// A pool with at least one connection that works.
pub(super) async fn connect(options: &PostgresOptions) -> Result<PgPool, StoreError> {
    let parsed = PgConnectOptions::from_str(&options.url)
        // The parser's own words may repeat a part of the URL.
        .map_err(|_refused| StoreError::Unavailable("the database URL is malformed".to_owned()))?;
    let has_home = (parsed.get_options()).is_some_and(|given| given.contains("search_path"));
    let home = (!has_home).then_some(("search_path", HOME));
    let session = (parsed.application_name("paceline")).options(SETTINGS.into_iter().chain(home));
    let pool = PgPoolOptions::new()
        .max_connections(options.max_connections.max(1))
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, idle| {
            Box::pin(async move {
                if idle.idle_for > TRUSTED {
                    sqlx::Connection::ping(connection).await?;
                }
                Ok(true)
            })
        })
        .after_connect(|connection, _| Box::pin(check_settings(connection)))
        .after_release(|connection, _| {
            // One whose transaction was not ended, because its future was
            // dropped, must not serve anybody else.
            let in_transaction = sqlx::Connection::is_in_transaction(&*connection);
            Box::pin(async move { Ok(!in_transaction) })
        })
        .connect_with(session.clone())
        .await;
    let why = match pool {
        Ok(pool) => return Ok(pool),
        // The pool has tried again and again, and kept the reason to itself.
        Err(sqlx::Error::PoolTimedOut) => why_not(&session).await,
        Err(error) => error,
    };
    let why = redacted(&why.to_string(), &options.url);
    Err(StoreError::Unavailable(why))
}

/// Why there is no connection.
async fn why_not(session: &PgConnectOptions) -> sqlx::Error {
    let connecting = async {
        let mut connection = session.connect().await?;
        check_settings(&mut connection).await
    };
    match tokio::time::timeout(ACQUIRE_TIMEOUT, connecting).await {
        Ok(Err(error)) => error,
        // It has come back this instant, or it does not answer at all.
        Ok(Ok(())) | Err(_) => sqlx::Error::PoolTimedOut,
    }
}

/// Refuses a connection that does not have what it was told: a pooler in between
/// drops what it does not know, and with it time-outs, isolation and whether a commit
/// is on the disk, without a word.
async fn check_settings(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (names, wanted): (Vec<&str>, Vec<&str>) = SETTINGS.iter().copied().unzip();
    let other: Option<(String, String, String)> = sqlx::query_as(
        "-- check_settings
        select n.name, current_setting(n.name), n.wanted
        from unnest($1::text[], $2::text[]) as n (name, wanted)
        where current_setting(n.name) <> n.wanted
        limit 1",
    )
    .bind(names)
    .bind(wanted)
    .fetch_optional(connection)
    .await?;
    match other {
        None => Ok(()),
        Some((name, found, wanted)) => Err(sqlx::Error::Configuration(
            format!(
                "{name} is {found:?} on a new connection that asked for {wanted:?}: a pooler or \
                proxy in between drops the startup parameter `options`; let it pass on, or \
                connect to Postgres itself"
            )
            .into(),
        )),
    }
}

/// The message without the password of `url`, should it be in there.
fn redacted(message: &str, url: &str) -> String {
    let password = url
        .split_once("://")
        .and_then(|(_, rest)| rest.rsplit_once('@'))
        .and_then(|(user, _)| user.split_once(':'))
        .map_or("", |(_, password)| password);
    if password.is_empty() {
        return message.to_owned();
    }
    message.replace(password, "[redacted]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let options = PostgresOptions {
            url: "postgres://me:hunter2@db/paceline".to_owned(),
            max_connections: 1,
        };
        assert!(!format!("{options:?}").contains("hunter2"));
        assert_eq!(
            redacted("no hunter2 here", &options.url),
            "no [redacted] here"
        );
        assert_eq!(
            redacted("as it is", "postgres://me@db/paceline"),
            "as it is"
        );
    }
}
