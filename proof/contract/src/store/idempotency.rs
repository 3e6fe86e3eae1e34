//! Idempotency keys, of [`Store::accept_events`](engine::ports::Store::accept_events).

use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, Idempotency, NewEvent};
use domain::ids::{DestinationId, EventId, TenantId};

use super::World;
use engine::ports::{Acceptance, DEFAULT_TENANT, ReapRules};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// An event with this key and content. The digest is a stand-in: the store
/// takes it as it is.
fn keyed(world: &World, to: DestinationId, key: &str, content: u8) -> NewEvent {
    kept(world, to, (key, content), DAY)
}

fn kept(world: &World, to: DestinationId, (key, content): (&str, u8), for_: Duration) -> NewEvent {
    NewEvent {
        payload: Bytes::from(vec![content]),
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            digest: [content; 32],
            kept_for: for_,
        }),
        ..world.event(to)
    }
}

async fn accept(world: &World, event: &NewEvent) -> Acceptance {
    let answers = world.store.accept_events(std::slice::from_ref(event)).await;
    answers.unwrap().remove(0)
}

fn repeated(event: EventId, to: DestinationId) -> Acceptance {
    Acceptance::Repeated {
        event,
        destinations: vec![to],
    }
}

/// However often it is sent.
pub async fn the_same_key_and_content_is_the_same_event(world: &World) {
    let to = world.destination().create().await;
    let first = keyed(world, to, "order-1", 1);
    assert_eq!(accept(world, &first).await, Acceptance::Accepted(vec![to]));
    for _ in 0..3 {
        let again = keyed(world, to, "order-1", 1);
        assert_eq!(accept(world, &again).await, repeated(first.id, to));
        assert!(world.catalog.event(DEFAULT_TENANT, again.id).await.is_err());
    }
    assert_eq!(world.backlog(to).await, 1);
}

/// And leaves the first as it was.
pub async fn the_same_key_for_something_else_is_refused(world: &World) {
    let to = world.destination().create().await;
    let first = keyed(world, to, "order-1", 1);
    accept(world, &first).await;
    let other = keyed(world, to, "order-1", 2);
    assert_eq!(accept(world, &other).await, Acceptance::KeyReused);
    let again = keyed(world, to, "order-1", 1);
    assert_eq!(accept(world, &again).await, repeated(first.id, to));
    assert_eq!(world.backlog(to).await, 1);
}

/// What another tenant calls its events is its own affair.
pub async fn a_key_is_of_its_tenant(world: &World) {
    let to = world.destination().create().await;
    accept(world, &keyed(world, to, "order-1", 1)).await;
    let of_another = NewEvent {
        tenant: TenantId(world.id()),
        audience: Audience::Subscribers,
        event_type: Some("order.paid".to_owned()),
        ..keyed(world, to, "order-1", 2)
    };
    assert_eq!(
        accept(world, &of_another).await,
        Acceptance::Accepted(vec![])
    );
}

/// The first of them is accepted; the rest of the batch is not touched.
pub async fn keys_in_one_batch_are_answered_in_order(world: &World) {
    let to = world.destination().create().await;
    let first = keyed(world, to, "order-1", 1);
    let batch = [
        keyed(world, DestinationId(world.id()), "order-1", 1),
        first.clone(),
        world.event(to),
        keyed(world, to, "order-1", 1),
        keyed(world, to, "order-1", 2),
        keyed(world, to, "order-2", 2),
    ];
    let accepted = Acceptance::Accepted(vec![to]);
    let expected = [
        Acceptance::UnknownDestination,
        accepted.clone(),
        accepted.clone(),
        repeated(first.id, to),
        Acceptance::KeyReused,
        accepted,
    ];
    assert_eq!(world.store.accept_events(&batch).await.unwrap(), expected);
    assert_eq!(world.backlog(to).await, 3);
}

/// Disabled, or deleted: the event is what it was.
pub async fn a_repeated_request_is_answered_whatever_became_of_the_destination(world: &World) {
    let to = world.destination().create().await;
    let first = keyed(world, to, "order-1", 1);
    accept(world, &first).await;
    let disable = format!("update destinations set state = 'disabled' where id = '{to}'");
    world.sql(&disable).await;
    let again = keyed(world, to, "order-1", 1);
    assert_eq!(accept(world, &again).await, repeated(first.id, to));
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, to);
    deleted.await.unwrap();
    assert_eq!(accept(world, &again).await, repeated(first.id, to));
    let other = keyed(world, to, "order-1", 2);
    assert_eq!(accept(world, &other).await, Acceptance::KeyReused);
}

