//! Destinations, events and attempts, as their owners see them.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::destination::DestinationState;
use domain::external_id::ExternalId;
use domain::handshake::Handshake;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::limit::{Count, Shape};
use domain::policy::LimitSettings;

use super::World;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DestinationChange, NewDestination, StoreError, wanted,
};
use tokio_util::sync::CancellationToken;

fn assert_not_found<T: std::fmt::Debug>(answer: Result<T, CatalogError>) {
    assert!(
        matches!(answer, Err(CatalogError::NotFound(_))),
        "got {answer:?}"
    );
}

/// All of it, active, resolved.
pub async fn a_destination_is_read_as_it_was_created(world: &World) {
    let new = NewDestination {
        name: "Läden & Töchter 'x'".to_owned(),
        limits: LimitSettings {
            per_second: Some(7),
            per_minute: Some(100),
            per_hour: Some(1_000),
            per_day: Some(0),
            burst: Some(3),
            shape: Some(Shape::TokenBucket),
            max_in_flight: Some(9),
            safety_margin: Some(0.02),
            margin_cap: Some(0.3),
            count: Some(Count::Response),
            unlimited: false,
            allowed_per_minute: None,
        },
        ..world
            .destination()
            .event_types(&["order.paid", "*"])
            .build()
    };
    let before = world.now().await;
    let created = world
        .catalog
        .create_destination(DEFAULT_TENANT, &new)
        .await
        .unwrap();
    assert_eq!((created.id, created.tenant), (new.id, DEFAULT_TENANT));
    assert_eq!((&created.name, &created.url), (&new.name, &new.url));
    assert_eq!(created.event_types, new.event_types);
    assert_eq!(created.state, DestinationState::Active);
    assert_eq!(
        (created.limits, created.effective),
        (new.limits, new.limits)
    );
    assert!(created.created_at >= before && created.created_at <= world.now().await);
    let read = world
        .catalog
        .destination(DEFAULT_TENANT, new.id)
        .await
        .unwrap();
    assert_eq!(read, created);
}

/// What is not named stays.
pub async fn a_change_leaves_the_rest_alone(world: &World) {
    let destination = world
        .destination()
        .per_second(5)
        .event_types(&["a"])
        .create()
        .await;
    let before = world
        .catalog
        .destination(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    let change = DestinationChange {
        name: Some("shop".to_owned()),
        event_types: Some(vec!["b".to_owned(), "c".to_owned()]),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change);
    let changed = changed.await.unwrap();
    assert_eq!(changed.name, "shop");
    assert_eq!(changed.event_types, ["b", "c"]);
    assert_eq!((&changed.url, changed.limits), (&before.url, before.limits));
    let change = DestinationChange {
        url: Some("https://new.example/".to_owned()),
        limits: Some(LimitSettings::EXACT),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change);
    let changed = changed.await.unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.url.as_str()),
        ("shop", "https://new.example/")
    );
    assert_eq!(changed.limits, LimitSettings::EXACT);
    let read = world
        .catalog
        .destination(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert_eq!(read, changed);
}

/// On creation and on change.
pub async fn nonsense_is_refused_by_the_name_of_its_column(world: &World) {
    let limits = LimitSettings {
        per_second: Some(1),
        burst: Some(0),
        ..LimitSettings::EXACT
    };
    let new = NewDestination {
        limits,
        ..world.destination().build()
    };
    let created = world.catalog.create_destination(DEFAULT_TENANT, &new).await;
    let is_burst = |error: &CatalogError| matches!(error, CatalogError::Invalid { field, .. } if field == "burst");
    assert!(created.as_ref().is_err_and(is_burst), "got {created:?}");
    assert_not_found(world.catalog.destination(DEFAULT_TENANT, new.id).await);
    let destination = world.destination().per_second(1).create().await;
    let change = DestinationChange {
        limits: Some(limits),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change)
        .await;
    assert!(changed.as_ref().is_err_and(is_burst), "got {changed:?}");
}

/// For every method that takes a destination; its attempts can still be read.
pub async fn a_deleted_destination_is_gone_and_its_ledger_stays(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    world.accept(destination, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let deleted = world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination)
        .await;
    deleted.unwrap();
    let again = world
        .catalog
        .delete_destination(DEFAULT_TENANT, destination)
        .await;
    assert_not_found(again);
    assert_not_found(world.catalog.destination(DEFAULT_TENANT, destination).await);
    let change = DestinationChange::default();
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, destination, &change)
        .await;
    assert_not_found(changed);
    let page = world
        .catalog
        .destinations(DEFAULT_TENANT, None, 10)
        .await
        .unwrap();
    assert_eq!(page, []);
    assert_eq!(world.starts(destination).await.len(), 1);
}

