//! What a run costs: by the pages that it touches, not by a clock.

use std::time::Duration;

use adapters::postgres::{PostgresOptions, PostgresStore};
use domain::ids::DestinationId;
use engine::ports::{DEFAULT_TENANT, Operations, Run, Store, WatchRules};

use crate::database::{Database, per_second};

async fn pages_of_ten_runs(database: &Database, destination: DestinationId) -> i64 {
    let run = Run {
        destination,
        republish: false,
    };
    let ten_runs = async |store: PostgresStore| {
        for _ in 0..10 {
            let room = domain::share::Room::of(u32::MAX);
            store.admit(&[run], &room).await.unwrap();
        }
    };
    pages_of(database, ten_runs).await
}

async fn pages_of_ten_looks(database: &Database) -> i64 {
    let rules = WatchRules {
        every: Duration::ZERO,
        patience: Duration::ZERO,
        ..WatchRules::default()
    };
    let ten_looks = async |store: PostgresStore| {
        for _ in 0..10 {
            assert_eq!(store.watch(&rules).await.unwrap().looked, 1);
        }
    };
    pages_of(database, ten_looks).await
}

/// Pages of tables and indexes touched by this on a connection of its own. Its
/// counters are added to the statistics when it ends.
async fn pages_of(database: &Database, work: impl AsyncFn(PostgresStore)) -> i64 {
    let touched = "select sum(
            heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
        )::bigint
        from pg_statio_user_tables";
    let ours = "select count(*) from pg_stat_activity where application_name = 'paceline'
        and datname = current_database()";
    let others = database.number(ours).await;
    let before = database.number(touched).await;
    let options = PostgresOptions {
        url: database.url.clone(),
        max_connections: 1,
    };
    let store = PostgresStore::connect(options).await.unwrap();
    work(store.clone()).await;
    store.close().await;
    while database.number(ours).await > others {
        tokio::task::yield_now().await;
    }
    database.number(touched).await - before
}

async fn backlog(database: &Database, destination: DestinationId, from: u32, to: u32) {
    database
        .sql(&format!(
            "insert into attempts (event_id, destination_id, tenant_id, due_at)
            select e.id, '{destination}', '{DEFAULT_TENANT}',
                case when g % 2 = 0 then clock_timestamp() end
            from (select id from events limit 1) e, generate_series({from} + 1, {to}) g"
        ))
        .await;
}

/// With the statistics of an empty table, and with true ones.
#[tokio::test]
async fn a_run_costs_the_same_whatever_the_backlog() {
    let database = Database::create().await;
    database
        .sql("alter table attempts set (autovacuum_enabled = off)")
        .await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    database.permits(destination).await;
    let small = pages_of_ten_runs(&database, destination).await;
    backlog(&database, destination, 1_000, 200_000).await;
    let large = pages_of_ten_runs(&database, destination).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_runs(&database, destination).await;
    assert!(small > 50, "the counters count: {small}");
    // One level more in each index, and no more.
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}

/// Two hundred thousand wait, and the watch counts up to its threshold.
#[tokio::test]
async fn a_look_of_the_watch_costs_the_same_whatever_the_backlog() {
    let database = Database::create().await;
    database
        .sql("alter table attempts set (autovacuum_enabled = off)")
        .await;
    let destination = database.destination(per_second(100)).await;
    database
        .sql("update destinations set alert_backlog = 300")
        .await;
    database.accept(destination, 1).await;
    backlog(&database, destination, 0, 1_000).await;
    pages_of_ten_looks(&database).await;
    let small = pages_of_ten_looks(&database).await;
    backlog(&database, destination, 1_000, 200_000).await;
    let large = pages_of_ten_looks(&database).await;
    database.sql("analyze").await;
    let analyzed = pages_of_ten_looks(&database).await;
    assert!(small > 50, "the counters count: {small}");
    let most = small + small / 2;
    assert!(
        large <= most && analyzed <= most,
        "{small}, then {large}, analyzed {analyzed}"
    );
}
