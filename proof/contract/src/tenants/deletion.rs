//! The deletion of tenants: [`Tenants::delete_tenant`](engine::ports::Tenants::delete_tenant).

use std::time::Duration;

use domain::access::{KeyId, Scope};
use domain::external_id::ExternalId;
use domain::ids::TenantId;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, EMPTIED_AT_ONCE, HEARTBEAT_TIMEOUT, NewSession, NewTenant,
    ReapRules, Reaped, SessionKind, TenantChange,
};

use super::keys::{in_force, key};
use super::sessions::begun;
use super::{TenantWorld, not_found};

const RULES: ReapRules = ReapRules {
    heartbeat_timeout: HEARTBEAT_TIMEOUT,
    start_timeout: Duration::from_secs(60),
    permit_grace: Duration::from_secs(60),
    everything: true,
};

async fn reap(world: &TenantWorld) -> Reaped {
    world.store.reap(&RULES, 1_000).await.unwrap()
}

/// How many of its destinations are left.
async fn left(world: &TenantWorld, tenant: TenantId) -> Option<u32> {
    let found = world.tenants.tenant(tenant).await.unwrap();
    found.deletion.map(|deletion| deletion.destinations_left)
}

/// It was deleted so long ago that nothing can be on its way to it any more.
async fn long_ago(world: &TenantWorld, tenant: TenantId) {
    let set = |at: &str| format!("update tenants set deleted_at = {at} where id = '{tenant}'");
    let dialects = [
        "deleted_at - interval '2 minutes'",
        "deleted_at - 120000000",
    ]
    .map(set);
    world.either_sql([&dialects[0], &dialects[1]]).await;
}

/// Nothing opens for it, nothing is made for it, and what it was called is free.
pub async fn a_deleted_tenant_has_no_doors(world: &TenantWorld) {
    let called: ExternalId = "customer-7".parse().unwrap();
    let new = NewTenant {
        id: TenantId(world.id()),
        external_id: Some(called.clone()),
        name: "Acme".to_owned(),
        tier: "free".to_owned(),
        max_in_flight: None,
        ingest_per_second: None,
    };
    let tenant = world.tenants.create_tenant(&new).await.unwrap();
    assert_eq!(tenant.deletion, None);
    let (of_it, other) = (key(7, &[Scope::Read]), key(8, &[Scope::Read]));
    world.keys.create_key(tenant.id, &of_it).await.unwrap();
    let neighbour = world.tenant("free").await.id;
    world.keys.create_key(neighbour, &other).await.unwrap();
    world
        .destination_of(tenant.id, &world.destination().build())
        .await;
    let deleted = world.tenants.delete_tenant(tenant.id).await.unwrap();
    let deletion = deleted.deletion.unwrap();
    assert_eq!(deletion.destinations_left, 1);
    assert_eq!(in_force(world, KeyId(7)).await, None);
    assert!(in_force(world, KeyId(8)).await.is_some());
    not_found(
        world
            .keys
            .create_key(tenant.id, &key(9, &[Scope::Read]))
            .await,
    );
    let late = world.destination().build();
    not_found(world.catalog.create_destination(tenant.id, &late).await);
    let change = TenantChange {
        name: Some("new".to_owned()),
        ..TenantChange::default()
    };
    not_found(world.tenants.change_tenant(tenant.id, &change).await);
    not_found(world.tenants.tenant_called(&called).await);
    let again = world.tenants.delete_tenant(tenant.id).await.unwrap();
    assert_eq!(again, deleted, "again is as before");
    let next = NewTenant {
        id: TenantId(world.id()),
        ..new
    };
    world.tenants.create_tenant(&next).await.unwrap();
    let found = world.tenants.tenant_called(&called).await.unwrap();
    assert_eq!(found.id, next.id);
    not_found(world.tenants.delete_tenant(TenantId(world.id())).await);
}

