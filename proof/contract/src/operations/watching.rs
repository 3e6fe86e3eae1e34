//! What the watch finds, and that it tells of it once.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::health::{HoldReason, Signal};
use domain::ids::DestinationId;
use domain::operations::OperationalType;
use domain::watch::Shortfall;

use super::{OperationsWorld, RULES, book, end, news, set, watch};
use engine::ports::{DEFAULT_TENANT, NextTry, Outcome, WatchRules, Watched};

/// Written down in the same step, and remembered from look to look.
pub async fn a_high_backlog_is_told_of_once_and_ends_at_half(world: &OperationsWorld) {
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
pub async fn who_keeps_up_is_not_looked_at(world: &OperationsWorld) {
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
pub async fn one_that_gets_less_than_its_limit_is_told_of_with_the_reason(world: &OperationsWorld) {
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

/// It is looked at because of its dead letters, and what is due has only come.
pub async fn what_has_not_waited_is_not_short(world: &OperationsWorld) {
    let destination = world.destination().per_minute(10).create().await;
    set(world, destination, 0, 60).await;
    world.accept(destination, 3).await;
    end(world, destination, 400, NextTry::DeadLetter).await;
    assert_eq!(news(world).await, [OperationalType::DeadLetters]);
    world.accept(destination, 5).await;
    let patient = WatchRules {
        patience: Duration::from_secs(10),
        ..RULES
    };
    assert_eq!(watch(world, &patient).await.looked, 1);
    let view = book(world).alerts(DEFAULT_TENANT, destination).await;
    assert_eq!(view.unwrap().watch.short, None);
    assert_eq!(news(world).await, []);
    let view = book(world).alerts(DEFAULT_TENANT, destination).await;
    assert!(view.unwrap().watch.short.is_some(), "but for that");
}

/// A look may fall between two batches, when nothing is out or in flight.
pub async fn one_that_is_unlimited_and_drains_is_not_short(world: &OperationsWorld) {
    let destination = world.destination().unlimited().create().await;
    set(world, destination, 0, 60).await;
    world.accept(destination, 60).await;
    assert_eq!(news(world).await, []);
    let stands = book(world).alerts(DEFAULT_TENANT, destination).await;
    assert!(stands.unwrap().watch.short.is_some());
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert!(permits.len() < 60, "some still wait");
    world.start(worker, &permits).await;
    let outcomes: Vec<_> = (permits.iter())
        .map(|permit| world.outcome(permit, OutcomeKind::Succeeded, NextTry::None))
        .collect();
    let recorded = world.store.record_outcomes(worker, &outcomes).await;
    assert_eq!(recorded.unwrap().skipped, []);
    assert_eq!(news(world).await, []);
    let drains = book(world).alerts(DEFAULT_TENANT, destination).await;
    assert_eq!(drains.unwrap().watch.short, None);
}

/// As if the receiver had asked for a long hold, just now.
async fn hold(world: &OperationsWorld, destination: DestinationId) {
    let worker = world.worker().await;
    let other = world.destination().unlimited().create().await;
    world.accept(other, 1).await;
    let permits = world.admit(other).await;
    world.start(worker, &permits).await;
    let outcome = Outcome {
        signal: Signal {
            wait: Some(Duration::from_secs(600)),
            ..Signal::default()
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

/// Where its destinations together may not have more under way.
pub async fn a_tenant_that_is_full_is_the_reason(world: &OperationsWorld) {
    world
        .sql(&format!(
            "update tenants set max_in_flight = 1 where id = '{DEFAULT_TENANT}'"
        ))
        .await;
    let busy = world.destination().unlimited().create().await;
    world.accept(busy, 1).await;
    let worker = world.worker().await;
    let permits = world.admit(busy).await;
    world.start(worker, &permits).await;
    let destination = world.destination().per_minute(10).create().await;
    set(world, destination, 0, 1).await;
    world.accept(destination, 5).await;
    assert_eq!(news(world).await, []);
    let view = book(world).alerts(DEFAULT_TENANT, destination).await;
    let short = view.unwrap().watch.short.unwrap();
    assert_eq!(short.reason, Shortfall::Tenant);
}

/// Not one by one: the first at once, and what comes after it in an hour.
pub async fn dead_letters_are_told_of_in_numbers(world: &OperationsWorld) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 3).await;
    end(world, destination, 400, NextTry::DeadLetter).await;
    let watched = watch(world, &RULES).await;
    assert_eq!(watched.news.len(), 1);
    assert_eq!(watched.news[0].destination, Some(destination));
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
pub async fn a_round_goes_on_where_it_stopped(world: &OperationsWorld) {
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
        seen.extend((watched.news.into_iter()).filter_map(|told| told.destination));
    }
    assert_eq!(seen, all);
    assert_eq!(watch(world, &rules).await.looked, 2, "they are remembered");
}

/// By what it finds, not by what it might have found.
pub async fn a_step_counts_so_far_and_no_further(world: &OperationsWorld) {
    for _ in 0..5 {
        let destination = world.destination().unlimited().create().await;
        set(world, destination, 100, 0).await;
        world.accept(destination, 2).await;
    }
    let rules = WatchRules {
        counted: 5,
        ..RULES
    };
    for (looked, more) in [(3, true), (2, false)] {
        let watched = watch(world, &rules).await;
        assert_eq!((watched.looked, watched.more), (looked, more));
    }
}

/// The store gives the turn to one, when it is due.
pub async fn a_step_that_is_not_due_does_nothing(world: &OperationsWorld) {
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
