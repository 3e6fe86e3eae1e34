//! What every store must do with what operators must know
//! ([`Operations`], [`OperationsBook`]).
//!
//! [`operations_contract!`](crate::operations_contract) turns the suite into
//! tests.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::health::{DisableReason, HoldReason, Signal};
use domain::ids::{DestinationId, TenantId};
use domain::operations::{OperationalScope, OperationalType, event_id, payload};
use domain::watch::Shortfall;
use uuid::Uuid;

use super::store::World;
use crate::ports::{
    AlertsChange, CatalogError, DEFAULT_TENANT, NextTry, Operations, OperationsBook, Outcome,
    Registration, RelayedOperations, WatchRules, Watched,
};

/// Declares one `#[tokio::test]` for each test of the contract.
///
/// `$world` is an async function without arguments that returns something that
/// dereferences to a fresh [`World`] and lives as long as the test.
#[macro_export]
macro_rules! operations_contract {
    ($world:path) => {
        $crate::operations_contract!(@tests $world,
            news_become_one_event_for_each_that_is_told
            of_many_relays_each_takes_its_own
            what_is_told_of_is_the_tenants_or_everybodys
            a_disabled_destination_is_not_told
            news_of_one_that_is_told_do_not_come_back
            a_high_backlog_is_told_of_once_and_ends_at_half
            who_keeps_up_is_not_looked_at
            one_that_gets_less_than_its_limit_is_told_of_with_the_reason
            dead_letters_are_told_of_in_numbers
            a_round_goes_on_where_it_stopped
            a_step_that_is_not_due_does_nothing
            old_news_are_deleted_in_steps
            recent_news_are_paged
            registrations_are_the_tenants
            alerts_are_set_by_name
        );
    };
    (@tests $world:path, $($test:ident)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                let world = $world().await;
                $crate::contract::operations::$test(&world).await;
            }
        )+
    };
}

/// Every look is due, and everybody is looked at.
const RULES: WatchRules = WatchRules {
    every: Duration::ZERO,
    pace: Duration::ZERO,
    patience: Duration::ZERO,
    dead_letters_every: Duration::from_secs(3_600),
    page: 1_000,
    looks: 100,
    counted: 100_000,
};

fn operations(world: &World) -> &dyn Operations {
    world.operations()
}

fn book(world: &World) -> &dyn OperationsBook {
    world.operations_book()
}

async fn relay(world: &World) -> RelayedOperations {
    let relayed = operations(world).relay_operational_events(100).await;
    relayed.unwrap()
}

async fn watch(world: &World, rules: &WatchRules) -> Watched {
    operations(world).watch(rules).await.unwrap()
}

/// The types of the news of one step.
async fn news(world: &World) -> Vec<OperationalType> {
    let watched = watch(world, &RULES).await;
    assert!(watched.stepped, "the turn was ours");
    let news = watched.news.iter();
    news.map(|told| told.news.event_type).collect()
}

async fn set(world: &World, destination: DestinationId, backlog: u32, seconds: u32) {
    let change = AlertsChange {
        backlog: Some(Some(backlog)),
        under_delivery_seconds: Some(Some(seconds)),
    };
    let changed = book(world).change_alerts(DEFAULT_TENANT, destination, &change);
    changed.await.unwrap();
}

/// A destination that is told of everything in its tenant.
async fn told(world: &World) -> DestinationId {
    let destination = world.destination().unlimited().create().await;
    register(world, destination, OperationalScope::Tenant).await;
    destination
}

async fn register(world: &World, destination: DestinationId, scope: OperationalScope) {
    let registration = Registration {
        scope,
        event_types: Vec::new(),
    };
    let registered = book(world).register_operational(DEFAULT_TENANT, destination, &registration);
    let registered = registered.await.unwrap();
    assert_eq!(
        (registered.destination, registered.scope),
        (destination, scope)
    );
}

/// News about a destination of a tenant, as whoever raises them writes them.
async fn raise(world: &World, about: DestinationId, tenant: TenantId) {
    world
        .sql(&format!(
            "insert into operational_events
                (event_type, destination_id, tenant_id, details, created_at)
            select 'breaker_opened', '{about}', '{tenant}', '{{\"failures\":20}}', created_at
            from tenants where id = '{DEFAULT_TENANT}'"
        ))
        .await;
}

fn stranger(number: u128) -> (DestinationId, TenantId) {
    let id = |part: u128| Uuid::from_u128((0xdead << 64) + 2 * number + part);
    (DestinationId(id(0)), TenantId(id(1)))
}

