//! Smart delivery: effective limits, and what is seen of them.

use std::time::Duration;

use domain::attempt::OutcomeKind;
use domain::ids::{DestinationId, TenantId, WorkerId};
use domain::permit::Permit;
use domain::smart::{Effective, Reason, SmartDelivery};
use domain::time::Timestamp;

use super::World;
use crate::stalled::stalled;
use engine::ports::{
    CatalogError, DEFAULT_TENANT, DestinationChange, NextTry, Outcome, SmartChange, SmartView,
};

const OFF: SmartView = SmartView {
    delivery: SmartDelivery::Off,
    effective: Effective {
        per_second: None,
        max_in_flight: None,
    },
    reason: Reason::Configured,
};

const BEGUN: SmartView = SmartView {
    delivery: SmartDelivery::On,
    ..OFF
};

async fn view(world: &World, destination: DestinationId) -> SmartView {
    let view = (world.catalog).smart_delivery(DEFAULT_TENANT, destination);
    view.await.unwrap()
}

async fn turn(world: &World, destination: DestinationId, to: SmartDelivery) {
    let set = (world.catalog).set_smart_delivery(DEFAULT_TENANT, destination, to);
    set.await.unwrap();
}

async fn history(world: &World, destination: DestinationId) -> Vec<SmartChange> {
    let history = (world.catalog).smart_history(destination, Timestamp::MAX, 100);
    history.await.unwrap()
}

/// 10 a second, with smart delivery and a backlog of 40.
async fn smart(world: &World) -> DestinationId {
    let destination = world.destination().per_second(10).create().await;
    turn(world, destination, SmartDelivery::On).await;
    world.accept(destination, 40).await;
    destination
}

async fn started(world: &World, destination: DestinationId) -> (WorkerId, Vec<Permit>) {
    let worker = world.worker().await;
    let mut permits = world.admit(destination).await;
    for _ in 0..20 {
        // Starts before may fill the window.
        if permits.is_empty() {
            world.pass(Duration::from_millis(100)).await;
            permits = world.admit(destination).await;
        }
    }
    assert!(!permits.is_empty());
    let slots = permits.iter().map(|permit| permit.not_before);
    world.pass_until(slots.max().unwrap()).await;
    world.start(worker, &permits).await;
    (worker, permits)
}

async fn record(world: &World, worker: WorkerId, permit: &Permit, status: u16) {
    let retry = NextTry::RetryAfter(Duration::from_secs(3_600));
    let outcome = Outcome {
        status: Some(status),
        ..world.outcome(permit, OutcomeKind::Failed, retry)
    };
    let recorded = world.store.record_outcomes(worker, &[outcome]).await;
    assert_eq!(recorded.unwrap().skipped, []);
}

/// A receiver that answers 429 to one of its requests; when its hold ends.
async fn refuse(world: &World, destination: DestinationId) -> Timestamp {
    let (worker, permits) = started(world, destination).await;
    record(world, worker, &permits[0], 429).await;
    let held = world.health().health(DEFAULT_TENANT, &[destination]).await;
    held.unwrap()[0].health.held_until().unwrap()
}

/// It is asked for: nobody else's limit is touched.
pub async fn it_is_off_unless_asked_for(world: &World) {
    let destination = world.destination().per_second(10).create().await;
    world.accept(destination, 5).await;
    assert_eq!(view(world, destination).await, OFF);
    refuse(world, destination).await;
    assert_eq!(view(world, destination).await, OFF);
    assert_eq!(history(world, destination).await, []);
}

