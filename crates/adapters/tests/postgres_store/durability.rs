//! What waits for the disk.

use engine::ports::{ClaimAnswer, Store};
use sqlx::PgConnection;

use crate::database::{Database, per_second};

async fn position(user: &mut PgConnection, function: &str) -> i64 {
    let sql = format!("select ({function}() - '0/0'::pg_lsn)::bigint");
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_one(user)
        .await
        .unwrap()
}

/// An admission need not wait for the disk, because a claim does: what was
/// written before it, its admission above all, is flushed with it.
#[tokio::test]
async fn a_claim_is_on_the_disk_and_so_is_its_admission() {
    let database = Database::create().await;
    let worker = database.worker().await;
    let destination = database.destination(per_second(100)).await;
    let mut user = database.user().await;
    for round in 0..20 {
        database.accept(destination, 1).await;
        let permits = database.permits(destination).await;
        database.let_nothing_lapse().await;
        let admitted = position(&mut user, "pg_current_wal_insert_lsn").await;
        let claims = database.store.claim_starts(worker, &permits).await.unwrap();
        let flushed = position(&mut user, "pg_current_wal_flush_lsn").await;
        assert!(matches!(claims.answers[..], [ClaimAnswer::Started(_)]));
        assert!(flushed > admitted, "round {round}");
    }
}
