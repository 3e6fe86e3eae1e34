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

#[cfg(test)]
mod tests {
    use rusqlite::functions::FunctionFlags;
    use rusqlite::types::ValueRef;

    use super::*;

    /// To `sqlite3` before 3.45, which many machines have, a null is no valid JSON: 0 where
    /// later ones say null, which a check takes for a pass. Without the guard nobody there
    /// could insert a destination.
    #[test]
    fn an_older_shell_can_leave_out_what_may_be_null() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        let flags = FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
        let as_before =
            |context: &rusqlite::functions::Context<'_>| Ok(context.get_raw(0) != ValueRef::Null);
        (connection.create_scalar_function("json_valid", 1, flags, as_before)).unwrap();
        let tenant = "00000000-0000-0000-0000-000000000001";
        let insert = "insert into destinations (id, tenant_id, url) values ('a', ?1, 'https://a')";
        connection.execute(insert, [tenant]).unwrap();
        let insert = "insert into destinations (id, tenant_id, url, filter)
            values ('b', ?1, 'https://b', null)";
        connection.execute(insert, [tenant]).unwrap();
    }

    /// `insert or replace` deletes without a trigger. It would change what members may, and
    /// neither revoke nor wake; and whoever joins and leaves all day leaves a few rows.
    #[test]
    fn a_group_with_members_is_updated_and_not_replaced() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        let tenant = "00000000-0000-0000-0000-000000000001";
        let group = format!(
            "or replace into limit_groups (tenant_id, name, limit_per_second)
            values ('{tenant}', 'acme', 8)"
        );
        connection.execute(&format!("insert {group}"), []).unwrap();
        connection.execute(&format!("insert {group}"), []).unwrap();
        let member = "insert into destinations (id, tenant_id, url, limit_group)
            values ('a', ?1, 'https://a', 'acme')";
        connection.execute(member, [tenant]).unwrap();
        let refused = connection
            .execute(&format!("insert {group}"), [])
            .unwrap_err();
        assert!(refused.to_string().contains("has members"), "{refused}");
        for group in ["null", "'acme'"].repeat(40) {
            let change = format!("update destinations set limit_group = {group}");
            connection.execute(&change, []).unwrap();
        }
        let rows = "select count(*) from limit_group_members";
        let rows: i64 = connection.query_row(rows, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 21);
    }

    /// Of any column of any table, also of those that are yet to come.
    #[test]
    fn what_may_be_null_is_asked_for_null_first() {
        let mut checks = 0;
        for (version, migration) in MIGRATIONS {
            for (at, call) in migration.match_indices("json_valid(") {
                let (before, after) = migration.split_at(at);
                let (column, _) = after[call.len()..].split_once(')').unwrap();
                let declared = before.rfind(&format!("\n    {column} ")).unwrap();
                let (declared, _) = before[declared + 1..].split_once('\n').unwrap();
                let guard = format!("{column} is null or ");
                let is_safe = declared.contains("not null") || before.ends_with(&guard);
                assert!(is_safe, "migration {version}: {guard}json_valid({column})");
                checks += 1;
            }
        }
        assert!(checks > 0);
    }
}