/// A refusal cuts at once, and the rest of its burst says nothing new; the next
/// one cuts what the first has left.
pub async fn a_refusal_cuts_and_its_burst_counts_once(world: &World) {
    let destination = smart(world).await;
    assert_eq!(view(world, destination).await, BEGUN);
    let before = world.now().await;
    let (worker, permits) = started(world, destination).await;
    record(world, worker, &permits[0], 429).await;
    let cut = view(world, destination).await;
    let rate = cut.effective.per_second.unwrap();
    assert!((rate - 7.0).abs() < 1e-9, "{rate}");
    assert_eq!(cut.reason, Reason::Refused);
    record(world, worker, &permits[1], 429).await;
    assert_eq!(view(world, destination).await, cut);
    let entries = history(world, destination).await;
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].effective, cut.effective);
    assert_eq!(entries[0].reason, Reason::Refused);
    assert!(entries[0].in_force_from >= before);
    assert_eq!(entries[1].reason, Reason::Configured);

    let held = world.health().health(DEFAULT_TENANT, &[destination]).await;
    let until = held.unwrap()[0].health.held_until().unwrap();
    world.pass_until(until).await;
    refuse(world, destination).await;
    let again = view(world, destination).await.effective.per_second.unwrap();
    assert!(again < rate, "{again}");
    // Up to a time, and up to a number.
    let book = &world.catalog;
    let early = book.smart_history(destination, entries[0].in_force_from, 9);
    assert_eq!(early.await.unwrap(), entries[1..]);
    let last = book.smart_history(destination, Timestamp::MAX, 1);
    assert_eq!(last.await.unwrap()[0].effective.per_second, Some(again));
}

/// Slots are as far apart as the effective limit says; without it, they come at
/// once.
pub async fn admission_plans_at_the_effective_limit(world: &World) {
    let destination = smart(world).await;
    let until = refuse(world, destination).await;
    world.pass_until(until + Duration::from_secs(1)).await;
    let permits = world.admit(destination).await;
    assert!((1..=2).contains(&permits.len()), "{permits:?}");
    // What is out counts.
    let more = world.admit(destination).await;
    let slots: Vec<_> = (permits.iter().chain(&more))
        .map(|permit| permit.not_before)
        .collect();
    let apart = Duration::from_millis(142);
    assert!(slots.is_sorted_by(|a, b| *b >= *a + apart), "{slots:?}");

    turn(world, destination, SmartDelivery::Off).await;
    let rest = world.admit(destination).await.len();
    if world.now().await > slots[0] + Duration::from_millis(900) {
        stalled();
    }
    assert_eq!(rest, 10 - slots.len());
}

/// Off and on again is as configured, and so is another receiver.
pub async fn it_begins_anew(world: &World) {
    let destination = smart(world).await;
    refuse(world, destination).await;
    turn(world, destination, SmartDelivery::Off).await;
    assert_eq!(view(world, destination).await, OFF);
    turn(world, destination, SmartDelivery::On).await;
    turn(world, destination, SmartDelivery::On).await;
    assert_eq!(view(world, destination).await, BEGUN);
    assert_eq!(history(world, destination).await.len(), 4);

    let destination = smart(world).await;
    refuse(world, destination).await;
    assert_ne!(view(world, destination).await, BEGUN);
    let moved = DestinationChange {
        url: Some("https://elsewhere.example/".to_owned()),
        ..DestinationChange::default()
    };
    let change = (world.catalog).change_destination(DEFAULT_TENANT, destination, &moved);
    change.await.unwrap();
    assert_eq!(view(world, destination).await, BEGUN);
    // A name is not.
    let until = refuse(world, destination).await;
    let named = DestinationChange {
        name: Some("shop".to_owned()),
        ..DestinationChange::default()
    };
    let change = (world.catalog).change_destination(DEFAULT_TENANT, destination, &named);
    change.await.unwrap();
    assert_eq!(
        view(world, destination).await.reason,
        Reason::Refused,
        "{until:?}"
    );
}

/// What started at the old URL is answered after the change.
pub async fn late_answers_of_another_receiver_say_nothing(world: &World) {
    let destination = smart(world).await;
    let (worker, permits) = started(world, destination).await;
    let moved = DestinationChange {
        url: Some("https://elsewhere.example/".to_owned()),
        ..DestinationChange::default()
    };
    let change = (world.catalog).change_destination(DEFAULT_TENANT, destination, &moved);
    change.await.unwrap();
    record(world, worker, &permits[0], 429).await;
    assert_eq!(view(world, destination).await, BEGUN);
}

