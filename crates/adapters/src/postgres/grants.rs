//! The rights of the role that workers have, where they have one of their own.

use engine::ports::StoreError;
use sqlx::PgPool;

use super::failure::Failure;

/// For people too, who give them by `psql`.
const GRANTS: &str = include_str!("../../../../examples/worker_grants.sql");

/// The role that they name.
const NAMED: &str = "paceline_worker";

/// Gives them to this role instead, and takes back what an earlier schema gave it. All or
/// nothing; processes that do so at once take turns.
pub(super) async fn to_workers(pool: &PgPool, role: &str) -> Result<(), StoreError> {
    let mut connection = pool.acquire().await.map_err(Failure::from)?;
    let grants = sqlx::AssertSqlSafe(GRANTS.replace(NAMED, &quoted(role)));
    let granted = sqlx::raw_sql(grants).execute(&mut *connection).await;
    if granted.is_err() {
        // In the middle of its transaction it is of no use to anybody.
        connection.close_on_drop();
    }
    granted.map_err(Failure::from)?;
    Ok(())
}

/// As a name in SQL.
fn quoted(role: &str) -> String {
    format!("\"{}\"", role.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_a_name_whatever_it_says() {
        assert_eq!(quoted("of workers"), "\"of workers\"");
        assert_eq!(quoted("a\"; drop"), "\"a\"\"; drop\"");
        assert!(GRANTS.contains(&format!("to {NAMED};")));
    }
}
