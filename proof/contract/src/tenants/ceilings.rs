//! The ceiling of what tenants set, and requests for more.

use std::time::Duration;

use domain::batch::BatchSettings;
use domain::ceiling::{Ceiling, LargerBatches};
use domain::ids::{DestinationId, TenantId};
use domain::limit::Shape;
use domain::policy::LimitSettings;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DestinationChange, LimitRequest, LimitRequestState,
    NewLimitRequest, OtherLimits, TierChange, Wanted,
};

use super::{TenantWorld, not_found, refuses};

const CEILING: Ceiling = Ceiling {
    per_second: Some(10.0),
    at_once: Some(20),
    max_in_flight: Some(50),
    batch_events: None,
    batch_bytes: None,
    age_seconds: None,
};

fn per_second(max: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(max),
        ..LimitSettings::EXACT
    }
}

pub(super) async fn bounded(world: &TenantWorld, ceiling: Ceiling) {
    let change = TierChange {
        ceiling: Some(ceiling),
        ..TierChange::default()
    };
    let tier = world.tenants.change_tier("free", &change).await.unwrap();
    assert_eq!(tier.ceiling, ceiling);
}

pub(super) async fn create(
    world: &TenantWorld,
    tenant: TenantId,
    limits: LimitSettings,
) -> Result<DestinationId, CatalogError> {
    let mut new = world.destination().build();
    new.limits = limits;
    let created = world.catalog.create_destination(tenant, &new).await;
    created.map(|one| one.id)
}

async fn set(
    world: &TenantWorld,
    tenant: TenantId,
    id: DestinationId,
    limits: LimitSettings,
) -> Result<LimitSettings, CatalogError> {
    let change = DestinationChange {
        limits: Some(limits),
        ..DestinationChange::default()
    };
    let changed = world.catalog.change_destination(tenant, id, &change).await;
    changed.map(|one| one.limits)
}

/// At creation, by a change and by SQL; and the default tenant has none.
pub async fn what_is_above_a_ceiling_is_refused_by_whatever_way_it_is_set(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    bounded(world, CEILING).await;
    refuses(create(world, tenant, per_second(11)).await, "limits");
    let id = create(world, tenant, per_second(10)).await.unwrap();
    let found = world.catalog.destination(tenant, id).await.unwrap();
    assert_eq!(found.ceiling, CEILING);
    refuses(set(world, tenant, id, per_second(11)).await, "limits");
    for sql in [
        "limit_per_second = 11",
        "limit_per_second = null, unlimited = true",
        "max_in_flight = 51",
    ] {
        let sql = format!("update destinations set {sql} where id = '{id}'");
        assert!(world.refused_sql(&sql).await.contains("ceiling"), "{sql}");
    }
    world
        .sql(&format!(
            "update destinations set limit_per_second = 9 where id = '{id}'"
        ))
        .await;
    // What is there already may be above: another name is no other limit.
    bounded(
        world,
        Ceiling {
            per_second: Some(5.0),
            ..CEILING
        },
    )
    .await;
    world
        .sql(&format!(
            "update destinations set name = 'still there' where id = '{id}'"
        ))
        .await;
    refuses(set(world, tenant, id, per_second(6)).await, "limits");
    assert_eq!(
        set(world, tenant, id, per_second(5)).await.unwrap(),
        per_second(5)
    );
    let change = TierChange {
        ceiling: Some(CEILING),
        ..TierChange::default()
    };
    world
        .tenants
        .change_tier("standard", &change)
        .await
        .unwrap();
    let own = create(world, DEFAULT_TENANT, per_second(1_000))
        .await
        .unwrap();
    let own = world
        .catalog
        .destination(DEFAULT_TENANT, own)
        .await
        .unwrap();
    assert_eq!(own.ceiling, Ceiling::default());
}

