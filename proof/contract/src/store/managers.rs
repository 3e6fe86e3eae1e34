//! Destinations that a resource of Kubernetes manages: whose they are, and who
//! may have them next.

use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::{DestinationId, TenantId};
use uuid::Uuid;

use super::World;
use super::health::fail_for_long;
use super::secrets::{HMAC, secret};
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DestinationChange, Found, HeldDestination, Hold, Managed,
    Manager, NewDestination, SealedKind, SealedSecret, SingleChange,
};

pub(super) const RESOURCE: &str = "paceline/shop";

pub(super) fn manager(uid: &str) -> Manager {
    Manager {
        resource: RESOURCE.to_owned(),
        uid: uid.to_owned(),
    }
}

pub(super) fn named(world: &World, name: &str) -> NewDestination {
    NewDestination {
        name: name.to_owned(),
        ..world.destination().unlimited().build()
    }
}

/// A destination of this name that the resource holds.
pub(super) async fn held(
    world: &World,
    name: &str,
    uid: &str,
) -> Result<DestinationId, CatalogError> {
    let new = named(world, name);
    let sealed = [secret(world, new.id, HMAC)];
    let created = world
        .managers
        .create_managed(DEFAULT_TENANT, &new, &sealed, &manager(uid))
        .await?;
    assert_eq!((created.id, &created.name), (new.id, &new.name));
    Ok(new.id)
}

async fn find(world: &World, name: &str) -> Option<Found> {
    let found = world
        .managers
        .find_managed(DEFAULT_TENANT, RESOURCE, name)
        .await;
    found.unwrap()
}

async fn holder(world: &World, id: DestinationId) -> Option<Manager> {
    world.managers.manager(DEFAULT_TENANT, id).await.unwrap()
}

async fn take_over(world: &World, id: DestinationId, uid: &str) {
    let manager = manager(uid);
    let taken = world.managers.take_over(DEFAULT_TENANT, id, &manager).await;
    taken.unwrap();
}

pub(super) async fn release(world: &World, id: DestinationId, manager: &Manager) {
    let released = world.managers.release(DEFAULT_TENANT, id, manager).await;
    released.unwrap();
}

pub(super) async fn discard(
    world: &World,
    id: DestinationId,
    uid: &str,
) -> Result<(), CatalogError> {
    let manager = manager(uid);
    world.managers.discard(DEFAULT_TENANT, id, &manager).await
}

/// It is there, it signs, and it is found by its resource, whatever its name.
pub async fn a_managed_destination_is_held_from_the_start(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    assert_eq!(holder(world, id).await, Some(manager("one")));
    let hold = Hold::Held("one".to_owned());
    assert_eq!(find(world, "another").await, Some(Found { id, hold }));
    let secrets = world.secrets.secrets(DEFAULT_TENANT, id).await.unwrap();
    assert_eq!(secrets.len(), 1);
}

/// Of one uid or of two.
pub async fn a_resource_has_one_destination(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    for uid in ["one", "two"] {
        let refused = held(world, "shop", uid).await;
        assert!(matches!(refused, Err(CatalogError::Conflict(_))), "{uid}");
    }
    assert_eq!(holder(world, id).await, Some(manager("one")));
}

/// No destination without a manager, and no secret.
pub async fn a_refused_one_leaves_nothing(world: &World) {
    held(world, "shop", "one").await.unwrap();
    let new = named(world, "shop");
    let sealed = [secret(world, new.id, HMAC)];
    let refused = world
        .managers
        .create_managed(DEFAULT_TENANT, &new, &sealed, &manager("two"))
        .await;
    assert!(refused.is_err());
    let gone = world.catalog.destination(DEFAULT_TENANT, new.id).await;
    assert!(matches!(gone, Err(CatalogError::NotFound(_))));
}

/// Not to another resource, not to a later one of the same name, and not what
/// nobody manages.
pub async fn what_is_held_is_not_given_away(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let unmanaged = named(world, "plain");
    world
        .catalog
        .create_destination(DEFAULT_TENANT, &unmanaged)
        .await
        .unwrap();
    let other = Manager {
        resource: "elsewhere/shop".to_owned(),
        uid: "one".to_owned(),
    };
    for (id, manager) in [
        (id, manager("two")),
        (id, other),
        (unmanaged.id, manager("two")),
    ] {
        let refused = world.managers.take_over(DEFAULT_TENANT, id, &manager).await;
        assert!(
            matches!(refused, Err(CatalogError::Conflict(_))),
            "{manager:?}"
        );
    }
    assert_eq!(holder(world, id).await, Some(manager("one")));
    assert_eq!(holder(world, unmanaged.id).await, None);
    // What it has already, it may take again.
    take_over(world, id, "one").await;
}

/// And then it is held as before.
pub async fn what_was_released_is_taken_over_by_its_name(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    release(world, id, &manager("one")).await;
    assert_eq!(holder(world, id).await, None);
    let hold = Hold::Released;
    assert_eq!(find(world, "shop").await, Some(Found { id, hold }));
    let other = Manager {
        resource: "elsewhere/shop".to_owned(),
        uid: "two".to_owned(),
    };
    let refused = world.managers.take_over(DEFAULT_TENANT, id, &other).await;
    assert!(matches!(refused, Err(CatalogError::Conflict(_))));
    take_over(world, id, "two").await;
    assert_eq!(holder(world, id).await, Some(manager("two")));
}

