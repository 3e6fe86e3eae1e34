//! What the watch finds of a tenant as a whole, and that it tells of it once.

use std::num::NonZeroU64;

use domain::backpressure::{BacklogBounds, Backlogged, CountPace};
use domain::ids::{DestinationId, TenantId};
use domain::operations::OperationalType;

use super::{OperationsWorld, RULES, book, news, watch};
use engine::ports::{
    CatalogError, DEFAULT_TENANT, TenantAlertsChange, TenantAlertsView, WatchRules,
};

async fn another_tenant(world: &OperationsWorld) -> TenantId {
    let id = TenantId(world.id());
    world
        .sql(&format!(
            "insert into tenants (id, name, tier)
            select '{id}', 'other', tier from tenants where id = '{DEFAULT_TENANT}'"
        ))
        .await;
    id
}

async fn view(world: &OperationsWorld, tenant: TenantId) -> TenantAlertsView {
    book(world).tenant_alerts(tenant).await.unwrap()
}

async fn set(world: &OperationsWorld, tenant: TenantId, change: TenantAlertsChange) {
    let changed = book(world).change_tenant_alerts(tenant, &change).await;
    changed.unwrap();
}

/// What came of a tenant's requests in the slot of its creation.
async fn answered(world: &OperationsWorld, tenant: TenantId, succeeded: u32, failed: u32) {
    world.sql("delete from tenant_tallies").await;
    world
        .sql(&format!(
            "insert into tenant_tallies (tenant_id, ends_at, succeeded, failed)
            select id, created_at, {succeeded}, {failed} from tenants where id = '{tenant}'"
        ))
        .await;
}