/// By the store and by SQL, events and bytes; and what is there stays until it is changed.
pub async fn batches_are_held_to_the_ceiling_as_well(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let most = Ceiling {
        batch_events: Some(20),
        batch_bytes: Some(1_000),
        ..Ceiling::default()
    };
    bounded(world, most).await;
    let id = create(world, tenant, per_second(1)).await.unwrap();
    let found = world.catalog.destination(tenant, id).await.unwrap();
    assert_eq!(found.ceiling, most);
    let set = async |max_events, max_bytes| {
        let batches = BatchSettings {
            max_events,
            max_bytes,
            max_wait_ms: None,
        };
        let set = world.backlog.set_batch_settings(tenant, id, &batches);
        (set.await).map(|()| most.check_batches(&batches))
    };
    for (events, bytes) in [(21, Some(1_000)), (20, Some(1_001)), (1, None)] {
        refuses(set(Some(events), bytes).await, "batches");
    }
    for (events, bytes) in [(Some(20), Some(1_000)), (None, None), (Some(1), Some(1))] {
        assert_eq!(set(events, bytes).await.unwrap(), Ok(()));
    }
    for sql in ["batch_max_events = 21", "batch_max_bytes = null"] {
        let sql = format!("update destinations set {sql} where id = '{id}'");
        assert!(world.refused_sql(&sql).await.contains("ceiling"), "{sql}");
    }
    let more = Ceiling {
        batch_events: None,
        ..most
    };
    bounded(world, more).await;
    set(Some(500), Some(1_000)).await.unwrap().unwrap_err();
    bounded(world, most).await;
    let rename = format!("update destinations set name = 'still there' where id = '{id}'");
    world.sql(&rename).await;
    let insert = format!(
        "insert into destinations (id, tenant_id, url, batch_max_events) \
        values ('{}', '{tenant}', 'https://x.example/', 2)",
        world.id()
    );
    assert!(world.refused_sql(&insert).await.contains("ceiling"));
}

/// On settings of all kinds, under ceilings of all kinds.
pub async fn the_store_refuses_what_the_domain_refuses(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    let mut dice: u64 = 1;
    let mut roll = move |sides: usize| {
        dice = dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).unwrap() % sides
    };
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..12 {
        let ceiling = Ceiling {
            per_second: [None, Some(0.5), Some(10.0), Some(1e9)][roll(4)],
            at_once: [None, Some(1), Some(20), Some(1_000_000_000)][roll(4)],
            max_in_flight: [None, Some(1), Some(50)][roll(3)],
            ..Ceiling::default()
        };
        bounded(world, ceiling).await;
        for _ in 0..25 {
            let mut limit = |max: &[u32]| (roll(2) == 0).then(|| max[roll(max.len())]);
            let mut limits = LimitSettings {
                per_second: limit(&[0, 1, 10, 11, 100]),
                per_minute: limit(&[1, 20, 30, 600, 601]),
                per_hour: limit(&[5, 1_800, 36_000, 36_001]),
                per_day: limit(&[20, 21, 864_000]),
                burst: limit(&[1, 20, 21]),
                max_in_flight: limit(&[1, 50, 51]),
                ..LimitSettings::EXACT
            };
            limits.shape = [
                None,
                Some(Shape::SlidingWindow),
                Some(Shape::TokenBucket),
                Some(Shape::LeakyBucket),
            ][roll(4)];
            if limits.shape == Some(Shape::LeakyBucket) {
                limits.burst = limits.burst.map(|_| 1);
            }
            limits.unlimited = limits.inherits() && roll(2) == 0;
            limits.validate().unwrap();
            let stored = create(world, tenant, limits).await;
            let checked = ceiling.check(&limits);
            assert_eq!(
                stored.is_ok(),
                checked.is_ok(),
                "{ceiling:?} {limits:?}: {stored:?}, {checked:?}"
            );
            match checked {
                Ok(()) => taken += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        taken > 50 && refused > 50,
        "{taken} taken, {refused} refused"
    );
}

/// It is in force at once, and may be set again; not by another destination, and no more.
pub async fn what_was_granted_may_be_set(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    bounded(world, CEILING).await;
    let id = create(world, tenant, per_second(10)).await.unwrap();
    let another = create(world, tenant, per_second(10)).await.unwrap();
    let found = async || world.catalog.destination(tenant, id).await.unwrap();
    let grant = async |settings| world.requests.grant_limits(tenant, id, &settings).await;
    grant(per_second(100)).await.unwrap();
    assert_eq!(found().await.limits, per_second(100));
    // Less takes nothing back.
    grant(per_second(50)).await.unwrap();
    let raised = CEILING.raised_to(Ceiling::of_own(&per_second(100)));
    assert_eq!(
        (found().await.limits, found().await.ceiling),
        (per_second(50), raised)
    );
    assert_eq!(
        set(world, tenant, id, per_second(100)).await.unwrap(),
        per_second(100)
    );
    refuses(set(world, tenant, id, per_second(101)).await, "limits");
    refuses(set(world, tenant, another, per_second(11)).await, "limits");
    let unlimited = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };
    grant(unlimited).await.unwrap();
    assert_eq!(found().await.limits, unlimited);
    let theirs = world.tenant("free").await.id;
    not_found(world.requests.grant_limits(theirs, id, &unlimited).await);
}

