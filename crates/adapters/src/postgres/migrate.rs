//! The schema: brought forward, and compared.

use engine::ports::CatalogError;
use engine::ports::StoreError;
use sqlx::PgPool;
use sqlx::migrate::Migrator;

use super::days;
use super::failure::in_words;

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/postgres");

/// Brings the schema forward, under an advisory lock. On a connection of its
/// own that is closed afterwards: a migration, or the wait for somebody else's,
/// may take longer than any other statement of ours.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    let unavailable = |error: sqlx::Error| StoreError::Unavailable(in_words(&error));
    let mut connection = pool.acquire().await.map_err(unavailable)?;
    sqlx::raw_sql(
        "-- migrate: patience
        set statement_timeout = 0;
        set lock_timeout = 0;
        set idle_in_transaction_session_timeout = 0",
    )
    .execute(&mut *connection)
    .await
    .map_err(unavailable)?;
    let migrated = MIGRATOR.run(&mut *connection).await;
    let made = match &migrated {
        Ok(()) => days::make(&mut connection).await,
        Err(_) => Ok(0),
    };
    connection.close().await.map_err(unavailable)?;
    migrated.map_err(|error| StoreError::Unavailable(format!("migrate: {error}")))?;
    made.map_err(unavailable)?;
    Ok(())
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
    let found = match sqlx::query_scalar::<_, Option<i64>>(
        "-- ready
        select max(version) from _sqlx_migrations where success",
    )
    .fetch_one(pool)
    .await
    {
        Ok(found) => found.unwrap_or(0),
        // No such table: nobody has migrated yet.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P01") => 0,
        Err(error) => {
            return Err(CatalogError::Store(StoreError::Unavailable(in_words(
                &error,
            ))));
        }
    };
    let needed = needed();
    if found < needed {
        return Err(CatalogError::Schema { found, needed });
    }
    let unavailable = |problem| CatalogError::Store(StoreError::Unavailable(problem));
    match days::has_today(pool).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(unavailable("no partitions for today".to_owned())),
        Err(error) => Err(unavailable(in_words(&error))),
    }
}
