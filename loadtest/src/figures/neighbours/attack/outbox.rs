//! An attack by a program that inserts into the outbox in transactions of its own, and
//! commits them late: what came after them has long been read.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;
use uuid::Uuid;

use super::attacker::{Attacker, NOBODY};
use super::underway::Underway;

/// Transactions that are open at once, and rows of each.
const PROGRAMS: u64 = 20;
const ROWS: i32 = 200;

pub(super) async fn late_commits(
    attacker: &Attacker,
    underway: &mut Underway,
) -> anyhow::Result<()> {
    let database = attacker.database.as_ref().context("there is no outbox")?;
    let seldom = json!({"limits": {"per_minute": 1}});
    let destination: Uuid = attacker.destination(NOBODY, seldom).await?.parse()?;
    for number in 0..PROGRAMS {
        let (database, tenant) = (database.clone(), attacker.tenant);
        // In another order than they began in, while the neighbours are measured.
        let open_for = Duration::from_millis(500 + 700 * (number * 7 % PROGRAMS));
        underway.repeat(move || {
            let database = database.clone();
            async move { commit_late(&database, (tenant, destination), open_for).await }
        });
    }
    Ok(())
}

async fn commit_late(
    database: &str,
    (tenant, destination): (Uuid, Uuid),
    open_for: Duration,
) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    let mut transaction = connection.begin().await?;
    sqlx::query(
        "-- commit_late
        insert into outbox (tenant_id, destination_id, payload)
        select $1, $2, '{}' from generate_series(1, $3::int)",
    )
    .bind(tenant)
    .bind(destination)
    .bind(ROWS)
    .execute(&mut *transaction)
    .await
    .context("insert into the outbox")?;
    sleep(open_for).await;
    transaction.commit().await?;
    Ok(())
}
