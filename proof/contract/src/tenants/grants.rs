//! More than a tier allows, asked for and granted: larger batches of one destination, and
//! more destinations of a tenant.

use domain::batch::BatchSettings;
use domain::ceiling::{Ceiling, LargerBatches};
use domain::ids::{DestinationId, TenantId};
use domain::policy::LimitSettings;
use engine::ports::{
    CatalogError, DestinationChange, LimitRequestState, NewDestinationsRequest, NewLimitRequest,
    OtherLimits, TOO_MANY_DESTINATIONS, TierChange, Wanted,
};

use super::ceilings::{bounded, create};
use super::{TenantWorld, not_found, refuses};

const LIMITS: LimitSettings = LimitSettings {
    per_second: Some(1),
    ..LimitSettings::EXACT
};

/// Asks for so many events in one request, and for nothing else.
async fn ask_for_events(
    world: &TenantWorld,
    (tenant, destination): (TenantId, DestinationId),
    events: u32,
) -> uuid::Uuid {
    let new = NewLimitRequest {
        id: world.id(),
        destination,
        limits: None,
        batches: LargerBatches {
            events: Some(events),
            bytes: None,
        },
        note: String::new(),
    };
    world.requests.request_limits(tenant, &new).await.unwrap()
}

/// Once they are granted, and by nobody else; what is asked for of batches sets nothing.
pub async fn larger_batches_may_be_set_once_they_are_granted(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let most = Ceiling {
        batch_events: Some(20),
        batch_bytes: Some(1_000),
        ..Ceiling::default()
    };
    bounded(world, most).await;
    let id = create(world, tenant, LIMITS).await.unwrap();
    let another = create(world, tenant, LIMITS).await.unwrap();
    let set = async |id, events| {
        let batches = BatchSettings {
            max_events: Some(events),
            max_bytes: Some(1_000),
            max_wait_ms: None,
        };
        let set = world.backlog.set_batch_settings(tenant, id, &batches);
        set.await
    };
    let first = ask_for_events(world, (tenant, id), 40).await;
    assert_eq!(ask_for_events(world, (tenant, id), 40).await, first);
    let newer = ask_for_events(world, (tenant, id), 50).await;
    let port = &world.requests;
    not_found(port.limit_request(first).await);
    let wanted = port.limit_request(newer).await.unwrap().wanted;
    let events = Some(50);
    let batches = LargerBatches {
        events,
        bytes: None,
    };
    let asked = Wanted::Limits {
        destination: id,
        limits: None,
        batches,
    };
    assert_eq!(wanted, asked);
    refuses(set(id, 50).await, "batches");
    let approved = LimitRequestState::Approved;
    (port.decide_limit_request(newer, approved, "").await).unwrap();
    let found = world.catalog.destination(tenant, id).await.unwrap();
    let raised = Ceiling {
        batch_events: events,
        ..most
    };
    assert_eq!((found.ceiling, found.limits), (raised, LIMITS));
    set(id, 50).await.unwrap();
    refuses(set(id, 51).await, "batches");
    refuses(set(another, 21).await, "batches");
    let sql = format!("update destinations set batch_max_events = 51 where id = '{id}'");
    assert!(world.refused_sql(&sql).await.contains("ceiling"));
}