/// Starts what is admitted of a destination, and ends it so.
async fn end(world: &World, destination: DestinationId, status: u16, next: NextTry) {
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert!(!permits.is_empty());
    world.start(worker, &permits).await;
    let outcomes: Vec<_> = (permits.iter())
        .map(|permit| Outcome {
            status: Some(status),
            ..world.outcome(permit, OutcomeKind::Failed, next)
        })
        .collect();
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    recorded.unwrap();
}

/// By the way of ingest: an ordinary event, with the payload of the news. And
/// never again, whoever relays.
pub async fn news_become_one_event_for_each_that_is_told(world: &World) {
    let (first, second) = (told(world).await, told(world).await);
    let gone = world.destination().unlimited().create().await;
    world.accept(gone, 1).await;
    end(world, gone, 410, NextTry::DeadLetter).await;
    let relayed = relay(world).await;
    let mut both = vec![first, second];
    both.sort_unstable();
    assert_eq!((relayed.relayed, relayed.accepted), (1, 2));
    assert_eq!(relayed.destinations, both);
    assert_eq!(relay(world).await, RelayedOperations::default());

    let events = book(world).recent_operational_events(Some(DEFAULT_TENANT), None, 10);
    let raised = events.await.unwrap().remove(0);
    assert_eq!(raised.event_type, "destination_disabled");
    assert!(raised.details.contains(DisableReason::Gone.as_str()));
    for destination in both {
        let attempts = world.attempts(destination).await;
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].event, event_id(&raised, destination));
        let found = world.catalog.event(DEFAULT_TENANT, attempts[0].event).await;
        let (event, _) = found.unwrap();
        assert_eq!(event.event_type.as_deref(), Some("destination_disabled"));
        assert_eq!(event.payload_bytes as usize, payload(&raised).len());
        let worker = world.worker().await;
        let permits = world.admit(destination).await;
        let started = world.start(worker, &permits).await;
        assert_eq!(started[0].payload, payload(&raised).as_bytes());
    }
}

