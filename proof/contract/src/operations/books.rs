//! What people see and say: news, who is told of them, and when.

use domain::operations::{OperationalScope, OperationalType};

use super::{OperationsWorld, book, raise, set, stranger, told};
use engine::ports::{AlertsChange, CatalogError, DEFAULT_TENANT, MAX_OPERATIONAL, Registration};

/// The newest first; of one tenant or of all.
pub async fn recent_news_are_paged(world: &OperationsWorld) {
    let (_, other) = stranger(9);
    for number in 0..4 {
        let tenant = if number == 2 { other } else { DEFAULT_TENANT };
        raise(world, stranger(number).0, tenant).await;
    }
    let page = |tenant, before, limit| async move {
        let events = book(world).recent_operational_events(tenant, before, limit);
        events.await.unwrap()
    };
    let first = page(Some(DEFAULT_TENANT), None, 2).await;
    let about: Vec<_> = first.iter().filter_map(|event| event.destination).collect();
    assert_eq!(about, [stranger(3).0, stranger(1).0]);
    let second = page(Some(DEFAULT_TENANT), Some(first[1].id), 2).await;
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].destination, Some(stranger(0).0));
    assert_eq!(page(Some(other), None, 10).await.len(), 1);
    assert_eq!(page(None, None, 10).await.len(), 4);
}

/// Registering again changes what it is told of, and nothing else.
pub async fn registrations_are_the_tenants(world: &OperationsWorld) {
    let (first, second) = (told(world).await, told(world).await);
    let only = Registration {
        scope: OperationalScope::Installation,
        event_types: vec![OperationalType::DeadLetters, OperationalType::BacklogHigh],
    };
    let again = book(world).register_operational(DEFAULT_TENANT, first, &only);
    let words = ["dead_letters", "backlog_high"];
    assert_eq!(again.await.unwrap().event_types, words);
    let list = book(world)
        .operational_destinations(DEFAULT_TENANT)
        .await
        .unwrap();
    let ids: Vec<_> = list.iter().map(|one| one.destination).collect();
    assert_eq!(ids, [first, second], "it keeps its place");
    assert_eq!((list[0].scope, list[0].event_types.len()), (only.scope, 2));

    let (nobody, other) = stranger(1);
    let theirs = book(world).register_operational(other, first, &only).await;
    assert!(
        matches!(theirs, Err(CatalogError::NotFound(_))),
        "{theirs:?}"
    );
    let missing = book(world)
        .register_operational(DEFAULT_TENANT, nobody, &only)
        .await;
    assert!(
        matches!(missing, Err(CatalogError::NotFound(_))),
        "{missing:?}"
    );
    let theirs = book(world).unregister_operational(other, first).await;
    assert!(
        matches!(theirs, Err(CatalogError::NotFound(_))),
        "{theirs:?}"
    );
    assert_eq!(
        book(world).operational_destinations(other).await.unwrap(),
        []
    );
    let ours = book(world)
        .unregister_operational(DEFAULT_TENANT, first)
        .await;
    ours.unwrap();
    let again = book(world)
        .unregister_operational(DEFAULT_TENANT, first)
        .await;
    assert!(matches!(again, Err(CatalogError::NotFound(_))), "{again:?}");
}

/// The next is refused by the name of its field, until there is room.
pub async fn a_tenant_has_so_many_and_a_deleted_one_makes_room(world: &OperationsWorld) {
    let first = told(world).await;
    for _ in 1..MAX_OPERATIONAL {
        told(world).await;
    }
    let next = world.destination().create().await;
    let all = Registration::default();
    let register = async |one| {
        book(world)
            .register_operational(DEFAULT_TENANT, one, &all)
            .await
    };
    let refused = register(next).await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "id"),
        "{refused:?}"
    );
    assert_eq!(register(first).await.unwrap().destination, first);
    let deletion = world.catalog.delete_destination(DEFAULT_TENANT, first);
    deletion.await.unwrap();
    assert_eq!(register(next).await.unwrap().destination, next);
    let list = book(world).operational_destinations(DEFAULT_TENANT);
    let list = list.await.unwrap();
    assert_eq!(list.len() as u32, MAX_OPERATIONAL);
    assert!(list.iter().all(|one| one.destination != first));
}

/// What is not named stays, and nothing set is the default.
pub async fn alerts_are_set_by_name(world: &OperationsWorld) {
    let destination = world.destination().create().await;
    let view = || async {
        let view = book(world).alerts(DEFAULT_TENANT, destination).await;
        let settings = view.unwrap().settings;
        (settings.backlog, settings.under_delivery.as_secs())
    };
    assert_eq!(view().await, (10_000, 60));
    set(world, destination, 5, 7).await;
    assert_eq!(view().await, (5, 7));
    let change = AlertsChange {
        backlog: Some(None),
        under_delivery_seconds: None,
        failing_percent: None,
    };
    let changed = book(world).change_alerts(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
    assert_eq!(view().await, (10_000, 7));
    let (_, other) = stranger(1);
    let theirs = book(world).change_alerts(other, destination, &change).await;
    assert!(
        matches!(theirs, Err(CatalogError::NotFound(_))),
        "{theirs:?}"
    );
    let theirs = book(world).alerts(other, destination).await;
    assert!(
        matches!(theirs, Err(CatalogError::NotFound(_))),
        "{theirs:?}"
    );
}
