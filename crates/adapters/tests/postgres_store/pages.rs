//! What people ask for costs what they are shown, not what there is: in pages.

use adapters::postgres::PostgresStore;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    AttemptFilter, Catalog, DEFAULT_TENANT, LedgerPosition, LimitRequest, LimitRequests,
    MAX_ATTEMPTS_EXAMINED, Overview, Store, Tenants,
};

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
    let nobody = TenantId(database.id());
    let looks = async |store: PostgresStore| {
        for _ in 0..20 {
            store.destination(DEFAULT_TENANT, one).await.unwrap();
            store.tenant(DEFAULT_TENANT).await.unwrap();
            let of = AttemptFilter {
                destination: Some(one),
                ..AttemptFilter::default()
            };
            let found = store.find_attempts(DEFAULT_TENANT, &of, None, 10).await;
            found.unwrap();
            // Of a tenant that has none.
            let all = AttemptFilter::default();
            let found = store.find_attempts(nobody, &all, None, 10).await;
            found.unwrap();
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

/// Pages of ten, of a tenant, of one that has none and of all: of two thousand requests, and of
/// twenty thousand.
#[tokio::test]
async fn limit_requests_cost_the_same_whatever_was_asked_for() {
    let database = Database::create().await;
    let of = database.destination(per_second(1)).await;
    let nobody = TenantId(database.id());
    let more = async |count| {
        database
            .sql(&format!(
                "insert into limit_requests (
                    id, tenant_id, destination_id, batch_events, note, state, created_at, decided_at
                )
                select gen_random_uuid(), '{DEFAULT_TENANT}', '{of}', 2, '', 'declined',
                    clock_timestamp(), clock_timestamp()
                from generate_series(1, {count})"
            ))
            .await;
        database.sql("vacuum analyze limit_requests").await;
    };
    let pages = async || {
        let looks = async |store: PostgresStore| {
            for _ in 0..20 {
                for of in [None, Some(DEFAULT_TENANT)] {
                    let listed = store.limit_requests(of, None, 10).await.unwrap();
                    assert_eq!(listed.len(), 10);
                    let on = listed.last().map(LimitRequest::position);
                    let listed = store.limit_requests(of, on, 10).await.unwrap();
                    assert_eq!(listed.len(), 10);
                }
                let listed = store.limit_requests(Some(nobody), None, 10).await.unwrap();
                assert_eq!(listed, []);
            }
        };
        database.pages_of(looks).await
    };
    more(2_000).await;
    let few = pages().await;
    more(18_000).await;
    let many = pages().await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}

async fn pages_of_limits(database: &Database, of: DestinationId) -> i64 {
    let now = database.number("select micros(clock_timestamp())").await;
    let looks = async |store: PostgresStore| {
        for since in [0, now].map(Timestamp::from_micros) {
            for _ in 0..10 {
                store.limits_within(of, (since, None), 10).await.unwrap();
                let old = (Timestamp::from_micros(0), Some(since));
                store.limits_within(of, old, 10).await.unwrap();
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
                    destination_id, in_force_from, unlimited, safety_margin, state, url
                )
                select '{of}', clock_timestamp(), true, 0, 'active', 'https://receiver.example/'
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

/// A page of ten, some way into the retries that wait: of two thousand, and of fifty
/// thousand.
#[tokio::test]
async fn a_page_of_what_waits_costs_the_same_whatever_waits() {
    let database = Database::create().await;
    let of = database.destination(per_second(1)).await;
    database.accept(of, 1).await;
    let retries = async |count| {
        database
            .sql(&format!(
                "insert into attempts (event_id, destination_id, tenant_id, due_at)
                select a.event_id, a.destination_id, a.tenant_id, clock_timestamp()
                from (select * from attempts limit 1) a, generate_series(1, {count})"
            ))
            .await;
        database.sql("vacuum analyze attempts").await;
    };
    let first = AttemptId(database.number("select min(id) from attempts").await);
    let pages = async || {
        let looks = async |store: PostgresStore| {
            for place in 1..=20 {
                let after = LedgerPosition {
                    started_at: None,
                    attempt: AttemptId(first.0 + 50 * place),
                };
                let (since, until) = (Timestamp::from_micros(0), Timestamp::from_millis(1 << 42));
                let page = store
                    .ledger(of, since, until, Some(after), 10)
                    .await
                    .unwrap();
                assert_eq!(page.len(), 10);
            }
        };
        database.pages_of(looks).await
    };
    retries(2_000).await;
    let few = pages().await;
    retries(48_000).await;
    let many = pages().await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}

/// The newest thousand on an event's page, and a search that examines its five thousand: of
/// fifteen thousand attempts, and of sixty thousand. A third each are first attempts, of
/// which the event has the ids, retries that are over, and others that wait.
#[tokio::test]
async fn the_newest_of_an_event_cost_the_same_whatever_it_has() {
    let database = Database::create().await;
    let of = database.destination(per_second(1)).await;
    let event = database.event(of);
    let id = event.id;
    database.store.accept_events(&[event]).await.unwrap();
    let more = async |count| {
        let whose = format!("'{id}', '{of}', '{DEFAULT_TENANT}'");
        let columns = "event_id, destination_id, tenant_id, due_at";
        let over = format!("{columns}, state, claimed_at, started_at, finished_at");
        database
            .sql(&format!(
                "with firsts as (
                    insert into attempts ({over})
                    select {whose}, null, 'succeeded', at, at, at
                    from (select clock_timestamp() as at) n, generate_series(1, {count})
                    returning id
                )
                update events set deliveries = deliveries || (select array_agg(id) from firsts)
                where id = '{id}';
                insert into attempts ({over})
                select {whose}, at, 'succeeded', at, at, at
                from (select clock_timestamp() as at) n, generate_series(1, {count});
                insert into attempts ({columns})
                select {whose}, clock_timestamp() from generate_series(1, {count})"
            ))
            .await;
        database.sql("vacuum analyze attempts").await;
        database.sql("vacuum analyze events").await;
    };
    let pages = async || {
        let looks = async |store: PostgresStore| {
            let (_, attempts) = store.event(DEFAULT_TENANT, id).await.unwrap();
            assert_eq!(attempts.len(), 1_000);
            let filter = AttemptFilter {
                text: Some(id.to_string()),
                ..AttemptFilter::default()
            };
            let page = store.find_attempts(DEFAULT_TENANT, &filter, None, 50).await;
            assert_eq!(page.unwrap().attempts.len(), 50);
            // To where nothing went: all that it examines, and where to go on.
            let nowhere = AttemptFilter {
                destination: Some(DestinationId(database.id())),
                ..filter
            };
            let page = store
                .find_attempts(DEFAULT_TENANT, &nowhere, None, 50)
                .await;
            let page = page.unwrap();
            assert!(page.attempts.is_empty() && page.next.is_some());
        };
        database.pages_of(looks).await
    };
    more(MAX_ATTEMPTS_EXAMINED).await;
    let few = pages().await;
    more(3 * MAX_ATTEMPTS_EXAMINED).await;
    let many = pages().await;
    assert!(few > 50, "the counters count: {few}");
    assert!(many <= few + few / 2, "{few}, then {many}");
}
