//! What people ask for costs what they are shown, not what there is: in pages.

use adapters::postgres::PostgresStore;
use domain::ids::DestinationId;
use domain::time::Timestamp;
use engine::ports::{Catalog, DEFAULT_TENANT, Tenants};

use crate::database::{Database, per_second};

async fn others(database: &Database, count: u32) {
    database
        .sql(&format!(
            "insert into tenants (id, name, tier)
            select gen_random_uuid(), 'other', 'standard' from generate_series(1, {count})"
        ))
        .await;
    database
        .sql(&format!(
            "insert into destinations (id, tenant_id, url)
            select gen_random_uuid(), '{DEFAULT_TENANT}', 'https://x.example/'
            from generate_series(1, {count})"
        ))
        .await;
    database.sql("vacuum analyze destinations, tenants").await;
}

async fn pages_of_looks(database: &Database, one: DestinationId) -> i64 {
    let looks = async |store: PostgresStore| {
        for _ in 0..20 {
            store.destination(DEFAULT_TENANT, one).await.unwrap();
            store.tenant(DEFAULT_TENANT).await.unwrap();
        }
    };
    database.pages_of(looks).await
}

/// Beside five others, and beside five thousand.
#[tokio::test]
async fn one_destination_costs_the_same_whatever_the_others() {
    let database = Database::create().await;
    let one = database.destination(per_second(1)).await;
    others(&database, 5).await;
    let few = pages_of_looks(&database, one).await;
    others(&database, 5_000).await;
    let many = pages_of_looks(&database, one).await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}

async fn pages_of_limits(database: &Database, of: DestinationId) -> i64 {
    let now = database.number("select micros(clock_timestamp())").await;
    let looks = async |store: PostgresStore| {
        for since in [0, now].map(Timestamp::from_micros) {
            for _ in 0..10 {
                store.recent_limits(of, since, 10).await.unwrap();
            }
        }
    };
    database.pages_of(looks).await
}

/// A page shows ten changes: after two thousand, and after twenty thousand.
#[tokio::test]
async fn recent_limits_cost_the_same_whatever_came_before() {
    let database = Database::create().await;
    let of = database.destination(per_second(1)).await;
    let change = async |count| {
        database
            .sql(&format!(
                "insert into limit_history (
                    destination_id, in_force_from, unlimited, safety_margin, state
                )
                select '{of}', clock_timestamp(), true, 0, 'active'
                from generate_series(1, {count})"
            ))
            .await;
        database.sql("vacuum analyze limit_history").await;
    };
    change(2_000).await;
    let few = pages_of_limits(&database, of).await;
    change(20_000).await;
    let many = pages_of_limits(&database, of).await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}