/// And what it was granted or has beyond that; but a ceiling stands as it is.
pub async fn what_a_tenant_sets_itself_is_what_its_tier_gives_where_that_has_no_ceiling(
    world: &TenantWorld,
) {
    let tenant = world.tenant("free").await.id;
    let tiers = world.tenants.tiers().await.unwrap();
    let free = tiers.into_iter().find(|tier| tier.name == "free").unwrap();
    let gives = Ceiling::of(&free.limits);
    let id = create(world, tenant, per_second(1)).await.unwrap();
    let own = async || {
        let found = world.catalog.destination(tenant, id).await.unwrap();
        found.own_ceiling
    };
    assert_eq!((free.ceiling, own().await), (Ceiling::default(), gives));
    set(world, tenant, id, per_second(100)).await.unwrap();
    let has = gives.raised_to(Ceiling::of_own(&per_second(100)));
    assert_eq!(own().await, has);
    let found = world.catalog.destination(tenant, id).await.unwrap();
    assert_eq!(found.lasting_ceiling, gives, "what it has is not granted");
    set(world, tenant, id, per_second(1)).await.unwrap();
    assert_eq!(own().await, gives);
    let more = per_second(50);
    let granted = world.requests.grant_limits(tenant, id, &more).await;
    granted.unwrap();
    set(world, tenant, id, per_second(1)).await.unwrap();
    let granted = gives.raised_to(Ceiling::of_own(&more));
    assert_eq!(own().await, granted);
    let slow = Ceiling {
        max_in_flight: Some(5),
        ..Ceiling::default()
    };
    bounded(world, slow).await;
    assert_eq!(own().await, slow);
}

/// Together with its decision, and only where nothing has changed meanwhile.
pub async fn what_is_approved_is_in_force(world: &TenantWorld) {
    let tenant = world.tenant("free").await.id;
    bounded(world, CEILING).await;
    let id = create(world, tenant, per_second(10)).await.unwrap();
    let port = &world.requests;
    let ask = async |before, wanted| {
        let new = NewLimitRequest {
            id: world.id(),
            destination: id,
            limits: Some(OtherLimits {
                before: per_second(before),
                settings: per_second(wanted),
            }),
            batches: LargerBatches::default(),
            note: String::new(),
        };
        port.request_limits(tenant, &new).await.unwrap();
        new.id
    };
    let limits = async || world.catalog.destination(tenant, id).await.unwrap().limits;
    let decide = async |id, decision| port.decide_limit_request(id, decision, "").await;
    let (approved, declined) = (LimitRequestState::Approved, LimitRequestState::Declined);
    let request = ask(10, 40).await;
    decide(request, approved).await.unwrap();
    assert_eq!(limits().await, per_second(40));
    let request = ask(40, 50).await;
    decide(request, declined).await.unwrap();
    assert_eq!(limits().await, per_second(40));
    // Its owner has slowed it down since.
    let request = ask(40, 60).await;
    set(world, tenant, id, per_second(5)).await.unwrap();
    let stale = decide(request, approved).await;
    assert!(matches!(stale, Err(CatalogError::Conflict(_))), "{stale:?}");
    assert_eq!(limits().await, per_second(5));
    let state = port.limit_request(request).await.unwrap().state;
    assert_eq!(state, LimitRequestState::Open);
    decide(request, declined).await.unwrap();
}

