//! What is asked for beyond a ceiling: what SQL is told, and who is locked first.

use engine::ports::{
    CatalogError, DEFAULT_TENANT, LimitRequestState, LimitRequests, NewDestinationsRequest,
};
use sqlx::postgres::PgDatabaseError;

use crate::database::{Database, run};

/// Whoever inserts by SQL is told what a ceiling of bytes asks for.
#[tokio::test]
async fn batches_without_bytes_are_refused_with_what_to_do() {
    let database = Database::create().await;
    let tenant = database.id();
    let bounded = format!(
        "update tiers set ceiling_batch_bytes = 1000 where name = 'free';
        insert into tenants (id, name, tier) values ('{tenant}', 'bounded', 'free')"
    );
    database.sql(&bounded).await;
    let insert = format!(
        "insert into destinations (id, tenant_id, url, batch_max_events)
        values (gen_random_uuid(), '{tenant}', 'https://x.example/', 2)"
    );
    let refused = database.refused(&insert).await;
    let refused = refused.as_database_error().unwrap();
    let hint = refused.downcast_ref::<PgDatabaseError>().hint();
    let hint = hint.unwrap_or_default();
    assert!(hint.contains("batch_max_bytes is null"), "{hint}");
}

/// The tenant is locked before its request, as its deletion does it: neither waits for what
/// the other has.
#[tokio::test]
async fn a_decision_waits_for_the_end_of_its_tenant() {
    let database = Database::create().await;
    let new = NewDestinationsRequest {
        id: database.id(),
        destinations: 30,
        note: String::new(),
    };
    let asked = (database.store).request_destinations(DEFAULT_TENANT, &new);
    let request = asked.await.unwrap();
    let mut user = database.user().await;
    let lock =
        format!("begin; select from tenants where id = '{DEFAULT_TENANT}' for no key update");
    run(&mut user, lock).await;
    let store = database.store.clone();
    let deciding = tokio::spawn(async move {
        let approved = LimitRequestState::Approved;
        store.decide_limit_request(request, approved, "").await
    });
    database.until_somebody_waits().await;
    run(&mut user, "delete from limit_requests; commit".to_owned()).await;
    let decided = deciding.await.unwrap();
    assert!(
        matches!(decided, Err(CatalogError::Conflict(_))),
        "{decided:?}"
    );
}