/// One that fails now and then is not overloaded; three in a row are too many.
pub async fn a_503_alone_is_noise(world: &World) {
    let destination = smart(world).await;
    let (worker, permits) = started(world, destination).await;
    for permit in &permits[..2] {
        record(world, worker, permit, 503).await;
        assert_eq!(view(world, destination).await, BEGUN);
    }
    record(world, worker, &permits[2], 503).await;
    assert_eq!(view(world, destination).await.reason, Reason::Refused);
}

/// No request fails, and their answers take ever longer: they queue at the receiver.
pub async fn successes_that_become_slow_cut(world: &World) {
    let destination = smart(world).await;
    for (millis, reason) in [(20, Reason::Configured), (400, Reason::Slow)] {
        let (worker, permits) = started(world, destination).await;
        assert_eq!(permits.len(), 10);
        // Longer than it watches, and than its window.
        world.pass(Duration::from_millis(1_100)).await;
        let succeeded = |permit: &Permit| Outcome {
            elapsed: Duration::from_millis(millis),
            ..world.outcome(permit, OutcomeKind::Succeeded, NextTry::None)
        };
        let outcomes: Vec<_> = permits.iter().map(succeeded).collect();
        let recorded = world.store.record_outcomes(worker, &outcomes).await;
        assert_eq!(recorded.unwrap().skipped, []);
        assert_eq!(view(world, destination).await.reason, reason);
    }
    let cut = view(world, destination).await.effective;
    assert!(
        cut.per_second.is_some() && cut.max_in_flight.is_some(),
        "{cut:?}"
    );
}

/// What nothing has lowered is as configured, whatever that is now.
pub async fn a_higher_configured_limit_is_followed(world: &World) {
    let destination = smart(world).await;
    let (worker, permits) = started(world, destination).await;
    record(world, worker, &permits[0], 404).await;
    let sql = format!("update destinations set limit_per_second = 30 where id = '{destination}'");
    world.sql(&sql).await;
    record(world, worker, &permits[1], 404).await;
    assert_eq!(view(world, destination).await, BEGUN);
    assert_eq!(history(world, destination).await.len(), 1);
    assert_eq!(world.admit(destination).await.len(), 20);
}

/// The pace alone would let more in: the window still has its starts.
pub async fn the_configured_windows_hold_beside_it(world: &World) {
    let destination = smart(world).await;
    let (worker, permits) = started(world, destination).await;
    assert_eq!(permits.len(), 10);
    // No 429: it would begin a hold.
    for permit in &permits[..3] {
        record(world, worker, permit, 503).await;
    }
    assert_eq!(view(world, destination).await.reason, Reason::Refused);
    world.pass(Duration::from_millis(200)).await;
    let opens = permits[0].not_before + Duration::from_secs(1);
    for permit in world.admit(destination).await {
        assert!(permit.not_before >= opens, "{permit:?}");
    }
}

/// A configured limit below it is in force at once.
pub async fn a_lower_configured_limit_holds(world: &World) {
    let destination = smart(world).await;
    let until = refuse(world, destination).await;
    world
        .sql(&format!(
            "update destinations set limit_per_second = 1 where id = '{destination}'"
        ))
        .await;
    world.pass_until(until + Duration::from_secs(1)).await;
    assert_eq!(world.admit(destination).await.len(), 1);
    assert_eq!(world.admit(destination).await, []);
}

/// Nobody else's.
pub async fn it_is_the_tenants(world: &World) {
    let destination = smart(world).await;
    let stranger = TenantId(world.id());
    let book = &world.catalog;
    let seen = book.smart_delivery(stranger, destination).await;
    assert!(matches!(seen, Err(CatalogError::NotFound("destination"))));
    let set = book.set_smart_delivery(stranger, destination, SmartDelivery::Off);
    assert!(matches!(
        set.await,
        Err(CatalogError::NotFound("destination"))
    ));
    assert_eq!(view(world, destination).await, BEGUN);
}
