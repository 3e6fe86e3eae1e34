//! Tenants and their plan tiers.

use domain::access::{KeyId, Scope};
use domain::ceiling::Ceiling;
use domain::external_id::ExternalId;
use domain::ids::{DestinationId, TenantId};
use domain::limit::Shape;
use domain::policy::LimitSettings;

use super::keys::in_force;
use super::{TenantWorld, not_found, refuses};
use engine::ports::{
    CatalogError, DEFAULT_MAX_DESTINATIONS, DEFAULT_TENANT, NewKey, NewTenant,
    TOO_MANY_DESTINATIONS, TenantChange, Tier, TierChange,
};

fn bucket(per_second: u32, burst: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(per_second),
        burst: Some(burst),
        shape: Some(Shape::TokenBucket),
        ..LimitSettings::default()
    }
}

/// Free 2/s, standard 10/s, enterprise 100/s, with five times as much at once.
pub async fn the_tiers_are_the_plans(world: &TenantWorld) {
    let tier = |name: &str, per_second| Tier {
        name: name.to_owned(),
        limits: bucket(per_second, per_second * 5),
        tenant_max_in_flight: None,
        tenant_ingest_per_second: None,
        tenant_max_destinations: Some(DEFAULT_MAX_DESTINATIONS),
        ceiling: Ceiling::default(),
    };
    let plans = [
        tier("enterprise", 100),
        tier("free", 2),
        tier("standard", 10),
    ];
    assert_eq!(world.tenants.tiers().await.unwrap(), plans);
}

/// All of it.
pub async fn a_tenant_is_read_as_it_was_created(world: &TenantWorld) {
    let new = NewTenant {
        external_id: None,
        id: TenantId(world.id()),
        name: "Läden & Töchter 'x'".to_owned(),
        tier: "enterprise".to_owned(),
        max_in_flight: Some(40),
        ingest_per_second: Some(900),
    };
    let created = world.tenants.create_tenant(&new).await.unwrap();
    assert_eq!((created.id, &created.name), (new.id, &new.name));
    assert_eq!(
        (created.tier.as_str(), created.max_in_flight),
        ("enterprise", Some(40))
    );
    assert_eq!(created.ingest_per_second, Some(900));
    assert_eq!(world.tenants.tenant(new.id).await.unwrap(), created);
    not_found(world.tenants.tenant(TenantId(world.id())).await);
}

/// One at most is called so, and it is found by that.
pub async fn a_tenant_is_found_by_what_its_platform_calls_it(world: &TenantWorld) {
    let called = |text: &str| text.parse::<ExternalId>().unwrap();
    let new = |id| NewTenant {
        external_id: Some(called("Customer:7")),
        id: TenantId(id),
        name: "Acme".to_owned(),
        tier: "free".to_owned(),
        max_in_flight: None,
        ingest_per_second: None,
    };
    let (first, second) = (new(world.id()), new(world.id()));
    let created = world.tenants.create_tenant(&first).await.unwrap();
    assert_eq!(created.external_id, first.external_id);
    let found = world.tenants.tenant_called(&called("Customer:7")).await;
    assert_eq!(found.unwrap(), created);
    not_found(world.tenants.tenant_called(&called("customer:7")).await);
    refuses(world.tenants.create_tenant(&second).await, "external_id");

    let other = world.tenant("free").await;
    let rename = async |id, text: &str| {
        let change = TenantChange {
            external_id: Some(called(text)),
            ..TenantChange::default()
        };
        world.tenants.change_tenant(id, &change).await
    };
    refuses(rename(other.id, "Customer:7").await, "external_id");
    let renamed = rename(first.id, "customer-8").await.unwrap();
    assert_eq!(renamed.external_id, Some(called("customer-8")));
    assert_eq!(renamed.name, created.name);
    rename(other.id, "Customer:7").await.unwrap();
    let found = world.tenants.tenant_called(&called("Customer:7")).await;
    assert_eq!(found.unwrap().id, other.id);
}