/// Many at once: each piece of news is one event.
pub async fn of_many_relays_each_takes_its_own(world: &World) {
    let destination = told(world).await;
    for number in 0..40 {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    let one = || async {
        let mut sum = 0;
        loop {
            let relayed = operations(world).relay_operational_events(3).await.unwrap();
            sum += relayed.relayed;
            if relayed.relayed == 0 {
                return sum;
            }
        }
    };
    let sums = tokio::join!(one(), one(), one(), one());
    assert_eq!(
        sums.0 + sums.1 + sums.2 + sums.3 + relay(world).await.relayed,
        40
    );
    assert_eq!(world.backlog(destination).await, 40);
}

/// A tenant's operational destinations know nothing of other tenants; those
/// of the installation know of all.
pub async fn what_is_told_of_is_the_tenants_or_everybodys(world: &World) {
    let own = told(world).await;
    let all = world.destination().unlimited().create().await;
    register(world, all, OperationalScope::Installation).await;
    let (destination, tenant) = stranger(1);
    raise(world, destination, tenant).await;
    assert_eq!(relay(world).await.destinations, [all]);
    raise(world, destination, DEFAULT_TENANT).await;
    assert_eq!(relay(world).await.accepted, 2);
    assert_eq!((world.backlog(own).await, world.backlog(all).await), (1, 2));
}

/// It takes nothing; and the news are not kept back for it.
pub async fn a_disabled_destination_is_not_told(world: &World) {
    let destination = told(world).await;
    world
        .sql(&format!(
            "update destinations set state = 'disabled' where id = '{destination}'"
        ))
        .await;
    raise(world, stranger(1).0, DEFAULT_TENANT).await;
    let relayed = relay(world).await;
    assert_eq!((relayed.relayed, relayed.accepted), (1, 0));
    let deleted = told(world).await;
    let deletion = world.catalog.delete_destination(DEFAULT_TENANT, deleted);
    deletion.await.unwrap();
    raise(world, stranger(1).0, DEFAULT_TENANT).await;
    assert_eq!(relay(world).await.accepted, 0);
}

/// News about an operational destination go to those before it only.
pub async fn news_of_one_that_is_told_do_not_come_back(world: &World) {
    let (first, second) = (told(world).await, told(world).await);
    raise(world, second, DEFAULT_TENANT).await;
    assert_eq!(relay(world).await.destinations, [first]);
    raise(world, first, DEFAULT_TENANT).await;
    let relayed = relay(world).await;
    assert_eq!((relayed.relayed, relayed.accepted), (1, 0));
}

/// Written down in the same step, and remembered from look to look.
pub async fn a_high_backlog_is_told_of_once_and_ends_at_half(world: &World) {
    let destination = world.destination().unlimited().create().await;
    set(world, destination, 10, 0).await;
    world.accept(destination, 9).await;
    assert_eq!(news(world).await, []);
    world.accept(destination, 1).await;
    assert_eq!(news(world).await, [OperationalType::BacklogHigh]);
    assert_eq!(news(world).await, []);
    let alerts = book(world)
        .alerts(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert!(alerts.watch.backlog_high_since.is_some());
    let events = book(world).recent_operational_events(Some(DEFAULT_TENANT), None, 10);
    let events = events.await.unwrap();
    assert_eq!(events.len(), 1);
    assert!(
        events[0].details.contains(r#""threshold":10"#),
        "{events:?}"
    );

    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 10);
    world.store.release_permits(&permits[..6]).await.unwrap();
    assert_eq!(news(world).await, [], "six wait: more than half");
    let worker = world.worker().await;
    world.start(worker, &permits[6..]).await;
    let again = world.admit(destination).await;
    world.start(worker, &again).await;
    assert_eq!(news(world).await, [OperationalType::BacklogNormal]);
    let alerts = book(world)
        .alerts(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert_eq!(alerts.watch.backlog_high_since, None);
}

/// What has not waited for long costs no look.
pub async fn who_keeps_up_is_not_looked_at(world: &World) {
    let destination = world.destination().unlimited().create().await;
    set(world, destination, 1, 0).await;
    world.accept(destination, 5).await;
    let patient = WatchRules {
        patience: Duration::from_secs(3_600),
        ..RULES
    };
    let watched = watch(world, &patient).await;
    assert_eq!((watched.stepped, watched.looked), (true, 0));
    assert_eq!(watch(world, &RULES).await.looked, 1);
}

/// From the second look on, when it has lasted for as long as was set.
pub async fn one_that_gets_less_than_its_limit_is_told_of_with_the_reason(world: &World) {
    let destination = world.destination().per_minute(10).create().await;
    set(world, destination, 0, 1).await;
    world.accept(destination, 30).await;
    // Nobody lives who could send it.
    assert_eq!(news(world).await, []);
    let view = book(world)
        .alerts(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    let short = view.watch.short.unwrap();
    assert_eq!((short.reason, short.told), (Shortfall::Places, false));
    world.pass(Duration::from_millis(1_100)).await;
    assert_eq!(news(world).await, [OperationalType::UnderDelivery]);
    assert_eq!(news(world).await, []);
    let events = book(world).recent_operational_events(Some(DEFAULT_TENANT), None, 1);
    let details = events.await.unwrap().remove(0).details;
    assert!(details.contains(r#""reason":"places""#), "{details}");

    // The receiver wants to be left alone: that is why, now.
    hold(world, destination).await;
    assert_eq!(news(world).await, []);
    let view = book(world)
        .alerts(DEFAULT_TENANT, destination)
        .await
        .unwrap();
    assert_eq!(view.watch.short.unwrap().reason, Shortfall::Asked);
    world
        .sql(&format!(
            "delete from health where destination_id = '{destination}'"
        ))
        .await;

    // Its whole limit starts within this minute.
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    let started = world.start(worker, &permits).await;
    assert!(started.len() >= 9, "{}", started.len());
    assert_eq!(news(world).await, [OperationalType::UnderDeliveryEnded]);
}

/// As if the receiver had asked for a long hold, just now.
async fn hold(world: &World, destination: DestinationId) {
    let worker = world.worker().await;
    let other = world.destination().unlimited().create().await;
    world.accept(other, 1).await;
    let permits = world.admit(other).await;
    world.start(worker, &permits).await;
    let outcome = Outcome {
        signal: Signal {
            wait: Some(Duration::from_secs(600)),
            dice: 0,
        },
        ..world.outcome(&permits[0], OutcomeKind::Succeeded, NextTry::None)
    };
    world
        .store
        .record_outcomes(worker, &[outcome])
        .await
        .unwrap();
    let view = world
        .health()
        .health(DEFAULT_TENANT, &[other])
        .await
        .unwrap()[0];
    assert_eq!(view.health.hold.unwrap().reason, HoldReason::Asked);
    world
        .sql(&format!(
            "insert into health (destination_id, held_since, held_until, held_for)
            select '{destination}', held_since, held_until, held_for
            from health where destination_id = '{other}'"
        ))
        .await;
}

/// Not one by one: the first at once, and what comes after it in an hour.
pub async fn dead_letters_are_told_of_in_numbers(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 3).await;
    end(world, destination, 400, NextTry::DeadLetter).await;
    let watched = watch(world, &RULES).await;
    assert_eq!(watched.news.len(), 1);
    assert_eq!(watched.news[0].destination, destination);
    assert_eq!(
        watched.news[0].news.event_type,
        OperationalType::DeadLetters
    );
    assert_eq!(watched.news[0].news.details, r#"{"count":3,"since":null}"#);
    world.accept(destination, 5).await;
    end(world, destination, 400, NextTry::DeadLetter).await;
    assert_eq!(news(world).await, []);
    let soon = WatchRules {
        dead_letters_every: Duration::ZERO,
        ..RULES
    };
    let watched = watch(world, &soon).await;
    assert_eq!(watched.news.len(), 1, "{watched:?}");
    assert!(
        watched.news[0]
            .news
            .details
            .starts_with(r#"{"count":5,"since":""#)
    );
    assert_eq!(watch(world, &soon).await.news, []);
}

/// A step that does not manage them all leaves the rest to the next, and a
/// round that has come to its end begins anew.
pub async fn a_round_goes_on_where_it_stopped(world: &World) {
    let mut all = Vec::new();
    for _ in 0..5 {
        let destination = world.destination().unlimited().create().await;
        set(world, destination, 1, 0).await;
        world.accept(destination, 1).await;
        all.push(destination);
    }
    let rules = WatchRules { looks: 2, ..RULES };
    let mut seen = Vec::new();
    for more in [true, true, false] {
        let watched = watch(world, &rules).await;
        assert_eq!(watched.more, more);
        seen.extend(watched.news.into_iter().map(|told| told.destination));
    }
    assert_eq!(seen, all);
    assert_eq!(watch(world, &rules).await.looked, 2, "they are remembered");
}

/// The store gives the turn to one, when it is due.
pub async fn a_step_that_is_not_due_does_nothing(world: &World) {
    let destination = world.destination().unlimited().create().await;
    set(world, destination, 1, 0).await;
    let rare = WatchRules {
        every: Duration::from_secs(3_600),
        ..RULES
    };
    assert!(watch(world, &rare).await.stepped);
    world.accept(destination, 1).await;
    assert_eq!(watch(world, &RULES).await, Watched::default());
}

/// The oldest first, and none that was not relayed.
pub async fn old_news_are_deleted_in_steps(world: &World) {
    for number in 0..5 {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    let trim = |limit| operations(world).trim_operational_events(Duration::ZERO, limit);
    assert_eq!(trim(100).await.unwrap(), 0, "nobody has relayed them");
    assert_eq!(relay(world).await.relayed, 5);
    let hour = Duration::from_secs(3_600);
    let young = operations(world).trim_operational_events(hour, 100).await;
    assert_eq!(young.unwrap(), 0);
    assert_eq!(trim(3).await.unwrap(), 3);
    let left = book(world).recent_operational_events(None, None, 10);
    let left: Vec<_> = left
        .await
        .unwrap()
        .iter()
        .map(|event| event.destination)
        .collect();
    assert_eq!(left, [stranger(4).0, stranger(3).0]);
    assert_eq!(trim(3).await.unwrap(), 2);
}

/// The newest first; of one tenant or of all.
pub async fn recent_news_are_paged(world: &World) {
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
    let about: Vec<_> = first.iter().map(|event| event.destination).collect();
    assert_eq!(about, [stranger(3).0, stranger(1).0]);
    let second = page(Some(DEFAULT_TENANT), Some(first[1].id), 2).await;
    assert_eq!(second.len(), 1);
    assert_eq!(second[0].destination, stranger(0).0);
    assert_eq!(page(Some(other), None, 10).await.len(), 1);
    assert_eq!(page(None, None, 10).await.len(), 4);
}

/// Registering again changes what it is told of, and nothing else.
pub async fn registrations_are_the_tenants(world: &World) {
    let (first, second) = (told(world).await, told(world).await);
    let only = Registration {
        scope: OperationalScope::Installation,
        event_types: vec![OperationalType::DeadLetters, OperationalType::BacklogHigh],
    };
    let again = book(world).register_operational(DEFAULT_TENANT, first, &only);
    assert_eq!(again.await.unwrap().event_types, only.event_types);
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

/// What is not named stays, and nothing set is the default.
pub async fn alerts_are_set_by_name(world: &World) {
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