/// By the tenant's own settings, and of that tenant alone.
pub async fn too_few_successes_are_told_of_once(world: &OperationsWorld) {
    let other = another_tenant(world).await;
    answered(world, other, 0, 19).await;
    assert_eq!(news(world).await, [], "fewer than twenty say nothing");
    answered(world, other, 10, 10).await;
    assert_eq!(news(world).await, [], "half is enough");
    let change = TenantAlertsChange {
        success_percent: Some(Some(60)),
        ..TenantAlertsChange::default()
    };
    set(world, other, change).await;
    let watched = watch(world, &RULES).await;
    let [told] = &watched.news[..] else {
        panic!("{watched:?}")
    };
    assert_eq!(told.news.event_type, OperationalType::SuccessLow);
    assert_eq!((told.destination, told.tenant), (None, other));
    assert_eq!(news(world).await, []);
    assert!(view(world, other).await.watch.success_low_since.is_some());
    let page = book(world).recent_operational_events(Some(other), None, 10);
    let page = page.await.unwrap();
    assert_eq!((page.len(), page[0].destination), (1, None));
    assert!(page[0].details.contains(r#""answered":20,"failed":10"#));

    answered(world, other, 80, 20).await;
    assert_eq!(news(world).await, [OperationalType::SuccessNormal]);
    assert_eq!(view(world, other).await.watch.success_low_since, None);
    // What is over for longer than the time that is set says nothing.
    answered(world, other, 0, 20).await;
    let aged = match world.is_postgres() {
        true => "update tenant_tallies set ends_at = ends_at - interval '2 hours'",
        false => "update tenant_tallies set ends_at = ends_at - 7200000000",
    };
    world.sql(aged).await;
    assert_eq!(news(world).await, []);
    let change = TenantAlertsChange {
        success_seconds: Some(Some(3 * 3_600)),
        ..TenantAlertsChange::default()
    };
    set(world, other, change).await;
    assert_eq!(news(world).await, [OperationalType::SuccessLow]);
}

/// Which frees room again when they are deleted.
pub async fn nearly_as_many_destinations_as_it_may_have(world: &OperationsWorld) {
    world
        .sql("update tiers set tenant_max_destinations = 10")
        .await;
    let mut made: Vec<DestinationId> = Vec::new();
    for _ in 0..8 {
        made.push(world.destination().create().await);
    }
    assert_eq!(news(world).await, []);
    made.push(world.destination().create().await);
    assert_eq!(news(world).await, [OperationalType::DestinationsHigh]);
    assert_eq!(news(world).await, []);
    let since = view(world, DEFAULT_TENANT).await.watch;
    assert!(since.destinations_high_since.is_some());
    for id in &made[..2] {
        let deletion = world.catalog.delete_destination(DEFAULT_TENANT, *id);
        deletion.await.unwrap();
    }
    assert_eq!(news(world).await, [OperationalType::DestinationsNormal]);
    // Nine of the twenty that it is granted are not many.
    let granted = "update tenants set granted_destinations = 20";
    world.sql(granted).await;
    for _ in 0..2 {
        world.destination().create().await;
    }
    assert_eq!(news(world).await, []);
}

/// From what was counted last: near first, and then refused.
pub async fn a_backlog_that_is_nearly_refused_and_one_that_is(world: &OperationsWorld) {
    let bound = |number| NonZeroU64::new(number).unwrap();
    let count = async |of_one: u64| {
        let bounds = BacklogBounds {
            destination: bound(of_one),
            tenant: bound(10),
            all: bound(100),
        };
        let now = CountPace {
            every: std::time::Duration::ZERO,
            one_part_in: 0,
            at_most: std::time::Duration::ZERO,
        };
        world.pass(std::time::Duration::from_millis(2)).await;
        let counted = world.backpressure.standings(&bounds, &[], Some(&now)).await;
        let standings = counted.unwrap().standings;
        let refusing = standings.iter().filter(|one| one.is_refusing());
        refusing.map(|one| one.whose).collect::<Vec<Backlogged>>()
    };
    let destination = world.destination().per_second(1).create().await;
    super::set(world, destination, 0, 0).await;
    // Of 10 events are refused above 8, so 8 are near.
    world.accept(destination, 7).await;
    assert_eq!(count(1_000).await, []);
    assert_eq!(news(world).await, []);
    world.accept(destination, 1).await;
    assert_eq!(count(1_000).await, []);
    assert_eq!(news(world).await, [OperationalType::TenantBacklogHigh]);
    assert_eq!(news(world).await, []);
    world.accept(destination, 1).await;
    assert_eq!(count(1_000).await, [Backlogged::Tenant(DEFAULT_TENANT)]);
    assert_eq!(news(world).await, [OperationalType::IngestRefused]);
    let watch_of_it = view(world, DEFAULT_TENANT).await.watch;
    assert!(watch_of_it.refused_since.is_some());

    let cancelled = format!("delete from deliveries where destination_id = '{destination}'");
    world.sql(&cancelled).await;
    assert_eq!(count(1_000).await, []);
    let ended = [
        OperationalType::TenantBacklogNormal,
        OperationalType::IngestAccepted,
    ];
    assert_eq!(news(world).await, ended);

    // Of one destination: news of that one.
    world.accept(destination, 5).await;
    let refusing = [Backlogged::Destination(DEFAULT_TENANT, destination)];
    assert_eq!(count(5).await, refusing);
    let watched = watch(world, &RULES).await;
    let told: Vec<_> = (watched.news.iter())
        .map(|told| (told.news.event_type, told.destination))
        .collect();
    let expected = [(OperationalType::IngestRefused, Some(destination))];
    assert_eq!(told, expected);
}

/// Like dead letters: at once, and then in numbers.
pub async fn rejected_rows_are_told_of_in_numbers(world: &OperationsWorld) {
    let insert =
        format!("insert into tenant_watches (tenant_id, rejected) values ('{DEFAULT_TENANT}', 3)");
    world.sql(&insert).await;
    assert_eq!(news(world).await, [OperationalType::OutboxRejected]);
    world
        .sql("update tenant_watches set rejected = rejected + 2")
        .await;
    assert_eq!(news(world).await, []);
    assert_eq!(view(world, DEFAULT_TENANT).await.watch.rejected, 2);
    let page = book(world).recent_operational_events(Some(DEFAULT_TENANT), None, 10);
    let page = page.await.unwrap();
    assert_eq!(page[0].details, r#"{"count":3,"since":null}"#);
}

/// A page of tenants in each step, and each of them once in a round.
pub async fn a_round_of_tenants_goes_on_where_it_stopped(world: &OperationsWorld) {
    let rules = WatchRules {
        tenants: 1,
        tenants_every: std::time::Duration::from_secs(3_600),
        ..RULES
    };
    another_tenant(world).await;
    another_tenant(world).await;
    let all_failed = "insert into tenant_tallies (tenant_id, ends_at, succeeded, failed)
        select id, created_at, 0, 20 from tenants";
    world.sql(all_failed).await;
    let mut told = Vec::new();
    for _ in 0..6 {
        let watched = watch(world, &rules).await;
        told.extend(watched.news.into_iter().map(|told| told.tenant));
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 3, "{told:?}");
    world.sql("delete from tenant_tallies").await;
    assert_eq!(
        watch(world, &rules).await.news,
        [],
        "the next is in an hour"
    );
}

/// What is not named stays, nothing set is the default, and nobody sets another's.
pub async fn a_tenants_alerts_are_set_by_name(world: &OperationsWorld) {
    let other = another_tenant(world).await;
    let settings = async |tenant| {
        let settings = view(world, tenant).await.settings;
        let seconds = settings.success_within.as_secs();
        (settings.success_percent, seconds, settings.success_least)
    };
    assert_eq!(settings(other).await, (50, 3_600, 20));
    let change = TenantAlertsChange {
        success_percent: Some(Some(95)),
        success_seconds: Some(Some(600)),
        success_least: Some(Some(7)),
    };
    set(world, other, change).await;
    let change = TenantAlertsChange {
        success_percent: Some(None),
        ..TenantAlertsChange::default()
    };
    set(world, other, change).await;
    assert_eq!(settings(other).await, (50, 600, 7));
    assert_eq!(settings(DEFAULT_TENANT).await, (50, 3_600, 20));
    let nobody = TenantId(world.id());
    let missing = book(world).tenant_alerts(nobody).await;
    assert!(
        matches!(missing, Err(CatalogError::NotFound(_))),
        "{missing:?}"
    );
    let missing = book(world).change_tenant_alerts(nobody, &change).await;
    assert!(
        matches!(missing, Err(CatalogError::NotFound(_))),
        "{missing:?}"
    );
}