/// What is not named stays; what can be cleared is.
pub async fn a_change_of_a_tenant_leaves_the_rest_alone(world: &TenantWorld) {
    let before = world.tenant("free").await;
    let change = TenantChange {
        max_in_flight: Some(Some(9)),
        ..TenantChange::default()
    };
    let changed = world.tenants.change_tenant(before.id, &change).await;
    let changed = changed.unwrap();
    assert_eq!(changed.max_in_flight, Some(9));
    assert_eq!((&changed.name, &changed.tier), (&before.name, &before.tier));
    let change = TenantChange {
        name: Some("Acme".to_owned()),
        max_in_flight: Some(None),
        ..TenantChange::default()
    };
    let changed = world.tenants.change_tenant(before.id, &change).await;
    let changed = changed.unwrap();
    assert_eq!(
        (changed.name.as_str(), changed.max_in_flight),
        ("Acme", None)
    );
    assert_eq!(world.tenants.tenant(before.id).await.unwrap(), changed);
    let nobody = TenantId(world.id());
    not_found(world.tenants.change_tenant(nobody, &change).await);
}

/// None is left out, none comes twice.
pub async fn tenants_are_paged_by_id(world: &TenantWorld) {
    let mut expected = vec![DEFAULT_TENANT];
    for _ in 0..4 {
        expected.push(world.tenant("free").await.id);
    }
    let mut paged = Vec::new();
    loop {
        let page = world.tenants.tenants(paged.last().copied(), 2).await;
        let page = page.unwrap();
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        paged.extend(page.iter().map(|tenant| tenant.id));
    }
    assert_eq!(paged, expected);
}

/// On creation and on change; nothing is written.
pub async fn an_unknown_tier_is_refused_by_its_name(world: &TenantWorld) {
    let new = NewTenant {
        external_id: None,
        id: TenantId(world.id()),
        name: "Acme".to_owned(),
        tier: "platinum".to_owned(),
        max_in_flight: None,
        ingest_per_second: None,
    };
    refuses(world.tenants.create_tenant(&new).await, "tier");
    not_found(world.tenants.tenant(new.id).await);
    let before = world.tenant("free").await;
    let change = TenantChange {
        name: Some("Acme".to_owned()),
        tier: Some("platinum".to_owned()),
        ..TenantChange::default()
    };
    refuses(
        world.tenants.change_tenant(before.id, &change).await,
        "tier",
    );
    assert_eq!(world.tenants.tenant(before.id).await.unwrap(), before);
    let change = TierChange::default();
    not_found(world.tenants.change_tier("platinum", &change).await);
}

async fn effective(world: &TenantWorld, tenant: TenantId, id: DestinationId) -> LimitSettings {
    let found = world.catalog.destination(tenant, id).await;
    found.unwrap().effective
}

/// One limit of its own, and the tier's are none of its.
pub async fn destinations_inherit_the_tier_and_override_it(world: &TenantWorld) {
    for (tier, inherited) in [
        ("free", bucket(2, 10)),
        ("standard", bucket(10, 50)),
        ("enterprise", bucket(100, 500)),
    ] {
        let tenant = world.tenant(tier).await.id;
        let inherits = world
            .destination_of(tenant, &world.destination().margin(None).build())
            .await;
        assert_eq!(
            effective(world, tenant, inherits).await,
            inherited,
            "{tier}"
        );
        let own = world.destination().margin(None).per_second(7).build();
        let overrides = world.destination_of(tenant, &own).await;
        assert_eq!(effective(world, tenant, overrides).await, own.limits);
        let unlimited = world.destination().margin(None).unlimited().build();
        let lifted = world.destination_of(tenant, &unlimited).await;
        assert!(effective(world, tenant, lifted).await.unlimited, "{tier}");
    }
}

/// From its time in limit history on; what overrides is left alone.
pub async fn another_tier_is_in_force_for_all_that_inherit(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let inherits = world
        .destination_of(tenant, &world.destination().margin(None).build())
        .await;
    let own = world.destination().margin(None).per_second(7).build();
    let overrides = world.destination_of(tenant, &own).await;
    let stranger = world.tenant("free").await.id;
    let strange = world
        .destination_of(stranger, &world.destination().margin(None).build())
        .await;
    let before = world.now().await;
    let change = TenantChange {
        tier: Some("enterprise".to_owned()),
        ..TenantChange::default()
    };
    let changed = world.tenants.change_tenant(tenant, &change).await.unwrap();
    assert_eq!(changed.tier, "enterprise");
    assert_eq!(effective(world, tenant, inherits).await, bucket(100, 500));
    assert_eq!(effective(world, tenant, overrides).await, own.limits);
    assert_eq!(effective(world, stranger, strange).await, bucket(2, 10));
    let history = world.catalog.limit_history(inherits).await.unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!(history[1].effective, bucket(100, 500));
    assert!(history[1].in_force_from >= before);
    for untouched in [overrides, strange] {
        let history = world.catalog.limit_history(untouched).await.unwrap();
        assert_eq!(history.len(), 1);
    }
}