/// So many at a time, each with its backlog, and no neighbour's.
pub async fn its_destinations_go_step_by_step(world: &TenantWorld) {
    let (tenant, neighbour) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let mut theirs = Vec::new();
    for _ in 0..EMPTIED_AT_ONCE + 2 {
        let new = world.destination().build();
        theirs.push(world.destination_of(tenant, &new).await);
    }
    let stays = world.destination().build();
    let stays = world.destination_of(neighbour, &stays).await;
    for (owner, destination) in [
        (tenant, theirs[0]),
        (tenant, theirs[51]),
        (neighbour, stays),
    ] {
        world.accept_for(owner, destination, 2).await;
    }
    world.tenants.delete_tenant(tenant).await.unwrap();
    assert_eq!(left(world, tenant).await, Some(EMPTIED_AT_ONCE + 2));
    let alive = async || {
        let page = world.catalog.destinations(tenant, None, 1_000).await;
        page.unwrap().len()
    };
    assert!(reap(world).await.more);
    assert_eq!(alive().await, 2);
    reap(world).await;
    assert_eq!(alive().await, 0);
    reap(world).await;
    for gone in [theirs[0], theirs[51]] {
        assert_eq!(world.backlog(gone).await, 0);
    }
    assert_eq!(world.backlog(stays).await, 2);
    assert_eq!(left(world, neighbour).await, None);
}

/// One that has nothing is gone at once, but not before what had begun to be made for it
/// must be there; one that has a ledger when that is gone.
pub async fn it_is_forgotten_with_the_last_of_it(world: &TenantWorld) {
    let (empty, owner) = (world.tenant("free").await.id, world.tenant("free").await.id);
    world
        .destination_of(owner, &world.destination().build())
        .await;
    for tenant in [empty, owner] {
        world.tenants.delete_tenant(tenant).await.unwrap();
    }
    reap(world).await;
    assert_eq!(left(world, empty).await, Some(0));
    for tenant in [empty, owner] {
        long_ago(world, tenant).await;
    }
    while reap(world).await.more {}
    not_found(world.tenants.tenant(empty).await);
    assert!(left(world, owner).await.is_some());
}

/// One that has nothing holds up no other, and neither does one that somebody looks at.
pub async fn deleted_tenants_do_not_wait_for_each_other(world: &TenantWorld) {
    let (empty, owner) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let sends = world.destination().build();
    world.destination_of(owner, &sends).await;
    for tenant in [empty, owner] {
        world.tenants.delete_tenant(tenant).await.unwrap();
    }
    let looks = NewSession {
        scopes: [Scope::Admin].into_iter().collect(),
        ..begun(3, SessionKind::Key, DEFAULT_TENANT)
    };
    world.sessions.begin_session(&looks).await.unwrap();
    let digest = looks.digest;
    world.sessions.move_session(digest, empty).await.unwrap();
    reap(world).await;
    let alive = world.catalog.destinations(owner, None, 10).await.unwrap();
    assert_eq!(alive.len(), 0);
    for tenant in [empty, owner] {
        long_ago(world, tenant).await;
    }
    while reap(world).await.more {}
    not_found(world.tenants.tenant(empty).await);
    let found = world.sessions.session(digest).await.unwrap();
    assert_eq!(found.unwrap().tenant, DEFAULT_TENANT, "it looks at its own");
}

/// Whoever manages it would make it again.
pub async fn one_that_resources_manage_stays(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let managed = world.destination().build();
    let managed = world.destination_of(tenant, &managed).await;
    let row = format!("'{managed}', '{tenant}', 'shop/orders', 'uid-1'");
    let insert = "insert into destination_managers (destination_id, tenant_id, resource, uid)";
    world.sql(&format!("{insert} values ({row})")).await;
    let refused = world.tenants.delete_tenant(tenant).await;
    assert!(
        matches!(refused, Err(CatalogError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(left(world, tenant).await, None);
    world.sql("delete from destination_managers").await;
    world.tenants.delete_tenant(tenant).await.unwrap();
}
