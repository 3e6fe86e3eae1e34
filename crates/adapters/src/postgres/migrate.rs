//! The schema: brought forward, and compared.

use engine::ports::CatalogError;
use engine::ports::StoreError;
use sqlx::PgPool;
use sqlx::migrate::Migrator;

use super::failure::in_words;

static MIGRATOR: Migrator = sqlx::migrate!("../../migrations/postgres");

/// Brings the schema forward, under an advisory lock.
pub(super) async fn migrate(pool: &PgPool) -> Result<(), StoreError> {
    (MIGRATOR.run(pool).await).map_err(|error| StoreError::Unavailable(format!("migrate: {error}")))
}

/// The newest version that this binary knows.
fn needed() -> i64 {
    MIGRATOR
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// Whether the schema is the one that this binary needs.
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
    if found == needed {
        Ok(())
    } else {
        Err(CatalogError::Schema { found, needed })
    }
}