/// By the same triggers as a user's SQL.
pub async fn a_lowered_tier_revokes_and_a_raised_one_does_not(world: &TenantWorld) {
    let destination = world.destination().margin(None).create().await;
    world.accept(destination, 20).await;
    let admitted = world.admit(destination).await.len();
    assert!(admitted > 10, "{admitted} of a bucket of 50");
    let change = |limits| TierChange {
        limits: Some(limits),
        ..TierChange::default()
    };
    let outstanding = async || world.store.fleet().await.unwrap().outstanding as usize;
    let raised = change(bucket(20, 100));
    let tier = world
        .tenants
        .change_tier("standard", &raised)
        .await
        .unwrap();
    assert_eq!(tier.limits, bucket(20, 100));
    assert_eq!(outstanding().await, admitted);
    let lowered = change(bucket(1, 2));
    world
        .tenants
        .change_tier("standard", &lowered)
        .await
        .unwrap();
    assert_eq!(outstanding().await, 0, "revoked when it answers");
    assert_eq!(
        effective(world, DEFAULT_TENANT, destination).await,
        bucket(1, 2)
    );
    assert_eq!(world.tenants.tiers().await.unwrap()[2].limits, bucket(1, 2));
}

/// And clearing its own gives the tier's back.
pub async fn the_tiers_bound_in_flight_is_the_tenants_unless_it_has_its_own(world: &TenantWorld) {
    let tenant = world.tenant("free").await;
    assert_eq!(tenant.effective_max_in_flight, None);
    let change = TierChange {
        tenant_max_in_flight: Some(Some(30)),
        ..TierChange::default()
    };
    let tier = world.tenants.change_tier("free", &change).await.unwrap();
    assert_eq!(
        (tier.tenant_max_in_flight, tier.limits),
        (Some(30), bucket(2, 10))
    );
    let effective = async || {
        let tenant = world.tenants.tenant(tenant.id).await.unwrap();
        tenant.effective_max_in_flight
    };
    assert_eq!(effective().await, Some(30));
    for (own, holds) in [(Some(5), Some(5)), (None, Some(30))] {
        let change = TenantChange {
            max_in_flight: Some(own),
            ..TenantChange::default()
        };
        world
            .tenants
            .change_tenant(tenant.id, &change)
            .await
            .unwrap();
        assert_eq!(effective().await, holds);
    }
}

/// Its own, if it has one; else the tier's, if that has one.
pub async fn a_tenants_ingest_is_bounded_by_its_own_or_its_tiers(world: &TenantWorld) {
    let tenant = world.tenant("free").await;
    assert_eq!(tenant.effective_ingest_per_second, None);
    let change = TierChange {
        tenant_ingest_per_second: Some(Some(50)),
        ..TierChange::default()
    };
    let tier = world.tenants.change_tier("free", &change).await.unwrap();
    assert_eq!(tier.tenant_ingest_per_second, Some(50));
    let found = world.tenants.tenant(tenant.id).await.unwrap();
    let bounds = (found.ingest_per_second, found.effective_ingest_per_second);
    assert_eq!(bounds, (None, Some(50)));
    let own = |ingest_per_second| TenantChange {
        ingest_per_second: Some(ingest_per_second),
        ..TenantChange::default()
    };
    let changed = (world.tenants.change_tenant(tenant.id, &own(Some(7)))).await;
    let changed = changed.unwrap();
    assert_eq!(changed.effective_ingest_per_second, Some(7));
    // And its keys say so.
    let key = NewKey {
        id: KeyId(12),
        name: String::new(),
        digest: [3; 32],
        scopes: [Scope::Ingest].into_iter().collect(),
        expires_in: None,
    };
    world.keys.create_key(tenant.id, &key).await.unwrap();
    let credential = async || in_force(world, key.id).await.unwrap();
    assert_eq!(credential().await.ingest_per_second, Some(7));
    assert_eq!(changed.name, tenant.name);
    let cleared = (world.tenants.change_tenant(tenant.id, &own(None))).await;
    assert_eq!(cleared.unwrap().effective_ingest_per_second, Some(50));
    assert_eq!(credential().await.ingest_per_second, Some(50));
    let change = TierChange {
        tenant_ingest_per_second: Some(None),
        ..TierChange::default()
    };
    let tier = world.tenants.change_tier("free", &change).await.unwrap();
    assert_eq!(tier.tenant_ingest_per_second, None);
}

