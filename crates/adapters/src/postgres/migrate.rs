//! The schema: brought forward, and compared.

use std::sync::LazyLock;
use std::time::Duration;

use engine::ports::CatalogError;
use engine::ports::StoreError;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{PgConnection, PgPool, SqlSafeStr};
use tokio::time::Instant;

use super::days;
use super::failure::in_words;

/// The migrations in their order: number, what it is about, and SQL.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (
        1,
        "limits",
        include_str!("../../../../migrations/postgres/0001_limits.sql"),
    ),
    (
        2,
        "events",
        include_str!("../../../../migrations/postgres/0002_events.sql"),
    ),
    (
        3,
        "attempts",
        include_str!("../../../../migrations/postgres/0003_attempts.sql"),
    ),
    (
        4,
        "changes",
        include_str!("../../../../migrations/postgres/0004_changes.sql"),
    ),
    (
        5,
        "receivers",
        include_str!("../../../../migrations/postgres/0005_receivers.sql"),
    ),
    (
        6,
        "notifications",
        include_str!("../../../../migrations/postgres/0006_notifications.sql"),
    ),
    (
        7,
        "people",
        include_str!("../../../../migrations/postgres/0007_people.sql"),
    ),
    (
        8,
        "upkeep",
        include_str!("../../../../migrations/postgres/0008_upkeep.sql"),
    ),
    (
        9,
        "outbox",
        include_str!("../../../../migrations/postgres/0009_outbox.sql"),
    ),
];

static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let migration = |&(version, about, sql): &(i64, &'static str, &'static str)| {
        let kind = MigrationType::Simple;
        Migration::new(version, about.into(), kind, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect())
});

/// Between two tries: those who had queued up get through.
const PAUSE: Duration = Duration::from_secs(2);

/// How long it is tried. A dump or a report of that length has no end in sight.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// Brings the schema forward, under an advisory lock. A newer one stays as it is:
/// during a rollout, pods of the version before may start once more. On a connection of its
/// own that is closed afterwards: a migration, or the wait for somebody else's,
/// may take longer than any other statement of ours. But it waits for no lock for
/// longer than two seconds: whoever reads or writes meanwhile queues behind it.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let unavailable = |error: sqlx::Error| StoreError::Unavailable(in_words(&error));
    let mut connection = pool.acquire().await.map_err(unavailable)?;
    sqlx::raw_sql(
        "-- migrate: patience
        set statement_timeout = 0;
        set lock_timeout = '2s';
        set idle_in_transaction_session_timeout = 0",
    )
    .execute(&mut *connection)
    .await
    .map_err(unavailable)?;
    let refused = |why: &str| Err(StoreError::Unavailable(format!("migrate: {why}")));
    if is_split(&mut connection).await.map_err(unavailable)? {
        return refused(SPLIT);
    }
    if !found(&mut connection).await.map_err(unavailable)?.is_ours {
        return refused(NOT_OURS);
    }
    let migrated = match as_locks_allow(&mut connection).await {
        Err(MigrateError::VersionMissing(found)) if found > needed() => Ok(()),
        migrated => migrated,
    };
    let made = match &migrated {
        Ok(()) => days::make(&mut connection).await,
        Err(_) => Ok(0),
    };
    connection.close().await.map_err(unavailable)?;
    migrated.map_err(|error| StoreError::Unavailable(why_not(&error)))?;
    made.map_err(unavailable)?;
    Ok(())
}

/// What to do about an installation that [`is_split`].
const SPLIT: &str = "the schema \"paceline\" holds tables of ours, which an earlier version \
    left there when its migration failed half-way. Nothing was ever accepted into them. \
    Use a new database, or, if this one holds nothing else, start over: \
    drop schema paceline cascade; drop schema public cascade; create schema public";

/// Whether tables of ours are in the schema for users of the outbox, which has views
/// alone. An earlier version followed the server's search path, and so a role called
/// `paceline` made its first tables in `public` and the others there.
async fn is_split(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "-- migrate: is_split
        select current_schema() is distinct from 'paceline' and exists (
            select from pg_class c join pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'paceline' and c.relname in ('smart_limits', '_sqlx_migrations')
        )",
    )
    .fetch_one(connection)
    .await
}

/// What to do about a database that [`Found::is_ours`] denies.
const NOT_OURS: &str = "the schema is of a version from before the first release, which is not \
    brought forward. Use a new database, or, if this one holds nothing else, start over: \
    drop schema if exists paceline cascade; drop schema public cascade; create schema public";

