//! The schema, applied when the file is opened.

use engine::ports::{CatalogError, StoreError};
use rusqlite::{Connection, TransactionBehavior};

use super::fault::Fault;

/// The migrations in their order; the number of those applied is the file's
/// `user_version`.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../../migrations/sqlite/0001_init.sql"),
    include_str!("../../../../migrations/sqlite/0002_secrets.sql"),
    include_str!("../../../../migrations/sqlite/0003_health.sql"),
    include_str!("../../../../migrations/sqlite/0004_retries.sql"),
    include_str!("../../../../migrations/sqlite/0005_ingest.sql"),
    include_str!("../../../../migrations/sqlite/0006_keys.sql"),
    include_str!("../../../../migrations/sqlite/0007_outbox.sql"),
    include_str!("../../../../migrations/sqlite/0012_head_start.sql"),
    include_str!("../../../../migrations/sqlite/0013_smart.sql"),
    include_str!("../../../../migrations/sqlite/0014_notifications.sql"),
    include_str!("../../../../migrations/sqlite/0017_backpressure.sql"),
    include_str!("../../../../migrations/sqlite/0018_batches.sql"),
    include_str!("../../../../migrations/sqlite/0019_retention.sql"),
    include_str!("../../../../migrations/sqlite/0020_partitions.sql"),
    include_str!("../../../../migrations/sqlite/0021_horizon.sql"),
    include_str!("../../../../migrations/sqlite/0022_deferred.sql"),
    include_str!("../../../../migrations/sqlite/0025_managers.sql"),
    include_str!("../../../../migrations/sqlite/0035_dashboard.sql"),
    include_str!("../../../../migrations/sqlite/0036_traces.sql"),
    include_str!("../../../../migrations/sqlite/0040_events_of_tenant.sql"),
    include_str!("../../../../migrations/sqlite/0041_links.sql"),
    include_str!("../../../../migrations/sqlite/0042_tallies.sql"),
];

/// The version that this binary needs.
const NEEDED: i64 = MIGRATIONS.len() as i64;

/// Brings the file to the version that this binary needs, each migration in a
/// transaction of its own.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), Fault> {
    loop {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = version(&tx)?;
        if found > NEEDED {
            let newer = format!("its schema is at version {found}, this binary knows {NEEDED}");
            return Err(StoreError::Unavailable(newer).into());
        }
        let next = usize::try_from(found)
            .ok()
            .and_then(|found| MIGRATIONS.get(found));
        let Some(migration) = next else {
            return Ok(());
        };
        tx.execute_batch(migration)?;
        tx.pragma_update(None, "user_version", found + 1)?;
        tx.commit()?;
    }
}

/// An error unless the schema is the one that this binary needs.
pub(super) fn ready(connection: &Connection) -> Result<(), Fault> {
    let found = version(connection)?;
    if found == NEEDED {
        return Ok(());
    }
    let needed = NEEDED;
    Err(CatalogError::Schema { found, needed }.into())
}

fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.query_row("pragma user_version", [], |row| row.get(0))?)
}