/// Somebody else's things do not exist.
pub async fn another_tenant_sees_nothing(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let events = world.accept(destination, 1).await;
    let other = TenantId(world.id());
    let catalog = &world.catalog;
    assert_not_found(catalog.destination(other, destination).await);
    let change = DestinationChange::default();
    assert_not_found(
        catalog
            .change_destination(other, destination, &change)
            .await,
    );
    assert_not_found(catalog.delete_destination(other, destination).await);
    assert_not_found(catalog.event(other, events[0]).await);
    assert_not_found(catalog.attempts(other, destination, None, 10).await);
    assert_eq!(catalog.destinations(other, None, 10).await.unwrap(), []);
    let unknown = DestinationId(world.id());
    assert_not_found(catalog.attempts(DEFAULT_TENANT, unknown, None, 10).await);
    assert_not_found(catalog.event(DEFAULT_TENANT, EventId(world.id())).await);
    assert_eq!(world.attempts(destination).await.len(), 1);
}

/// After the last of the page before.
pub async fn destinations_are_paged_by_id(world: &World) {
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(world.destination().create().await);
    }
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied();
        let page = world
            .catalog
            .destinations(DEFAULT_TENANT, after, 2)
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|destination| destination.id));
    }
    assert_eq!(seen, created);
}

/// As each is by itself, once and in id order; neither deleted nor another tenant's.
pub async fn destinations_are_read_together(world: &World) {
    let mut created = Vec::new();
    for limit in 1..=3 {
        created.push(world.destination().per_second(limit).create().await);
    }
    let catalog = &world.catalog;
    let [first, deleted, last] = created[..] else {
        panic!("three were created");
    };
    let delete = catalog.delete_destination(DEFAULT_TENANT, deleted).await;
    delete.unwrap();
    let asked = [last, DestinationId(world.id()), deleted, first, last];
    let read = catalog.destinations_of(DEFAULT_TENANT, &asked).await;
    let mut each = Vec::new();
    for id in [first, last] {
        each.push(catalog.destination(DEFAULT_TENANT, id).await.unwrap());
    }
    assert_eq!(read.unwrap(), each);
    let others = catalog.destinations_of(TenantId(world.id()), &asked).await;
    assert_eq!(others.unwrap(), []);
    let none = catalog.destinations_of(DEFAULT_TENANT, &[]).await;
    assert_eq!(none.unwrap(), []);
}

/// The event and what became of it everywhere, in creation order.
pub async fn an_event_shows_its_attempts(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let events = world.accept(destination, 2).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    world.start(worker, &permits[..1]).await;
    let now = engine::ports::NextTry::RetryAfter(std::time::Duration::ZERO);
    world
        .record(
            worker,
            &permits[0],
            domain::attempt::OutcomeKind::Failed,
            now,
        )
        .await;
    let (summary, attempts) = world
        .catalog
        .event(DEFAULT_TENANT, events[0])
        .await
        .unwrap();
    assert_eq!((summary.id, summary.event_type), (events[0], None));
    assert_eq!(
        (summary.content_type.as_str(), summary.payload_bytes),
        ("application/json", 12)
    );
    let states: Vec<_> = attempts.iter().map(|attempt| attempt.state).collect();
    assert_eq!(states, [AttemptState::Failed, AttemptState::Waiting]);
    assert!(
        attempts
            .iter()
            .all(|attempt| attempt.destination == destination)
    );
}

/// Before the last of the page before.
pub async fn attempts_are_paged_newest_first(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let events = world.accept(destination, 5).await;
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let page = world
            .catalog
            .attempts(DEFAULT_TENANT, destination, before, 2);
        let page = page.await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.id);
        seen.extend(page.iter().map(|attempt| attempt.event));
    }
    seen.reverse();
    assert_eq!(seen, events);
}

/// Its schema is the one that this binary needs.
pub async fn a_migrated_store_is_ready(world: &World) {
    world.catalog.ready().await.unwrap();
}

