//! What a resource holds only it changes: the store looks in the transaction of
//! the change.

use std::time::Duration;

use domain::destination::DestinationState;
use domain::ids::DestinationId;

use super::World;
use super::managers::{RESOURCE, discard, held, manager, named, release};
use super::secrets::{HMAC, secret};
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DestinationChange, Managed, Manager, SealedKind, SingleChange,
};

/// A change of its name by somebody; `None` is the API.
async fn rename(
    world: &World,
    id: DestinationId,
    by: Option<&Manager>,
    name: &str,
) -> Result<(), CatalogError> {
    let change = DestinationChange {
        name: Some(name.to_owned()),
        ..DestinationChange::default()
    };
    let of = Managed {
        tenant: DEFAULT_TENANT,
        destination: id,
        by,
    };
    let secrets = &world.secrets;
    let changed = secrets.change_destination_with(of, &change, &[]);
    changed.await.map(drop)
}

async fn name(world: &World, id: DestinationId) -> String {
    let found = world.catalog.destination(DEFAULT_TENANT, id).await;
    found.unwrap().name
}

fn assert_refused<T: std::fmt::Debug>(answer: Result<T, CatalogError>, says: &str) {
    match answer {
        Err(CatalogError::Conflict(problem)) => assert!(problem.contains(says), "{problem}"),
        other => panic!("{other:?}"),
    }
}

/// By whichever way it is tried; the refusal names the resource, and nothing is
/// changed by it.
pub async fn what_is_held_only_its_manager_changes(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let (one, two) = (manager("one"), manager("two"));
    let before = world.store.targets(&[id]).await.unwrap();
    for by in [None, Some(&two)] {
        let of = Managed {
            tenant: DEFAULT_TENANT,
            destination: id,
            by,
        };
        let change = DestinationChange::default();
        let headers = [SingleChange::Set(secret(world, id, SealedKind::Headers))];
        let secrets = &world.secrets;
        let changed = secrets.change_destination_with(of, &change, &headers);
        assert_refused(changed.await, RESOURCE);
        assert_refused(rename(world, id, by, "mine").await, RESOURCE);
        let new = secret(world, id, HMAC);
        let rotated = secrets.rotate_secret(of, &new, Duration::ZERO);
        assert_refused(rotated.await, RESOURCE);
        let first = before[0].secrets[0].place.secret;
        assert_refused(secrets.delete_secret(of, first).await, RESOURCE);
    }
    assert_refused(discard(world, id, "two").await, RESOURCE);
    let catalog = &world.catalog;
    let change = DestinationChange::default();
    let changed = catalog.change_destination(DEFAULT_TENANT, id, &change);
    assert_refused(changed.await, RESOURCE);
    let deleted = catalog.delete_destination(DEFAULT_TENANT, id);
    assert_refused(deleted.await, RESOURCE);
    assert_eq!(world.store.targets(&[id]).await.unwrap(), before);
    rename(world, id, Some(&one), "its own").await.unwrap();
    assert_eq!(name(world, id).await, "its own");
}

/// It is the API's again, and the resource has no say.
pub async fn what_was_let_go_its_manager_changes_no_more(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let one = manager("one");
    release(world, id, &one).await;
    let gone = "not managed by this resource any more";
    assert_refused(rename(world, id, Some(&one), "its own").await, gone);
    assert_refused(discard(world, id, "one").await, gone);
    rename(world, id, None, "mine").await.unwrap();
    assert_eq!(name(world, id).await, "mine");
    let unmanaged = named(world, "plain");
    let catalog = &world.catalog;
    let created = catalog.create_destination(DEFAULT_TENANT, &unmanaged);
    created.await.unwrap();
    assert_refused(discard(world, unmanaged.id, "one").await, gone);
    let nobody = DestinationId(world.id());
    let missing = discard(world, nobody, "one").await;
    assert!(
        matches!(missing, Err(CatalogError::NotFound(_))),
        "{missing:?}"
    );
    let deleted = catalog.delete_destination(DEFAULT_TENANT, id);
    deleted.await.unwrap();
}

async fn set_state(world: &World, of: Managed<'_>, state: DestinationState) {
    let change = DestinationChange {
        state: Some(state),
        ..DestinationChange::default()
    };
    let secrets = &world.secrets;
    let changed = secrets.change_destination_with(of, &change, &[]);
    assert_eq!(changed.await.unwrap().state, state);
}

/// The API still says that a receiver is well again, since no resource can.
pub async fn only_its_manager_ends_its_pause(world: &World) {
    let id = held(world, "shop", "one").await.unwrap();
    let one = manager("one");
    let of = Managed::by(DEFAULT_TENANT, id, &one);
    let state = async || {
        let found = world.catalog.destination(DEFAULT_TENANT, id).await;
        found.unwrap().state
    };
    set_state(world, of, DestinationState::Paused).await;
    let resumed = world.catalog.resume(DEFAULT_TENANT, id).await;
    assert_refused(resumed, RESOURCE);
    assert_eq!(state().await, DestinationState::Paused);
    set_state(world, of, DestinationState::Disabled).await;
    world.catalog.resume(DEFAULT_TENANT, id).await.unwrap();
    assert_eq!(state().await, DestinationState::Active);
    set_state(world, of, DestinationState::Paused).await;
    release(world, id, &one).await;
    world.catalog.resume(DEFAULT_TENANT, id).await.unwrap();
    assert_eq!(state().await, DestinationState::Active);
}

/// Two at once, a resource that takes it over and the API that changes it: what the
/// resource sees once it has it stays, whoever was first.
pub async fn a_change_is_before_the_take_over_or_refused(world: &World) {
    for round in 0..20 {
        let new = named(world, "shop");
        let sealed = [secret(world, new.id, HMAC)];
        let holder = Manager {
            resource: format!("paceline/shop-{round}"),
            uid: "one".to_owned(),
        };
        let managers = &world.managers;
        let created = managers.create_managed(DEFAULT_TENANT, &new, &sealed, &holder);
        created.await.unwrap();
        release(world, new.id, &holder).await;
        let take = async {
            let taken = managers.take_over(DEFAULT_TENANT, new.id, &holder);
            taken.await.unwrap();
            name(world, new.id).await
        };
        let (seen, changed) = tokio::join!(take, rename(world, new.id, None, "mine"));
        match changed {
            Ok(()) => assert_eq!(seen, "mine", "it was before"),
            Err(CatalogError::Conflict(_)) => assert_eq!(seen, "shop"),
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(name(world, new.id).await, seen, "nothing came after");
    }
}
