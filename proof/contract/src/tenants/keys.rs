//! API keys.

use std::collections::HashMap;
use std::time::Duration;

use domain::access::{KeyId, Scope, Scopes};

use super::{TenantWorld, not_found, refuses};
use engine::ports::{Credential, DEFAULT_TENANT, KeyUse, MAX_KEYS, NewKey};

pub(super) fn key(id: u64, scopes: &[Scope]) -> NewKey {
    NewKey {
        id: KeyId(id),
        name: format!("key {id}"),
        digest: [u8::try_from(id % 251).unwrap(); 32],
        scopes: scopes.iter().copied().collect(),
        expires_in: None,
    }
}

/// What is known of a key in force.
pub(super) async fn in_force(world: &TenantWorld, id: KeyId) -> Option<Credential> {
    let found = world.keys.credentials(&[id]).await.unwrap();
    assert!(found.iter().all(|(found, _)| *found == id));
    assert!(found.len() <= 1);
    found.into_iter().next().map(|(_, credential)| credential)
}

/// With its tenant, its digest and exactly its scopes.
pub async fn a_key_is_found_by_its_id(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let before = world.now().await;
    // The largest id there is: it must survive a column.
    let mut new = key(u64::MAX, &[Scope::Ingest, Scope::Read]);
    new.digest = std::array::from_fn(|index| u8::try_from(index * 8).unwrap());
    let created = world.keys.create_key(tenant, &new).await.unwrap();
    assert!(created.created_at >= before && created.created_at <= world.now().await);
    assert_eq!((created.id, created.tenant), (new.id, tenant));
    let found = in_force(world, new.id).await.unwrap();
    assert_eq!((found.tenant, found.digest), (tenant, new.digest));
    assert_eq!((found.scopes, found.expires_in), (new.scopes, None));
    assert_eq!(in_force(world, KeyId(1)).await, None);
    let nobody = domain::ids::TenantId(world.id());
    not_found(world.keys.create_key(nobody, &key(2, &[Scope::Read])).await);
}

/// Each is its own, whichever beside it are not there, or are asked for twice.
pub async fn keys_are_looked_up_together(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let ours = key(11, &[Scope::Ingest]);
    let theirs = key(12, &[Scope::Read]);
    let revoked = key(13, &[Scope::Read]);
    world.keys.create_key(tenant, &ours).await.unwrap();
    for other in [&theirs, &revoked] {
        world.keys.create_key(DEFAULT_TENANT, other).await.unwrap();
    }
    world
        .keys
        .revoke_key(DEFAULT_TENANT, revoked.id)
        .await
        .unwrap();
    let asked = [KeyId(1), theirs.id, revoked.id, ours.id, theirs.id];
    let found = world.keys.credentials(&asked).await.unwrap();
    let found: HashMap<_, _> = found.into_iter().collect();
    let whose = |id| found.get(&id).map(|credential| credential.tenant);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(whose(ours.id), Some(tenant));
    assert_eq!(whose(theirs.id), Some(DEFAULT_TENANT));
    assert_eq!(world.keys.credentials(&[]).await.unwrap(), []);
}

/// And revoking it again changes nothing.
pub async fn a_revoked_key_is_gone_for_good(world: &TenantWorld) {
    let new = key(7, &[Scope::Manage]);
    let keys = &world.keys;
    keys.create_key(DEFAULT_TENANT, &new).await.unwrap();
    keys.revoke_key(DEFAULT_TENANT, new.id).await.unwrap();
    assert_eq!(in_force(world, new.id).await, None);
    let first = keys.keys(DEFAULT_TENANT, 10).await.unwrap();
    assert!(first[0].revoked_at.is_some());
    keys.revoke_key(DEFAULT_TENANT, new.id).await.unwrap();
    assert_eq!(keys.keys(DEFAULT_TENANT, 10).await.unwrap(), first);
    not_found(keys.revoke_key(DEFAULT_TENANT, KeyId(8)).await);
}

/// It is as if it were not there.
pub async fn another_tenants_key_cannot_be_revoked(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let new = key(7, &[Scope::Manage]);
    world.keys.create_key(ours, &new).await.unwrap();
    not_found(world.keys.revoke_key(theirs, new.id).await);
    assert!(in_force(world, new.id).await.is_some());
}