/// One at most of a tenant's is called so, until it is deleted.
pub async fn a_destination_is_found_by_what_its_platform_calls_it(world: &World) {
    let called = |text: &str| text.parse::<ExternalId>().unwrap();
    let new = |tag: u128| NewDestination {
        external_id: Some(called("ep:1")),
        id: DestinationId(uuid::Uuid::from_u128(tag)),
        name: String::new(),
        url: "https://receiver.example/".to_owned(),
        event_types: Vec::new(),
        filter: None,
        limits: LimitSettings::default(),
        pass_traceparent: false,
        handshake: Handshake::None,
        limit_group: None,
    };
    let create = async |new: &NewDestination| {
        let created = world.catalog.create_destination(DEFAULT_TENANT, new);
        created.await
    };
    let find = async |tenant, text: &str| {
        let id = called(text);
        world.catalog.destination_called(tenant, &id).await
    };
    let is_taken = |answer: Result<_, CatalogError>| {
        let field = matches!(answer, Err(CatalogError::Invalid { ref field, .. })
            if field == "external_id");
        assert!(field, "{answer:?}");
    };
    let (first, second) = (new(0xe1), new(0xe2));
    let created = create(&first).await.unwrap();
    assert_eq!(created.external_id, first.external_id);
    assert_eq!(find(DEFAULT_TENANT, "ep:1").await.unwrap(), first.id);
    assert_not_found(find(DEFAULT_TENANT, "EP:1").await);
    assert_not_found(find(TenantId(uuid::Uuid::from_u128(0xe9)), "ep:1").await);
    is_taken(create(&second).await);

    let change = DestinationChange {
        external_id: Some(called("ep:2")),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, first.id, &change);
    let changed = changed.await.unwrap();
    assert_eq!(changed.external_id, Some(called("ep:2")));
    assert_eq!(changed.url, created.url);
    create(&second).await.unwrap();
    let back = DestinationChange {
        external_id: Some(called("ep:1")),
        ..DestinationChange::default()
    };
    let back = world
        .catalog
        .change_destination(DEFAULT_TENANT, first.id, &back);
    is_taken(back.await);
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, second.id);
    deleted.await.unwrap();
    assert_not_found(find(DEFAULT_TENANT, "ep:1").await);
    create(&new(0xe3)).await.unwrap();
}

/// The statement after the one in which a page became too late is not begun.
pub async fn what_nobody_waits_for_is_not_asked(world: &World) {
    let of = world.destination().per_second(1).create().await;
    let late = CancellationToken::new();
    let read = async || {
        let found = world.catalog.destination(DEFAULT_TENANT, of).await;
        let backlog = world.catalog.backlogs(&[of], 1).await;
        [found.map(drop), backlog.map(drop)]
    };
    let is_well = |read: [Result<(), CatalogError>; 2]| read.iter().all(Result::is_ok);
    assert!(is_well(wanted::until(late.clone(), read()).await));
    late.cancel();
    for refused in wanted::until(late, read()).await {
        let away = matches!(
            refused,
            Err(CatalogError::Store(StoreError::Unavailable(_)))
        );
        assert!(away, "{refused:?}");
    }
    assert!(is_well(read().await));
}

/// What was in force at a time and since, and of that no more than is asked for.
pub async fn recent_limits_are_the_end_of_limit_history(world: &World) {
    let of = world.destination().per_second(1).create().await;
    for per_second in 2..=6 {
        world.pass(Duration::from_millis(5)).await;
        let change =
            format!("update destinations set limit_per_second = {per_second} where id = '{of}'");
        world.sql(&change).await;
    }
    let whole = world.catalog.limit_history(of).await.unwrap();
    assert_eq!(whole.len(), 6);
    let within = async |within, limit| {
        let limits = world.catalog.limits_within(of, within, limit);
        limits.await.unwrap()
    };
    let recent = async |since, limit| within((since, None), limit).await;
    let long_ago = whole[0].in_force_from - Duration::from_secs(1);
    assert_eq!(recent(long_ago, 100).await, whole);
    assert_eq!(recent(long_ago, 2).await, whole[4..]);
    assert_eq!(recent(whole[3].in_force_from, 100).await, whole[3..]);
    let between = whole[3].in_force_from - Duration::from_micros(1);
    assert_eq!(recent(between, 100).await, whole[2..]);
    let ahead = whole[5].in_force_from + Duration::from_secs(60);
    assert_eq!(recent(ahead, 100).await, whole[5..]);
    // An end is not in it, and of what is before it the newest.
    let until = Some(whole[4].in_force_from);
    assert_eq!(within((long_ago, until), 100).await, whole[..4]);
    assert_eq!(within((between, until), 100).await, whole[2..4]);
    assert_eq!(within((long_ago, until), 2).await, whole[2..4]);
    let later = Some(ahead + Duration::from_secs(60));
    assert_eq!(within((ahead, later), 100).await, whole[5..]);
}