/// What was migrated.
struct Found {
    /// The newest version; 0 where nobody has migrated.
    version: i64,
    /// The first migration was ours, or none was. No migration changes once it is
    /// released, so a database that began with another is of no version before this.
    is_ours: bool,
}

async fn found(connection: &mut PgConnection) -> Result<Found, sqlx::Error> {
    let first = MIGRATOR.iter().next();
    let found = sqlx::query_as(
        "-- migrate: found
        select coalesce(max(version) filter (where success), 0),
            coalesce(bool_and(version <> $1 or checksum = $2), true)
        from _sqlx_migrations",
    )
    .bind(first.map(|first| first.version))
    .bind(first.map(|first| first.checksum.as_ref()))
    .fetch_one(connection)
    .await;
    let (version, is_ours) = match found {
        // No such table: nobody has migrated yet.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => (0, true),
        found => found?,
    };
    Ok(Found { version, is_ours })
}

/// The error, with what to do where that is known.
fn why_not(error: &MigrateError) -> String {
    let source = match error {
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => source,
        other => return format!("migrate: {other}"),
    };
    let is_no_right =
        (source.as_database_error()).is_some_and(|error| error.code().as_deref() == Some("42501"));
    let hint = match is_no_right {
        true => "; the role needs to own the database, or: grant create, usage on schema public",
        false => "",
    };
    format!("migrate: {error}: {}{hint}", in_words(source))
}

/// Each migration is one transaction, so one that met a lock has done nothing, and
/// holds nothing while it pauses.
async fn as_locks_allow(connection: &mut PgConnection) -> Result<(), MigrateError> {
    let began = Instant::now();
    loop {
        let error = match MIGRATOR.run(&mut *connection).await {
            Err(error) if met_a_lock(&error) => error,
            done => return done,
        };
        let holders = holders(connection).await;
        tracing::warn!(
            holders,
            "the migration waits for a lock, and for nobody else to wait for it: end those \
            transactions, or let them end"
        );
        if began.elapsed() >= PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn met_a_lock(error: &MigrateError) -> bool {
    let (MigrateError::Execute(sqlx::Error::Database(error))
    | MigrateError::ExecuteMigration(sqlx::Error::Database(error), _)) = error
    else {
        return false;
    };
    error.code().as_deref() == Some("55P03")
}

/// The transactions that are open for longest: one of them holds the lock.
async fn holders(connection: &mut PgConnection) -> String {
    let found: Result<Vec<String>, sqlx::Error> = sqlx::query_scalar(
        "-- migrate: holders
        select format('pid %s (%s), open for %s s', a.pid,
            coalesce(nullif(a.application_name, ''), a.usename, 'unknown'),
            floor(extract(epoch from clock_timestamp() - a.xact_start)))
        from pg_stat_activity a
        where a.datname = current_database() and a.pid <> pg_backend_pid()
            and a.xact_start is not null
        order by a.xact_start
        limit 3",
    )
    .fetch_all(connection)
    .await;
    match found {
        Ok(found) if found.is_empty() => "none that can be seen".to_owned(),
        Ok(found) => found.join(", "),
        Err(error) => in_words(&error),
    }
}

/// The newest version that this binary knows.
fn needed() -> i64 {
    MIGRATOR
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// Whether the schema is at least the one that this binary needs. A newer one is
/// what binaries of the version before see during a rollout: they go on.
pub(super) async fn ready(pool: &PgPool) -> Result<(), CatalogError> {
    let unavailable = |problem| CatalogError::Store(StoreError::Unavailable(problem));
    let look = async { found(&mut *pool.acquire().await?).await };
    let schema = look.await.map_err(|error| unavailable(in_words(&error)))?;
    if !schema.is_ours {
        return Err(unavailable(NOT_OURS.to_owned()));
    }
    let (found, needed) = (schema.version, needed());
    if found < needed {
        return Err(CatalogError::Schema { found, needed });
    }
    match days::has_today(pool).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            // No scheduler has run for days: the next look finds them.
            days::make_if_missing(pool).await;
            Err(unavailable("no partitions for today".to_owned()))
        }
        Err(error) => Err(unavailable(in_words(&error))),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_in_the_list() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres");
        let files: BTreeSet<String> = (std::fs::read_dir(folder).unwrap())
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        let listed = |(version, about, _): &(i64, &str, &str)| {
            format!("{version:04}_{}.sql", about.replace(' ', "_"))
        };
        let listed: Vec<String> = MIGRATIONS.iter().map(listed).collect();
        assert!(files.iter().eq(&listed), "{files:?}, {listed:?}");
    }
}