/// Somebody else's word changes nothing, and saying it again neither.
pub async fn only_its_manager_lets_go(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    release(world, id, &manager("two")).await;
    assert_eq!(holder(world, id).await, Some(manager("one")));
    release(world, id, &manager("one")).await;
    release(world, id, &manager("one")).await;
    assert_eq!(holder(world, id).await, None);
}

/// Until it has one of its own.
pub async fn one_of_the_same_name_is_found_while_nobody_manages_it(world: &World) {
    let plain = named(world, "shop");
    world
        .catalog
        .create_destination(DEFAULT_TENANT, &plain)
        .await
        .unwrap();
    let hold = Hold::Unmanaged;
    assert_eq!(
        find(world, "shop").await,
        Some(Found { id: plain.id, hold })
    );
    assert_eq!(find(world, "shop2").await, None);
    let id = held(world, "shop", "one").await.unwrap();
    let hold = Hold::Held("one".to_owned());
    assert_eq!(find(world, "shop").await, Some(Found { id, hold }));
}

/// Its resource may have another one then.
pub async fn a_deleted_destination_has_no_manager(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    discard(world, id, "one").await.unwrap();
    assert_eq!(holder(world, id).await, None);
    assert_eq!(find(world, "shop").await, None);
    let next = held(world, "shop", "one").await.unwrap();
    assert_eq!(holder(world, next).await, Some(manager("one")));
}

/// Another one neither sees them nor changes them.
pub async fn managers_are_of_their_tenant(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let other = TenantId(Uuid::from_u128(0x7e));
    let managers = &world.managers;
    let found = managers.find_managed(other, RESOURCE, "shop").await;
    assert_eq!(found.unwrap(), None);
    assert_eq!(managers.manager(other, id).await.unwrap(), None);
    assert!(managers.sealed_secrets(other, id).await.unwrap().is_empty());
    managers.release(other, id, &manager("one")).await.unwrap();
    assert_eq!(holder(world, id).await, Some(manager("one")));
    release(world, id, &manager("one")).await;
    let refused = managers.take_over(other, id, &manager("one")).await;
    assert!(matches!(refused, Err(CatalogError::Conflict(_))));
}

/// As it was, for the vault to open: what signs, and the headers.
pub async fn what_is_sealed_is_read_as_it_was(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let headers = secret(world, id, SealedKind::Headers);
    let change = [SingleChange::Set(headers.clone())];
    let manager = manager("one");
    let of = Managed::by(DEFAULT_TENANT, id, &manager);
    world
        .secrets
        .change_destination_with(of, &DestinationChange::default(), &change)
        .await
        .unwrap();
    let new = secret(world, id, HMAC);
    world
        .secrets
        .rotate_secret(of, &new, Duration::from_secs(60))
        .await
        .unwrap();
    let found = world.managers.sealed_secrets(DEFAULT_TENANT, id).await;
    let found = found.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(found[0].place, new.place);
    assert_eq!(found[0].sealed, new.sealed);
    let of_headers = |one: &&SealedSecret| one.place.kind == SealedKind::Headers;
    let added: Vec<_> = found.iter().filter(of_headers).collect();
    assert_eq!(added.len(), 1);
    assert_eq!(
        (added[0].place, &added[0].sealed),
        (headers.place, &headers.sealed)
    );
}

/// Permits stay good, and limit history has nothing to say.
pub async fn managing_is_no_change(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    world.accept(id, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(id).await;
    let before = world.catalog.limit_history(id).await.unwrap();
    release(world, id, &manager("one")).await;
    take_over(world, id, "two").await;
    assert_eq!(world.catalog.limit_history(id).await.unwrap(), before);
    assert_eq!(permits.len(), 1);
    assert_eq!(world.start(worker, &permits).await.len(), 1);
}

/// Its work, its breaker and its state; what nobody holds is not there.
pub async fn what_is_held_is_seen_at_a_glance(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let seen = async || world.managers.held(None).await.unwrap();
    let idle = HeldDestination {
        id,
        resource: RESOURCE.to_owned(),
        state: DestinationState::Active,
        breaker_is_open: false,
        has_work: false,
    };
    assert_eq!(seen().await, std::slice::from_ref(&idle));
    assert_eq!(world.managers.held(Some(id)).await.unwrap(), []);

    world.accept(id, 1).await;
    world.decide(id).await;
    let busy = HeldDestination {
        has_work: true,
        ..idle.clone()
    };
    assert_eq!(seen().await, [busy]);
    fail_for_long(world, id).await;
    let [open] = &seen().await[..] else {
        panic!("it is the only one")
    };
    assert!(open.breaker_is_open);

    let change = DestinationChange {
        state: Some(DestinationState::Paused),
        ..DestinationChange::default()
    };
    let holder = manager("one");
    let of = Managed::by(DEFAULT_TENANT, id, &holder);
    let changed = world.secrets.change_destination_with(of, &change, &[]);
    changed.await.unwrap();
    assert_eq!(seen().await[0].state, DestinationState::Paused);
    release(world, id, &holder).await;
    assert_eq!(seen().await, []);
}