/// Of the request whoever operates, and of the decision the owner.
pub async fn who_has_to_know_of_a_request_is_told(world: &TenantWorld) {
    let destination = world.destination().create().await;
    let request = NewLimitRequest {
        id: world.id(),
        destination,
        limits: Some(OtherLimits {
            before: LimitSettings::EXACT,
            settings: per_second(20),
        }),
        batches: LargerBatches::default(),
        note: "a \"sale\"".to_owned(),
    };
    let port = &world.requests;
    port.request_limits(DEFAULT_TENANT, &request).await.unwrap();
    let again = NewLimitRequest {
        id: world.id(),
        ..request.clone()
    };
    port.request_limits(DEFAULT_TENANT, &again).await.unwrap();
    let declined = LimitRequestState::Declined;
    port.decide_limit_request(request.id, declined, "not now")
        .await
        .unwrap();
    let told = world
        .operations
        .recent_operational_events(None, None, 10)
        .await;
    let told = told.unwrap();
    let [decided, requested] = told.as_slice() else {
        panic!("expected two, the newest first: {told:?}")
    };
    assert_eq!(requested.event_type, "limits_requested");
    let says = |text: &str, details: &str| assert!(details.contains(text), "{details}");
    says(r#""limits":{"per_second":20}"#, &requested.details);
    says(r#""note":"a \"sale\"""#, &requested.details);
    assert_eq!(decided.event_type, "limits_decided");
    says(r#""state":"declined""#, &decided.details);
    says(r#""reason":"not now""#, &decided.details);
    says(&request.id.to_string(), &decided.details);
    for news in &told {
        assert_eq!(
            (news.destination, news.tenant),
            (Some(destination), DEFAULT_TENANT)
        );
    }
}

/// The newer one has the place of the older, with all that it says.
pub async fn an_open_request_is_replaced_and_decided_once(world: &TenantWorld) {
    let destination = world.destination().create().await;
    let has = world.catalog.destination(DEFAULT_TENANT, destination).await;
    let before = has.unwrap().limits;
    let asked = |per_second: u32, note: &str| NewLimitRequest {
        id: world.id(),
        destination,
        limits: Some(OtherLimits {
            before,
            settings: LimitSettings {
                per_second: Some(per_second),
                ..LimitSettings::EXACT
            },
        }),
        batches: LargerBatches::default(),
        note: note.to_owned(),
    };
    let (first, second) = (asked(20, "more"), asked(30, "much more"));
    let port = &world.requests;
    // Said once more, it is the one that was open, and no news.
    let again = NewLimitRequest {
        id: world.id(),
        ..second.clone()
    };
    for (request, open) in [
        (&first, first.id),
        (&second, second.id),
        (&again, second.id),
    ] {
        let made = port.request_limits(DEFAULT_TENANT, request).await;
        assert_eq!(made.unwrap(), open);
    }
    let listed = port.limit_requests(None, None, 10).await.unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((listed[0].id, &listed[0].note), (second.id, &second.note));
    let wanted = Wanted::Limits {
        destination,
        limits: second.limits,
        batches: second.batches,
    };
    assert_eq!(listed[0].wanted, wanted);
    assert_eq!(listed[0].state, LimitRequestState::Open);
    let approved = LimitRequestState::Approved;
    let decide = async |id| port.decide_limit_request(id, approved, "of course").await;
    decide(second.id).await.unwrap();
    for gone in [second.id, first.id] {
        let again = decide(gone).await;
        assert!(matches!(again, Err(CatalogError::Conflict(_))), "{again:?}");
    }
    let decided = port.limit_request(second.id).await.unwrap();
    assert_eq!(
        (decided.state, decided.reason.as_str()),
        (approved, "of course")
    );
    assert!(decided.decided_at.is_some());
    // An open one comes before those that are decided.
    world.pass(Duration::from_millis(2)).await;
    let third = asked(40, "");
    port.request_limits(DEFAULT_TENANT, &third).await.unwrap();
    let listed = port
        .limit_requests(Some(DEFAULT_TENANT), None, 10)
        .await
        .unwrap();
    let states: Vec<_> = listed.iter().map(|one| (one.id, one.state)).collect();
    let open = LimitRequestState::Open;
    assert_eq!(states, [(third.id, open), (second.id, approved)]);
}

/// And are seen by their tenant and by whoever sees all.
pub async fn requests_are_for_ones_own_destinations(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let destination = world
        .destination_of(ours, &world.destination().build())
        .await;
    let request = NewLimitRequest {
        id: world.id(),
        destination,
        limits: Some(OtherLimits {
            before: LimitSettings::EXACT,
            settings: LimitSettings::EXACT,
        }),
        batches: LargerBatches::default(),
        note: String::new(),
    };
    let port = &world.requests;
    not_found(port.request_limits(theirs, &request).await);
    port.request_limits(ours, &request).await.unwrap();
    let seen = async |tenant| port.limit_requests(tenant, None, 10).await.unwrap().len();
    assert_eq!(seen(None).await, 1);
    assert_eq!((seen(Some(ours)).await, seen(Some(theirs)).await), (1, 0));
}

/// Page after page, the open ones and then those that are decided, each once: of one tenant
/// and of all.
pub async fn requests_are_listed_in_pages(world: &TenantWorld) {
    let (ours, theirs) = (world.tenant("free").await.id, world.tenant("free").await.id);
    let port = &world.requests;
    for (number, tenant) in [ours, theirs, ours, ours, theirs, ours, ours]
        .into_iter()
        .enumerate()
    {
        // Some are made in the same instant, and some are not.
        if number % 2 == 0 {
            world.pass(Duration::from_millis(2)).await;
        }
        let new = world.destination().build();
        let request = NewLimitRequest {
            id: world.id(),
            destination: world.destination_of(tenant, &new).await,
            limits: Some(OtherLimits {
                before: LimitSettings::EXACT,
                settings: per_second(20),
            }),
            batches: LargerBatches::default(),
            note: String::new(),
        };
        port.request_limits(tenant, &request).await.unwrap();
    }
    let open = port.limit_requests(Some(ours), None, 10).await.unwrap();
    for one in open.iter().step_by(2) {
        let declined = LimitRequestState::Declined;
        port.decide_limit_request(one.id, declined, "")
            .await
            .unwrap();
    }
    for (tenant, open, count) in [(Some(ours), 2, 5), (Some(theirs), 2, 2), (None, 4, 7)] {
        let all = port.limit_requests(tenant, None, 10).await.unwrap();
        let is_open = |one: &&LimitRequest| one.state == LimitRequestState::Open;
        let first = all.iter().take_while(is_open).count();
        assert_eq!((first, all.len()), (open, count), "{all:?}");
        for limit in 1..=4 {
            let (mut seen, mut before) = (Vec::new(), None);
            loop {
                let page = port.limit_requests(tenant, before, limit).await.unwrap();
                let Some(last) = page.last() else { break };
                before = Some(last.position());
                seen.extend(page);
            }
            assert_eq!(seen, all, "{limit} at a time");
        }
    }
}