/// And says how long it is good for yet.
pub async fn a_key_expires_by_the_stores_clock(world: &TenantWorld) {
    let good_for = Duration::from_millis(1_500);
    let new = NewKey {
        expires_in: Some(good_for),
        ..key(7, &[Scope::Read])
    };
    let created = world.keys.create_key(DEFAULT_TENANT, &new).await.unwrap();
    assert_eq!(created.expires_at, Some(created.created_at + good_for));
    let found = in_force(world, new.id).await.unwrap();
    assert!(found.expires_in.is_some_and(|left| left <= good_for));
    world.pass_until(created.created_at + good_for).await;
    assert_eq!(in_force(world, new.id).await, None);
}

/// Of one tenant, and as they were created.
pub async fn keys_are_listed_by_tenant_the_newest_first(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let mut created = Vec::new();
    for id in [5, 3, 9] {
        let new = key(id, &[Scope::Read, Scope::Ingest]);
        created.insert(0, world.keys.create_key(ours, &new).await.unwrap());
        world.pass(Duration::from_millis(2)).await;
    }
    let other = key(4, &[Scope::Read]);
    world.keys.create_key(theirs, &other).await.unwrap();
    assert_eq!(world.keys.keys(ours, 10).await.unwrap(), created);
    assert_eq!(world.keys.keys(ours, 2).await.unwrap(), created[..2]);
}

/// Never earlier than it says already; several keys at once.
pub async fn a_last_use_is_noted_once_a_minute(world: &TenantWorld) {
    for id in [1, 2] {
        let new = key(id, &[Scope::Read]);
        world.keys.create_key(DEFAULT_TENANT, &new).await.unwrap();
    }
    let noted = async |seconds_ago: u64| {
        let used = |id| KeyUse {
            key: KeyId(id),
            ago: Duration::from_secs(seconds_ago),
        };
        // One that is not there does no harm.
        let uses = [used(2), used(99), used(1)];
        world.keys.note_keys_used(&uses).await.unwrap();
        let keys = world.keys.keys(DEFAULT_TENANT, 10).await.unwrap();
        assert_eq!(keys[0].last_used_at, keys[1].last_used_at);
        keys[0].last_used_at.unwrap()
    };
    let first = noted(400).await;
    let now = world.now().await;
    assert!(first <= now - Duration::from_secs(400), "{first:?} {now:?}");
    assert_eq!(noted(350).await, first, "within the minute");
    assert_eq!(noted(500).await, first, "earlier");
    let second = noted(200).await;
    assert!(second > first + Duration::from_secs(190));
}

/// Whoever administers tenants is none of them.
pub async fn admin_is_for_the_default_tenant_alone(world: &TenantWorld) {
    let tenant = world.tenant("enterprise").await.id;
    let refused = world.keys.create_key(tenant, &key(1, &Scope::ALL)).await;
    refuses(refused, "scopes");
    assert_eq!(in_force(world, KeyId(1)).await, None);
    for scope in [Scope::Admin, Scope::Platform] {
        let refused = world.keys.create_key(tenant, &key(1, &[scope])).await;
        refuses(refused, "scopes");
    }
    let all = key(1, &Scope::ALL);
    world.keys.create_key(DEFAULT_TENANT, &all).await.unwrap();
    let found = in_force(world, all.id).await.unwrap();
    assert_eq!(found.scopes, Scopes::ALL);
    let none = world.keys.create_key(tenant, &key(2, &[])).await;
    refuses(none, "scopes");
}

/// A second key of the same id is refused and changes nothing.
pub async fn an_id_is_given_once(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let new = key(7, &[Scope::Read]);
    world.keys.create_key(DEFAULT_TENANT, &new).await.unwrap();
    refuses(world.keys.create_key(tenant, &new).await, "id");
    let found = in_force(world, new.id).await.unwrap();
    assert_eq!(found.tenant, DEFAULT_TENANT);
}

/// Revoked ones do not count.
pub async fn a_tenant_has_so_many_keys_and_no_more(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    for id in 0..u64::from(MAX_KEYS) {
        let new = key(id, &[Scope::Read]);
        world.keys.create_key(tenant, &new).await.unwrap();
    }
    let more = key(1_000, &[Scope::Read]);
    refuses(world.keys.create_key(tenant, &more).await, "tenant");
    world.keys.revoke_key(tenant, KeyId(3)).await.unwrap();
    world.keys.create_key(tenant, &more).await.unwrap();
}