/// Limits that are above a ceiling since it was lowered stay, may be changed meanwhile, and
/// are not granted by a request for batches.
pub async fn who_asks_for_batches_is_granted_no_limits(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let fast = LimitSettings {
        per_second: Some(100),
        ..LimitSettings::EXACT
    };
    let id = create(world, tenant, fast).await.unwrap();
    let lowered = Ceiling {
        per_second: Some(10.0),
        batch_events: Some(20),
        ..Ceiling::default()
    };
    bounded(world, lowered).await;
    let found = async || world.catalog.destination(tenant, id).await.unwrap();
    let set = async |limits| {
        let change = DestinationChange {
            limits: Some(limits),
            ..DestinationChange::default()
        };
        let set = world.catalog.change_destination(tenant, id, &change);
        set.await.map(|changed| changed.limits)
    };
    let port = &world.requests;
    let approved = LimitRequestState::Approved;
    let request = ask_for_events(world, (tenant, id), 50).await;
    (port.decide_limit_request(request, approved, "").await).unwrap();
    let raised = |events| Ceiling {
        batch_events: Some(events),
        ..lowered
    };
    let is = found().await;
    assert_eq!((is.ceiling, is.limits), (raised(50), fast));
    // Its owner slows it down before the next is decided on, which changes nothing of it.
    let request = ask_for_events(world, (tenant, id), 60).await;
    assert_eq!(set(LIMITS).await.unwrap(), LIMITS);
    (port.decide_limit_request(request, approved, "").await).unwrap();
    let is = found().await;
    assert_eq!((is.ceiling, is.limits), (raised(60), LIMITS));
    refuses(set(fast).await, "limits");
}

/// Limits and batches are asked for in two places: neither takes back the other.
pub async fn a_request_keeps_the_part_that_it_does_not_ask_for(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let id = create(world, tenant, LIMITS).await.unwrap();
    let faster = |per_second| {
        let settings = LimitSettings {
            per_second: Some(per_second),
            ..LimitSettings::EXACT
        };
        Some(OtherLimits {
            before: LIMITS,
            settings,
        })
    };
    let of = |events, bytes| LargerBatches { events, bytes };
    let (none, larger, other) = (
        LargerBatches::default(),
        of(Some(50), Some(9_000)),
        of(None, Some(8_000)),
    );
    let port = &world.requests;
    let mut open = Vec::new();
    for (limits, batches, (kept, beside)) in [
        (faster(20), none, (faster(20), none)),
        (None, larger, (faster(20), larger)),
        // The same once more, with the part that is kept and without.
        (None, larger, (faster(20), larger)),
        (faster(20), larger, (faster(20), larger)),
        (faster(30), none, (faster(30), larger)),
        (None, other, (faster(30), other)),
    ] {
        let new = NewLimitRequest {
            id: world.id(),
            destination: id,
            limits,
            batches,
            note: String::new(),
        };
        let request = port.request_limits(tenant, &new).await.unwrap();
        let asked = Wanted::Limits {
            destination: id,
            limits: kept,
            batches: beside,
        };
        assert_eq!(port.limit_request(request).await.unwrap().wanted, asked);
        open.push(request);
    }
    assert_eq!(
        port.limit_requests(Some(tenant), None, 10)
            .await
            .unwrap()
            .len(),
        1
    );
    open.dedup();
    assert_eq!(open.len(), 4, "what says the same is the one that is open");
    let told = (world.operations).recent_operational_events(Some(tenant), None, 10);
    let told = told.await.unwrap();
    assert_eq!(told.len(), 4, "{told:?}");
    for said in [r#""per_second":30"#, r#""batch_bytes":8000"#] {
        let newest = &told[0].details;
        assert!(newest.contains(said), "{said}: {newest}");
    }
}

async fn ask(world: &TenantWorld, tenant: TenantId, destinations: u32) -> uuid::Uuid {
    let new = NewDestinationsRequest {
        id: world.id(),
        destinations,
        note: "shops".to_owned(),
    };
    let asked = world.requests.request_destinations(tenant, &new).await;
    asked.unwrap()
}

async fn allowed(world: &TenantWorld, most: Option<u32>) {
    let change = TierChange {
        tenant_max_destinations: Some(most),
        ..TierChange::default()
    };
    world.tenants.change_tier("free", &change).await.unwrap();
}

