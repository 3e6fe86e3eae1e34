//! News become events, and are deleted when they are old.

use std::time::Duration;

use domain::health::DisableReason;
use domain::operations::{OperationalScope, event_id, payload};

use super::{OperationsWorld, book, end, raise, register, relay, stranger, told};
use engine::ports::{DEFAULT_TENANT, MAX_OPERATIONAL, MAX_ROWS, NextTry, RelayedOperations};

/// By the way of ingest: an ordinary event, with the payload of the news. And
/// never again, whoever relays.
pub async fn news_become_one_event_for_each_that_is_told(world: &OperationsWorld) {
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
pub async fn of_many_relays_each_takes_its_own(world: &OperationsWorld) {
    let destination = told(world).await;
    for number in 0..40 {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    let one = || async {
        let mut sum = 0;
        loop {
            let relayed = world.operations.relay_operational_events(3).await.unwrap();
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

/// However many are told: the rest is another batch's.
pub async fn so_many_at_a_time_as_one_batch_of_ingest(world: &OperationsWorld) {
    let most = usize::try_from(MAX_OPERATIONAL).unwrap();
    for _ in 0..most {
        told(world).await;
    }
    let one_batch = MAX_ROWS / most;
    let news = one_batch + 7;
    for number in 0..news {
        raise(world, stranger(number as u128).0, DEFAULT_TENANT).await;
    }
    for (expected, more) in [(one_batch, true), (7, false), (0, false)] {
        let relayed = relay(world).await;
        assert_eq!(relayed.relayed as usize, expected);
        assert_eq!(relayed.accepted as usize, expected * most);
        assert_eq!(relayed.more, more);
    }
}

/// A tenant's operational destinations know nothing of other tenants; those
/// of the installation know of all.
pub async fn what_is_told_of_is_the_tenants_or_everybodys(world: &OperationsWorld) {
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
pub async fn a_disabled_destination_is_not_told(world: &OperationsWorld) {
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
pub async fn news_of_one_that_is_told_do_not_come_back(world: &OperationsWorld) {
    let (first, second) = (told(world).await, told(world).await);
    raise(world, second, DEFAULT_TENANT).await;
    assert_eq!(relay(world).await.destinations, [first]);
    raise(world, first, DEFAULT_TENANT).await;
    let relayed = relay(world).await;
    assert_eq!((relayed.relayed, relayed.accepted), (1, 0));
}

/// The oldest first, and none that was not relayed.
pub async fn old_news_are_deleted_in_steps(world: &OperationsWorld) {
    for number in 0..5 {
        raise(world, stranger(number).0, DEFAULT_TENANT).await;
    }
    let trim = |limit| {
        world
            .operations
            .trim_operational_events(Duration::ZERO, limit)
    };
    assert_eq!(trim(100).await.unwrap(), 0, "nobody has relayed them");
    assert_eq!(relay(world).await.relayed, 5);
    let hour = Duration::from_secs(3_600);
    let young = world.operations.trim_operational_events(hour, 100).await;
    assert_eq!(young.unwrap(), 0);
    assert_eq!(trim(3).await.unwrap(), 3);
    let left = book(world).recent_operational_events(None, None, 10);
    let left: Vec<_> = left
        .await
        .unwrap()
        .iter()
        .filter_map(|event| event.destination)
        .collect();
    assert_eq!(left, [stranger(4).0, stranger(3).0]);
    assert_eq!(trim(3).await.unwrap(), 2);
}
