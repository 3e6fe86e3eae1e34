//! A notifier that stops between its steps, at each of them: nothing is lost,
//! and nothing is there twice.

use domain::operations::{OperationalEvent, OperationalType, event_id};

use super::{OperationsWorld, RULES, book, end, raise, relay, set, stranger, told, watch};
use engine::ports::{CatalogError, DEFAULT_TENANT, NextTry};

/// The newest first.
async fn recent(world: &OperationsWorld) -> Vec<OperationalEvent> {
    let events = book(world).recent_operational_events(None, None, 10);
    events.await.unwrap()
}

/// What it has written before is gone with it, and the next one does it all.
pub async fn a_relay_that_stops_between_its_steps_has_done_nothing(world: &OperationsWorld) {
    let told = told(world).await;
    for number in 0..2 {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    let news = recent(world).await;
    for (what, table) in [
        ("insert", "events"),
        ("insert", "deliveries"),
        ("update", "operational_events"),
    ] {
        world.refuse(what, table).await;
        let stopped = world.operations.relay_operational_events(100).await;
        assert!(stopped.is_err(), "{what} {table}: {stopped:?}");
        world.allow(table).await;
        assert_eq!(world.backlog(told).await, 0, "{what} {table}");
        for one in &news {
            let event = world.catalog.event(DEFAULT_TENANT, event_id(one, told));
            let event = event.await;
            assert!(
                matches!(event, Err(CatalogError::NotFound(_))),
                "{what} {table}: {event:?}"
            );
        }
    }
    let relayed = relay(world).await;
    assert_eq!((relayed.relayed, relayed.accepted), (2, 2));
    assert_eq!(relay(world).await.relayed, 0);
    assert_eq!(world.backlog(told).await, 2);
}

/// What it has found is found again, dead letters are still to be counted, and
/// the turn is not used up.
pub async fn a_watch_that_stops_between_its_steps_has_told_nothing(world: &OperationsWorld) {
    let high = world.destination().unlimited().create().await;
    set(world, high, 1, 0).await;
    let dying = world.destination().unlimited().create().await;
    world.accept(dying, 3).await;
    end(world, dying, 400, NextTry::DeadLetter).await;
    world.accept(high, 1).await;
    for (what, table) in [
        ("delete", "dead_letter_tallies"),
        ("insert", "watches"),
        ("insert", "operational_events"),
        ("update", "watch_turn"),
    ] {
        world.refuse(what, table).await;
        let stopped = world.operations.watch(&RULES).await;
        assert!(stopped.is_err(), "{what} {table}: {stopped:?}");
        world.allow(table).await;
        assert_eq!(recent(world).await, [], "{what} {table}");
        let alerts = book(world).alerts(DEFAULT_TENANT, high).await.unwrap();
        assert_eq!(alerts.watch.backlog_high_since, None, "{what} {table}");
    }
    let watched = watch(world, &RULES).await;
    let mut news: Vec<_> = (watched.news.iter())
        .map(|told| {
            let counted = told.news.details.contains(r#""count":3"#);
            (told.destination, told.news.event_type, counted)
        })
        .collect();
    news.sort_unstable_by_key(|(destination, ..)| *destination != Some(high));
    assert_eq!(
        news,
        [
            (Some(high), OperationalType::BacklogHigh, false),
            (Some(dying), OperationalType::DeadLetters, true),
        ]
    );
    assert_eq!(watch(world, &RULES).await.news, []);
    assert_eq!(recent(world).await.len(), 2);
}