/// By the store and by SQL; another tenant of the tier has what it had, and a tier that
/// allows more than was granted says how many there are.
pub async fn a_tenant_may_have_the_destinations_that_it_is_granted(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let other = world.tenant("free").await.id;
    allowed(world, Some(1)).await;
    let add = async |tenant| create(world, tenant, LIMITS).await;
    add(tenant).await.unwrap();
    add(other).await.unwrap();
    refuses(add(tenant).await, "tenant_max_destinations");
    let (approved, declined) = (LimitRequestState::Approved, LimitRequestState::Declined);
    let decide = async |id, decision| {
        let port = &world.requests;
        port.decide_limit_request(id, decision, "").await
    };
    let most = async || {
        let found = world.tenants.tenant(tenant).await.unwrap();
        found.effective_max_destinations
    };
    let request = ask(world, tenant, 2).await;
    decide(request, declined).await.unwrap();
    assert_eq!(most().await, Some(1));
    refuses(add(tenant).await, "tenant_max_destinations");
    let request = ask(world, tenant, 2).await;
    decide(request, approved).await.unwrap();
    assert_eq!(most().await, Some(2));
    add(tenant).await.unwrap();
    refuses(add(tenant).await, "tenant_max_destinations");
    refuses(add(other).await, "tenant_max_destinations");
    let insert = format!(
        "insert into destinations (id, tenant_id, url) \
        values ('{}', '{tenant}', 'https://x.example/')",
        world.id()
    );
    let said = world.refused_sql(&insert).await;
    assert!(said.contains(TOO_MANY_DESTINATIONS), "{said}");
    // Less takes nothing back.
    let request = ask(world, tenant, 1).await;
    decide(request, approved).await.unwrap();
    assert_eq!(most().await, Some(2));
    allowed(world, Some(3)).await;
    assert_eq!(most().await, Some(3));
    world.sql(&insert).await;
    refuses(add(tenant).await, "tenant_max_destinations");
    allowed(world, None).await;
    assert_eq!(most().await, None);
    add(tenant).await.unwrap();
}

/// Of these one is open as well; and it is for the tenant, which its requests for a
/// destination leave alone.
pub async fn a_request_for_destinations_is_the_tenants(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let id = create(world, ours, LIMITS).await.unwrap();
    let port = &world.requests;
    let first = ask(world, ours, 20).await;
    assert_eq!(ask(world, ours, 20).await, first, "it says the same");
    let newer = ask(world, ours, 30).await;
    not_found(port.limit_request(first).await);
    let limits = ask_for_events(world, (ours, id), 7).await;
    let listed = port.limit_requests(Some(ours), None, 10).await.unwrap();
    let mut open: Vec<_> = listed.iter().map(|one| (one.id, one.state)).collect();
    open.sort_by_key(|(id, _)| *id != newer);
    let waits = LimitRequestState::Open;
    assert_eq!(open, [(newer, waits), (limits, waits)]);
    let found = port.limit_request(newer).await.unwrap();
    assert_eq!(
        (found.tenant, found.wanted),
        (ours, Wanted::Destinations(30))
    );
    assert_eq!(found.note, "shops");
    assert_eq!(
        port.limit_requests(Some(theirs), None, 10).await.unwrap(),
        []
    );
    let declined = LimitRequestState::Declined;
    (port.decide_limit_request(newer, declined, "not yet").await).unwrap();
    let again = port.decide_limit_request(newer, declined, "").await;
    assert!(matches!(again, Err(CatalogError::Conflict(_))), "{again:?}");

    let told = (world.operations).recent_operational_events(Some(ours), None, 10);
    let told = told.await.unwrap();
    let of_tenant = told.iter().filter(|one| one.destination.is_none());
    let said: Vec<_> = of_tenant
        .map(|one| (one.event_type.as_str(), one.details.as_str()))
        .collect();
    let [(decided, reason), (requested, number), (_, before)] = said[..] else {
        panic!("expected three, the newest first: {said:?}")
    };
    assert_eq!((requested, decided), ("limits_requested", "limits_decided"));
    assert!(number.contains(r#""destinations":30"#), "{number}");
    assert!(before.contains(r#""destinations":20"#), "{before}");
    assert!(reason.contains(r#""reason":"not yet""#), "{reason}");
    let nobody = TenantId(world.id());
    let new = NewDestinationsRequest {
        id: world.id(),
        destinations: 1,
        note: String::new(),
    };
    not_found(port.request_destinations(nobody, &new).await);
}