/// It can be sent again, corrected.
pub async fn a_refused_event_takes_no_key(world: &World) {
    let to = world.destination().create().await;
    let nowhere = keyed(world, DestinationId(world.id()), "order-1", 1);
    let refused = accept(world, &nowhere).await;
    assert_eq!(refused, Acceptance::UnknownDestination);
    let corrected = accept(world, &keyed(world, to, "order-1", 2)).await;
    assert_eq!(corrected, Acceptance::Accepted(vec![to]));
}

/// With or without a reaper that came by; a key that has not expired stays.
pub async fn a_key_that_has_expired_is_free(world: &World) {
    let to = world.destination().create().await;
    let short = Duration::from_millis(50);
    for key in ["order-1", "order-2"] {
        accept(world, &kept(world, to, (key, 1), short)).await;
    }
    accept(world, &keyed(world, to, "order-3", 1)).await;
    world.pass(short).await;
    let other = keyed(world, to, "order-1", 2);
    assert_eq!(accept(world, &other).await, Acceptance::Accepted(vec![to]));
    let rules = ReapRules {
        heartbeat_timeout: DAY,
        start_timeout: DAY,
        permit_grace: DAY,
        everything: true,
    };
    world.store.reap(&rules, 100).await.unwrap();
    let other = keyed(world, to, "order-2", 2);
    assert_eq!(accept(world, &other).await, Acceptance::Accepted(vec![to]));
    for key in ["order-1", "order-2", "order-3"] {
        let reused = accept(world, &keyed(world, to, key, 3)).await;
        assert_eq!(reused, Acceptance::KeyReused, "{key}");
    }
}

/// The reaper does not pause while there are more than one pass deletes.
pub async fn more_expired_keys_than_a_pass_deletes_are_told_of(world: &World) {
    let to = world.destination().create().await;
    let short = Duration::from_millis(50);
    for key in ["order-1", "order-2", "order-3"] {
        accept(world, &kept(world, to, (key, 1), short)).await;
    }
    world.pass(short + Duration::from_millis(1)).await;
    let rules = ReapRules {
        heartbeat_timeout: DAY,
        start_timeout: DAY,
        permit_grace: DAY,
        everything: true,
    };
    for more in [true, false] {
        let reaped = world.store.reap(&rules, 2).await.unwrap();
        assert_eq!((reaped.more, reaped.is_full(2)), (more, more));
    }
}

/// Requests with the same keys, in different orders, all at the same time.
pub async fn one_of_many_at_once_is_accepted(world: &World) {
    let to = world.destination().create().await;
    let batch = |turn: u8| {
        let mut batch: Vec<_> = (0..10)
            .map(|n| keyed(world, to, &format!("order-{n}"), n))
            .collect();
        batch.rotate_left(usize::from(turn));
        batch
    };
    let mut running = tokio::task::JoinSet::new();
    for turn in 0..8 {
        let (store, batch) = (world.store.clone(), batch(turn));
        running.spawn(async move {
            let answers = store.accept_events(&batch).await.unwrap();
            let ids: Vec<_> = (batch.iter().zip(answers))
                .map(|(event, answer)| match answer {
                    Acceptance::Accepted(_) => (event.payload[0], event.id, true),
                    Acceptance::Repeated { event: id, .. } => (event.payload[0], id, false),
                    other => panic!("expected the event, got {other:?}"),
                })
                .collect();
            ids
        });
    }
    let all: Vec<_> = running.join_all().await.into_iter().flatten().collect();
    for n in 0..10 {
        let of_key: Vec<_> = all.iter().filter(|(of, _, _)| *of == n).collect();
        assert_eq!(of_key.iter().filter(|(_, _, new)| *new).count(), 1);
        assert!(of_key.iter().all(|(_, id, _)| *id == of_key[0].1));
    }
    assert_eq!(world.backlog(to).await, 10);
}

/// As after a commit whose answer was lost.
pub async fn a_batch_that_is_tried_again_is_repeated(world: &World) {
    let to = world.destination().create().await;
    let batch = [keyed(world, to, "order-1", 1), world.event(to)];
    world.store.accept_events(&batch).await.unwrap();
    let answers = world.store.accept_events(&batch).await.unwrap();
    let accepted = Acceptance::Accepted(vec![to]);
    assert_eq!(answers, [repeated(batch[0].id, to), accepted]);
    assert_eq!(world.backlog(to).await, 2);
}
