//! Who holds a destination is read after its row is locked, and stays until the
//! change commits.

use adapters::postgres::PostgresStore;
use domain::ids::DestinationId;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, Destination, DestinationChange, Managed, Manager, Managers,
    SealedKind, SecretStore, SingleChange,
};

use crate::database::{Database, per_second, run};

/// A destination that the resource let go.
async fn released(database: &Database) -> DestinationId {
    let id = database.destination(per_second(5)).await;
    let released = "insert into destination_managers (destination_id, tenant_id, resource)
        select id, tenant_id, 'paceline/shop' from destinations";
    database.sql(released).await;
    id
}

/// The API's change of its name.
async fn renamed(
    store: PostgresStore,
    id: DestinationId,
    headers: Vec<SingleChange>,
) -> Result<Destination, CatalogError> {
    let change = DestinationChange {
        name: Some("API".to_owned()),
        ..DestinationChange::default()
    };
    let of = Managed::by_nobody(DEFAULT_TENANT, id);
    store.change_destination_with(of, &change, &headers).await
}

async fn take_over(database: &Database, id: DestinationId) {
    let holder = Manager {
        resource: "paceline/shop".to_owned(),
        uid: "one".to_owned(),
    };
    let taken = database.store.take_over(DEFAULT_TENANT, id, &holder);
    taken.await.unwrap();
}

/// The API's change waited for the row while the resource took it over: it is
/// refused, however early it was asked.
#[tokio::test]
async fn a_change_that_waited_finds_who_holds_it_by_then() {
    let database = Database::create().await;
    let id = released(&database).await;
    let mut user = database.user().await;
    let lock = format!("begin; update destinations set name = 'user' where id = '{id}'");
    run(&mut user, lock).await;

    let waiting = tokio::spawn(renamed(database.store.clone(), id, Vec::new()));
    database.until_somebody_waits().await;
    take_over(&database, id).await;
    run(&mut user, "commit".to_owned()).await;
    let changed = waiting.await.unwrap();
    assert!(
        matches!(changed, Err(CatalogError::Conflict(_))),
        "{changed:?}"
    );
    let theirs = "select count(*) from destinations where name = 'user'";
    assert_eq!(database.number(theirs).await, 1);
}

/// And the other way round: who takes it over waits for a change that has begun,
/// and sees it.
#[tokio::test]
async fn a_take_over_waits_for_a_change_that_has_begun() {
    let database = Database::create().await;
    let id = released(&database).await;
    // A change stops in its midst: it has the destination and who holds it, and
    // waits for the secret.
    let sealed = format!(
        "insert into destination_secrets (
            id, tenant_id, destination_id, kind, key_id, sealed, shown
        )
        select gen_random_uuid(), tenant_id, id, 'headers', 'one', ''::bytea, 'x-one'
        from destinations where id = '{id}'"
    );
    database.sql(&sealed).await;
    let mut user = database.user().await;
    run(
        &mut user,
        "begin; select from destination_secrets for update".to_owned(),
    )
    .await;
    let clear = vec![SingleChange::Clear(SealedKind::Headers)];
    let changing = tokio::spawn(renamed(database.store.clone(), id, clear));
    database.until_somebody_waits().await;
    let mut probe = database.user().await;
    let busy = sqlx::query("select from destination_managers for update nowait")
        .execute(&mut probe)
        .await;
    assert!(busy.is_err(), "nobody takes it over meanwhile");
    run(&mut user, "commit".to_owned()).await;
    changing.await.unwrap().unwrap();
    take_over(&database, id).await;
    let theirs = "select count(*) from destinations where name = 'API'";
    assert_eq!(database.number(theirs).await, 1);
}
