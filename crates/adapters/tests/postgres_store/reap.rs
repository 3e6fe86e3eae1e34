//! What a pass of the reaper costs, and what it does not let stop it.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use engine::ports::{DEFAULT_TENANT, ReapRules, Store, StoreError, Wake};
use sqlx::Connection;

use crate::database::{Database, per_second, run};

/// Nobody's start is given up, and every permit is past its time.
const RULES: ReapRules = ReapRules {
    heartbeat_timeout: Duration::from_secs(3_600),
    start_timeout: Duration::from_secs(3_600),
    permit_grace: Duration::ZERO,
    everything: true,
};

/// Destinations that were deleted ten minutes ago.
async fn deleted(database: &Database, count: u32) {
    database
        .sql(&format!(
            "insert into destinations (id, tenant_id, url, deleted_at)
            select gen_random_uuid(), '{DEFAULT_TENANT}', 'https://x.example/',
                clock_timestamp() - interval '10 minutes'
            from generate_series(1, {count})"
        ))
        .await;
}

/// Passes until there is nothing more to do; then pages of ten passes.
async fn pages_of_passes(database: &Database) -> i64 {
    loop {
        let reaped = database.store.reap(&RULES, 1_000).await.unwrap();
        // On a busy machine a part of a pass may not end in its time.
        if !reaped.more && reaped.put_off.is_empty() {
            break;
        }
    }
    let left =
        "select count(*) from destinations where deleted_at is not null and drained_at is null";
    assert_eq!(database.number(left).await, 0, "all are finished");
    database.sql("vacuum analyze destinations").await;
    let ten_passes = async |store: PostgresStore| {
        for _ in 0..10 {
            store.reap(&RULES, 1_000).await.unwrap();
        }
    };
    database.pages_of(ten_passes).await
}

/// Deleted destinations are finished once: later passes do not come to them.
#[tokio::test]
async fn a_pass_costs_the_same_whatever_was_deleted() {
    let database = Database::create().await;
    deleted(&database, 5).await;
    let few = pages_of_passes(&database).await;
    deleted(&database, 5_000).await;
    let many = pages_of_passes(&database).await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}

/// Buckets of starts that windows may still reach.
#[tokio::test]
async fn a_pass_costs_the_same_however_many_buckets_are_young() {
    let database = Database::create().await;
    let few = pages_of_passes(&database).await;
    let destination = database.destination(per_second(100)).await;
    let young = format!(
        "insert into start_buckets (destination_id, period, ends_at, shard, starts)
        select '{destination}', p, clock_timestamp() + n * interval '1 ms', 0, 1
        from generate_series(1, 5000) n, unnest(array['second', 'hour']) p"
    );
    database.sql(&young).await;
    let many = pages_of_passes(&database).await;
    assert!(many <= few + few / 2, "{few}, then {many}");
}

/// Of a worker and of a bucket nothing else tells.
#[tokio::test]
async fn what_is_only_to_be_forgotten_is_found() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.worker().await;
    let worker = "update workers set seen_at = clock_timestamp() - interval '2 hours'";
    let bucket = format!(
        "insert into start_buckets (destination_id, period, ends_at, shard, starts)
        values ('{destination}', 'second', clock_timestamp() - interval '1 hour', 0, 1)"
    );
    for (table, old) in [("workers", worker), ("start_buckets", &bucket)] {
        database.sql(old).await;
        let count = format!("select count(*) from {table}");
        assert_eq!(database.number(&count).await, 1, "{table}");
        database.store.reap(&RULES, 1_000).await.unwrap();
        assert_eq!(database.number(&count).await, 0, "{table}");
    }
}

const PERMITS_ARE_PAST: &str = "update attempts
    set not_before = clock_timestamp() - interval '10 seconds',
        deadline = clock_timestamp() - interval '9 seconds'
    where state = 'admitted'";

/// Somebody holds the table of keys: permits come back all the same.
#[tokio::test]
async fn a_part_that_cannot_go_on_stops_no_other() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 3).await;
    assert_eq!(database.permits(destination).await.len(), 3);
    database.sql(PERMITS_ARE_PAST).await;
    let mut user = database.user().await;
    let mut holding = user.begin().await.unwrap();
    let hold = "lock table idempotency_keys in access exclusive mode";
    run(&mut holding, hold.to_owned()).await;
    let reaped = database.store.reap(&RULES, 1_000).await.unwrap();
    assert_eq!(reaped.expired_permits, 3);
    let put_off: Vec<_> = reaped.put_off.iter().map(|part| part.part).collect();
    assert_eq!(put_off, ["idempotency keys"]);
    holding.rollback().await.unwrap();
    let reaped = database.store.reap(&RULES, 1_000).await.unwrap();
    assert_eq!(reaped.put_off, []);
}

/// The server goes away when it comes to the keys: who was freed before is woken all the same.
#[tokio::test]
async fn a_pass_that_is_cut_short_says_whom_it_freed() {
    let database = Database::create().await;
    let destination = database.destination(per_second(100)).await;
    database.accept(destination, 1).await;
    assert_eq!(database.permits(destination).await.len(), 1);
    database.sql(PERMITS_ARE_PAST).await;
    let key = "insert into idempotency_keys (tenant_id, key, digest, event_id, expires_at)
        select id, 'old', '', id, clock_timestamp() - interval '1 second' from tenants";
    database.sql(key).await;
    let says = "create function goes_away() returns trigger language plpgsql as $$
        begin raise exception 'shutting down' using errcode = '57P01'; end $$";
    database.sql(says).await;
    let goes_away = "create trigger goes_away before delete on idempotency_keys
        for each statement execute function goes_away()";
    database.sql(goes_away).await;
    let reaped = database.store.reap(&RULES, 1_000).await.unwrap();
    assert_eq!(reaped.wakes, [Wake::now(destination)]);
    let problem = reaped.cut_short.unwrap();
    assert!(problem.contains("shutting down"), "{problem}");
    let nothing = database.store.reap(&RULES, 1_000).await;
    let is_away = matches!(nothing, Err(StoreError::Unavailable(_)));
    assert!(is_away, "{nothing:?}");
}

/// A destination is finished, and an event for it is committed after that: retention
/// finds it, and the reaper cancels it.
#[tokio::test]
async fn what_is_committed_late_for_a_deleted_destination_is_cancelled() {
    use engine::ports::{Retain, RetainRules, Walk};

    let database = Database::create().await;
    let other = database.destination(per_second(100)).await;
    database.accept(other, 1).await;
    deleted(&database, 1).await;
    database.store.reap(&RULES, 1_000).await.unwrap();
    let drained = "select count(*) from destinations where drained_at is not null";
    assert_eq!(database.number(drained).await, 1);
    let late = "insert into attempts (event_id, destination_id, tenant_id)
        select e.id, d.id, d.tenant_id from events e, destinations d
        where d.deleted_at is not null";
    database.sql(late).await;
    assert_eq!(
        database.store.reap(&RULES, 1_000).await.unwrap().cancelled,
        0
    );
    let rules = RetainRules {
        deleted_for: Duration::ZERO,
        ..RetainRules::default()
    };
    for _ in Walk::ALL {
        let turn = "update retention_turn set due_at = clock_timestamp()";
        database.sql(turn).await;
        database.store.retain(&rules).await.unwrap();
    }
    assert_eq!(database.number(drained).await, 0);
    assert_eq!(
        database.store.reap(&RULES, 1_000).await.unwrap().cancelled,
        1
    );
    assert_eq!(database.number(drained).await, 1);
}
