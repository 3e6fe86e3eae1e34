//! The schema, applied when the file is opened.

use engine::ports::{CatalogError, StoreError};
use rusqlite::{Connection, TransactionBehavior};

use super::fault::Fault;

/// The migrations in their order, each with its number; that of the last one applied is
/// the file's `user_version`. A number that is missing is of Postgres alone.
const MIGRATIONS: &[(i64, &str)] = &[
    (
        1,
        include_str!("../../../../migrations/sqlite/0001_limits.sql"),
    ),
    (
        2,
        include_str!("../../../../migrations/sqlite/0002_events.sql"),
    ),
    (
        3,
        include_str!("../../../../migrations/sqlite/0003_attempts.sql"),
    ),
    (
        4,
        include_str!("../../../../migrations/sqlite/0004_changes.sql"),
    ),
    (
        5,
        include_str!("../../../../migrations/sqlite/0005_receivers.sql"),
    ),
    (
        6,
        include_str!("../../../../migrations/sqlite/0006_notifications.sql"),
    ),
    (
        7,
        include_str!("../../../../migrations/sqlite/0007_people.sql"),
    ),
    (
        8,
        include_str!("../../../../migrations/sqlite/0008_upkeep.sql"),
    ),
];

/// The version that this binary needs.
const NEEDED: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// The file's `application_id`, "PCL1": these migrations have made it.
const OURS: i64 = 0x5043_4c31;

/// What to do about a file that other migrations have made.
const NOT_OURS: &str = "its schema is another program's, or of a version from before the first release, \
    which is not brought forward: name another file, or move this one away, and a new one is made";

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
        let next = MIGRATIONS.iter().find(|(version, _)| *version > found);
        let Some((version, migration)) = next else {
            return Ok(());
        };
        tx.execute_batch(migration)?;
        tx.pragma_update(None, "application_id", OURS)?;
        tx.pragma_update(None, "user_version", version)?;
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

/// 0 for an empty file.
fn version(connection: &Connection) -> Result<i64, Fault> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let found = pragma("user_version")?;
    if found != 0 && pragma("application_id")? != OURS {
        return Err(StoreError::Unavailable(NOT_OURS.to_owned()).into());
    }
    Ok(found)
}