/// Also of those that it has just deleted: who makes and deletes by turns has a bound.
pub async fn a_tenant_has_no_more_destinations_than_its_tier_allows(world: &TenantWorld) {
    let tenant = world.tenant("free").await;
    let bound = async |most| {
        let change = TierChange {
            tenant_max_destinations: Some(most),
            ..TierChange::default()
        };
        let tier = world.tenants.change_tier("free", &change).await.unwrap();
        assert_eq!(tier.tenant_max_destinations, most);
    };
    let create = async || {
        let new = world.destination().margin(None).build();
        let created = world.catalog.create_destination(tenant.id, &new).await;
        created.map(|one| one.id)
    };
    bound(Some(2)).await;
    let first = create().await.unwrap();
    create().await.unwrap();
    refuses(create().await, "tenant_max_destinations");
    let other = world.destination().margin(None).create().await;
    assert_ne!(other, first, "another tenant is not meant");
    let deleted = world.catalog.delete_destination(tenant.id, first);
    deleted.await.unwrap();
    refuses(create().await, "tenant_max_destinations");
    bound(Some(3)).await;
    create().await.unwrap();
    bound(None).await;
    create().await.unwrap();
}

/// In the same words, whether they are inserted or moved there; but for the default tenant's.
pub async fn destinations_by_sql_are_held_to_the_tiers_number(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    for tier in ["free", "standard"] {
        let change = TierChange {
            tenant_max_destinations: Some(Some(2)),
            ..TierChange::default()
        };
        world.tenants.change_tier(tier, &change).await.unwrap();
    }
    let inserted = |tenant: TenantId| {
        let id = world.id();
        let insert = format!(
            "insert into destinations (id, tenant_id, url) \
            values ('{id}', '{tenant}', 'https://x.example/')"
        );
        (id, insert)
    };
    for _ in 0..2 {
        world.sql(&inserted(tenant).1).await;
    }
    let said = world.refused_sql(&inserted(tenant).1).await;
    assert!(said.contains(TOO_MANY_DESTINATIONS), "{said}");
    let new = world.destination().margin(None).build();
    match world.catalog.create_destination(tenant, &new).await {
        Err(CatalogError::Invalid { problem, .. }) => assert_eq!(problem, TOO_MANY_DESTINATIONS),
        other => panic!("expected a refusal, got {other:?}"),
    }
    let mut last = world.id();
    for _ in 0..3 {
        let (id, insert) = inserted(DEFAULT_TENANT);
        world.sql(&insert).await;
        last = id;
    }
    let moved = format!("update destinations set tenant_id = '{tenant}' where id = '{last}'");
    let said = world.refused_sql(&moved).await;
    assert!(said.contains(TOO_MANY_DESTINATIONS), "{said}");
}

/// All of it, until it is deleted; and nobody's tier is.
pub async fn a_tier_comes_and_goes(world: &TenantWorld) {
    let new = Tier {
        name: "start up".to_owned(),
        limits: LimitSettings {
            per_second: Some(7),
            per_hour: Some(900),
            burst: Some(3),
            shape: Some(Shape::SlidingWindow),
            max_in_flight: Some(11),
            ..LimitSettings::default()
        },
        tenant_max_in_flight: Some(40),
        tenant_ingest_per_second: Some(50),
        tenant_max_destinations: None,
        ceiling: Ceiling {
            per_second: Some(12.5),
            at_once: Some(30),
            max_in_flight: Some(9),
            batch_events: Some(50),
            batch_bytes: Some(65_536),
            age_seconds: Some(86_400),
        },
    };
    let all = async || world.tenants.tiers().await.unwrap();
    let before = all().await;
    let created = world.tenants.create_tier(&new).await.unwrap();
    assert_eq!(created, new);
    assert!(all().await.contains(&new));
    refuses(world.tenants.create_tier(&new).await, "name");

    let tenant = world.tenant("start up").await;
    let used = world.tenants.delete_tier("start up").await;
    assert!(matches!(used, Err(CatalogError::Conflict(_))), "{used:?}");
    let change = TenantChange {
        tier: Some("free".to_owned()),
        ..TenantChange::default()
    };
    let moved = world.tenants.change_tenant(tenant.id, &change).await;
    moved.unwrap();
    world.tenants.delete_tier("start up").await.unwrap();
    not_found(world.tenants.delete_tier("start up").await);
    assert_eq!(all().await, before);
}
