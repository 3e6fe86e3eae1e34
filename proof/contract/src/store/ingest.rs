//! [`Store::accept_events`](engine::ports::Store::accept_events).

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::AttemptState;
use domain::event::{Audience, MAX_DESTINATIONS, MAX_PAYLOAD_BYTES, NewEvent, Timing};
use domain::ids::{DestinationId, TenantId};

use super::World;
use super::tenants::new_tenant;
use engine::ports::{
    Acceptance, AttemptView, CatalogError, DEFAULT_TENANT, DestinationChange, MAX_DELIVERIES,
};

/// One waiting attempt, the first try, as of the acceptance.
pub async fn an_accepted_event_waits_at_its_destination(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let before = world.now().await;
    let events = world.accept(destination, 1).await;
    let attempts = world.attempts(destination).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].state, AttemptState::Waiting);
    assert_eq!((attempts[0].event, attempts[0].try_number), (events[0], 1));
    assert!(attempts[0].created_at >= before && attempts[0].created_at <= world.now().await);
    assert_eq!(
        (attempts[0].admitted_at, attempts[0].started_at),
        (None, None)
    );
}

/// The event id is the key: a repeated batch is accepted and adds nothing.
pub async fn accepting_an_id_again_adds_nothing(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let event = world.event(destination);
    let twice_and_another = [event.clone(), event.clone(), world.event(destination)];
    for _ in 0..2 {
        let answers = world.store.accept_events(&twice_and_another).await.unwrap();
        let accepted = Acceptance::Accepted(vec![destination]);
        assert_eq!(answers, [accepted.clone(), accepted.clone(), accepted]);
    }
    assert_eq!(world.backlog(destination).await, 2);
}

/// Though its destination is gone: whoever hands it in again learns that it was
/// accepted, also alone in its call.
pub async fn an_id_that_is_known_outlives_its_destination(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let event = world.event(destination);
    let accepted = [Acceptance::Accepted(vec![destination])];
    let events = std::slice::from_ref(&event);
    assert_eq!(world.store.accept_events(events).await.unwrap(), accepted);
    let deleted = (world.catalog).delete_destination(DEFAULT_TENANT, destination);
    deleted.await.unwrap();
    assert_eq!(world.store.accept_events(events).await.unwrap(), accepted);
    let events = [event, world.event(destination)];
    let answers = world.store.accept_events(&events).await.unwrap();
    assert_eq!(answers[..1], accepted);
    assert_eq!(answers[1], Acceptance::UnknownDestination);
    assert_eq!(world.attempts(destination).await.len(), 1);
}

/// An id is one event's, whoever hands it in; its destinations are its tenant's
/// own.
pub async fn where_an_event_went_is_not_told_to_another_tenant(world: &World) {
    let destination = world.destination().per_second(5).create().await;
    let event = world.event(destination);
    let of_another_tenant = NewEvent {
        tenant: TenantId(world.id()),
        ..event.clone()
    };
    world.store.accept_events(&[event]).await.unwrap();
    let answers = world.store.accept_events(&[of_another_tenant]).await;
    assert_eq!(answers.unwrap(), [Acceptance::Accepted(Vec::new())]);
}

/// Unknown, another tenant's, deleted and disabled destinations are refused
/// one by one, in the order of the events.
pub async fn a_refused_event_does_not_touch_the_others(world: &World) {
    let good = world.destination().per_second(5).create().await;
    let disabled = world.destination().create().await;
    world
        .sql(&format!(
            "update destinations set state = 'disabled' where id = '{disabled}'"
        ))
        .await;
    let deleted = world.destination().create().await;
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, deleted)
        .await
        .unwrap();
    let of_another_tenant = NewEvent {
        tenant: TenantId(world.id()),
        ..world.event(good)
    };
    let events = [
        world.event(good),
        world.event(DestinationId(world.id())),
        world.event(disabled),
        of_another_tenant,
        world.event(deleted),
        world.event(good),
    ];
    let answers = world.store.accept_events(&events).await.unwrap();
    let expected = [
        Acceptance::Accepted(vec![good]),
        Acceptance::UnknownDestination,
        Acceptance::DisabledDestination,
        Acceptance::UnknownDestination,
        Acceptance::UnknownDestination,
        Acceptance::Accepted(vec![good]),
    ];
    assert_eq!(answers, expected);
    assert_eq!(world.backlog(good).await, 2);
    assert_eq!(world.backlog(disabled).await, 0);
}

fn of_type(world: &World, event_type: &str) -> NewEvent {
    NewEvent {
        audience: Audience::Subscribers,
        event_type: Some(event_type.to_owned()),
        ..world.event(DestinationId(world.id()))
    }
}

/// Subscribers by type, by `*`; not those of other types or of none, not the
/// disabled, not the deleted.
pub async fn events_fan_out_by_type_and_star(world: &World) {
    let paid = world
        .destination()
        .event_types(&["order.paid"])
        .create()
        .await;
    let both = world
        .destination()
        .event_types(&["order.sent", "order.paid"])
        .create()
        .await;
    let all = world.destination().event_types(&["*"]).create().await;
    let sent = world
        .destination()
        .event_types(&["order.sent"])
        .create()
        .await;
    let none = world.destination().create().await;
    let disabled = world.destination().event_types(&["*"]).create().await;
    world
        .sql(&format!(
            "update destinations set state = 'disabled' where id = '{disabled}'"
        ))
        .await;
    let deleted = world.destination().event_types(&["*"]).create().await;
    world
        .catalog
        .delete_destination(DEFAULT_TENANT, deleted)
        .await
        .unwrap();

    let events = [of_type(world, "order.paid")];
    let answers = world.store.accept_events(&events).await.unwrap();
    let [Acceptance::Accepted(mut to)] = <[_; 1]>::try_from(answers).unwrap() else {
        panic!("expected to be accepted")
    };
    to.sort();
    let mut expected = vec![paid, both, all];
    expected.sort();
    assert_eq!(to, expected);
    for (destination, waiting) in [(paid, 1), (both, 1), (all, 1), (sent, 0), (none, 0)] {
        assert_eq!(world.backlog(destination).await, waiting);
    }
}

/// `order.*` takes what begins with `order.`, and nothing else.
pub async fn events_fan_out_by_the_beginning_of_their_type(world: &World) {
    let below = |types| world.destination().event_types(types).create();
    let orders = below(&["order.*"]).await;
    let paid = below(&["invoice.sent", "order.paid.*"]).await;
    let takes = [
        ("order.paid", vec![orders]),
        ("order.paid.late", vec![orders, paid]),
        ("order.paid.", vec![orders, paid]),
        ("order", vec![]),
        ("orders.paid", vec![]),
        ("Order.paid", vec![]),
        ("order_paid", vec![]),
        ("an.order.paid", vec![]),
    ];
    for (event_type, mut expected) in takes {
        let answers = world
            .store
            .accept_events(&[of_type(world, event_type)])
            .await;
        let [Acceptance::Accepted(mut to)] = <[_; 1]>::try_from(answers.unwrap()).unwrap() else {
            panic!("{event_type}: expected to be accepted")
        };
        to.sort();
        expected.sort();
        assert_eq!(to, expected, "{event_type}");
    }
}

/// By whatever way a destination changes; and by all that it subscribes to it has an event
/// once.
pub async fn who_subscribes_goes_by_the_destination(world: &World) {
    let builder = world
        .destination()
        .event_types(&["order.*", "order.paid", "*"]);
    let of = builder.create().await;
    let takes = async |tenant, event_type| {
        let event = NewEvent {
            tenant,
            ..of_type(world, event_type)
        };
        let answers = world.store.accept_events(&[event]).await.unwrap();
        answers[0].destinations().to_vec()
    };
    let ours = async |event_type| takes(DEFAULT_TENANT, event_type).await;
    assert_eq!(ours("order.paid").await, [of]);
    let change = DestinationChange {
        event_types: Some(vec!["order.sent.*".to_owned(), "invoice".to_owned()]),
        ..DestinationChange::default()
    };
    let changed = world
        .catalog
        .change_destination(DEFAULT_TENANT, of, &change);
    changed.await.unwrap();
    assert_eq!(ours("order.paid").await, []);
    assert_eq!(ours("order.sent.late").await, [of]);
    // Nobody would be looked for so deep.
    let deep = DestinationChange {
        event_types: Some(vec![format!("{}*", "a.".repeat(9))]),
        ..DestinationChange::default()
    };
    let refused = world
        .catalog
        .change_destination(DEFAULT_TENANT, of, &deep)
        .await;
    assert!(
        matches!(&refused, Err(CatalogError::Invalid { field, .. }) if field == "event_types"),
        "{refused:?}"
    );

    let set = async |to: &str| {
        let change = format!("update destinations set {to} where id = '{of}'");
        world.sql(&change).await;
    };
    for (state, expected) in [("disabled", &[][..]), ("paused", &[of]), ("active", &[of])] {
        set(&format!("state = '{state}'")).await;
        assert_eq!(ours("invoice").await, expected, "{state}");
    }
    let other = new_tenant(world).await;
    set(&format!("tenant_id = '{other}'")).await;
    assert_eq!(ours("invoice").await, []);
    assert_eq!(takes(other, "invoice").await, [of]);
    let deleted = world.catalog.delete_destination(other, of).await;
    deleted.unwrap();
    assert_eq!(takes(other, "invoice").await, []);
}

/// It is durable, and has no attempts.
pub async fn an_event_that_nobody_subscribes_to_is_accepted(world: &World) {
    world
        .destination()
        .event_types(&["order.sent"])
        .create()
        .await;
    let event = of_type(world, "order.paid");
    let answers = world
        .store
        .accept_events(std::slice::from_ref(&event))
        .await
        .unwrap();
    assert_eq!(answers, [Acceptance::Accepted(Vec::new())]);
    let (summary, attempts) = world.catalog.event(DEFAULT_TENANT, event.id).await.unwrap();
    assert_eq!(summary.event_type.as_deref(), Some("order.paid"));
    assert!(attempts.is_empty());
}

/// A pause holds the backlog, not the intake.
pub async fn a_paused_destination_still_accepts(world: &World) {
    let destination = world.destination().event_types(&["*"]).create().await;
    world
        .sql(&format!(
            "update destinations set state = 'paused' where id = '{destination}'"
        ))
        .await;
    world.accept(destination, 1).await;
    let answers = world
        .store
        .accept_events(&[of_type(world, "order.paid")])
        .await
        .unwrap();
    assert_eq!(answers, [Acceptance::Accepted(vec![destination])]);
    assert_eq!(world.backlog(destination).await, 2);
}

/// All values of a byte, nothing at all, and the largest payload.
pub async fn payloads_come_back_byte_for_byte(world: &World) {
    let destination = world.destination().unlimited().create().await;
    let all_bytes: Vec<u8> = (0..=255).collect();
    let largest: Vec<u8> = (0..MAX_PAYLOAD_BYTES).map(|at| (at % 251) as u8).collect();
    let payloads = [Bytes::from(all_bytes), Bytes::new(), Bytes::from(largest)];
    let with = |payload: &Bytes| NewEvent {
        payload: payload.clone(),
        content_type: "application/octet-stream".to_owned(),
        ..world.event(destination)
    };
    let events: Vec<_> = payloads.iter().map(with).collect();
    world.store.accept_events(&events).await.unwrap();
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    let starts = world.start(worker, &permits).await;
    assert_eq!(starts.len(), 3);
    for (start, event) in starts.iter().zip(&events) {
        assert_eq!(start.event, event.id);
        assert_eq!(start.content_type, "application/octet-stream");
        assert!(start.payload == event.payload, "the payload changed");
    }
}

/// In its place, beside the others; and it leaves nothing behind, so that its key is
/// free and its id may come again.
pub async fn an_event_for_nobody_is_refused_where_there_has_to_be_somebody(world: &World) {
    let strict = |event: &NewEvent| NewEvent {
        audience: Audience::SomeSubscriber,
        ..event.clone()
    };
    let paid = of_type(world, "order.paid");
    let batch = [strict(&paid), of_type(world, "order.paid")];
    let answers = world.store.accept_events(&batch).await.unwrap();
    let nobody = Acceptance::Accepted(vec![]);
    assert_eq!(answers, [Acceptance::NoSubscriber, nobody]);

    let to = world
        .destination()
        .event_types(&["order.paid"])
        .create()
        .await;
    let answers = world.store.accept_events(&[strict(&paid)]).await.unwrap();
    assert_eq!(answers, [Acceptance::Accepted(vec![to])]);
    assert_eq!(world.backlog(to).await, 1);
}

/// Meant for the same time, and too old by its own destination's `max_age`.
pub async fn what_goes_to_many_is_to_each_as_if_it_were_alone(world: &World) {
    let mut many = Vec::new();
    for minutes in 0..12 {
        let of = world.destination().event_types(&["*"]).create().await;
        if minutes % 3 > 0 {
            let age = format!("max_age_ms = {minutes} * 60000 where id = '{of}'");
            world.sql(&format!("update destinations set {age}")).await;
        }
        many.push(of);
    }
    let later = Timing {
        deliver_at: Some(world.now().await + Duration::from_secs(3_600)),
        ..Timing::default()
    };
    let urgent = Timing {
        urgent: true,
        ..Timing::default()
    };
    for timing in [Timing::default(), later, urgent] {
        let to_all = NewEvent {
            timing,
            ..of_type(world, "order.paid")
        };
        let mut events = vec![to_all];
        events.extend(many.iter().map(|of| NewEvent {
            timing,
            ..world.event(*of)
        }));
        let answers = world.store.accept_events(&events).await.unwrap();
        assert_eq!(answers[0].destinations().len(), many.len());
        for (of, alone) in many.iter().zip(&events[1..]) {
            let attempts = world.attempts(*of).await;
            let told = |event: &NewEvent| {
                let told = |one: &AttemptView| (one.created_at, one.due_at, one.expires_at);
                let attempt = attempts.iter().find(|one| one.event == event.id);
                attempt.map(told)
            };
            assert!(told(alone).is_some());
            assert_eq!(told(&events[0]), told(alone), "{timing:?}");
        }
    }
}

/// A step of the store stays short, and an event has no end of deliveries. What is
/// answered is owed to all of them.
pub async fn what_goes_to_very_many_is_written_in_parts(world: &World) {
    let mut all = Vec::new();
    for _ in 0..MAX_DESTINATIONS {
        all.push(world.destination().event_types(&["*"]).create().await);
    }
    let events: Vec<_> = (0..5).map(|_| of_type(world, "order.paid")).collect();
    let mut answers = Vec::new();
    while answers.len() < events.len() {
        let more = world.store.accept_events(&events[answers.len()..]).await;
        let more = more.unwrap();
        let deliveries: usize = more.iter().map(|one| one.destinations().len()).sum();
        assert!(!more.is_empty() && deliveries < MAX_DELIVERIES + MAX_DESTINATIONS);
        answers.extend(more);
    }
    for answer in &answers {
        assert_eq!(answer.destinations().len(), MAX_DESTINATIONS);
    }
    for of in [all[0], all[MAX_DESTINATIONS / 2], all[MAX_DESTINATIONS - 1]] {
        assert_eq!(world.backlog(of).await, 5);
    }
    world
        .destination()
        .event_types(&["order.paid"])
        .create()
        .await;
    let answer = world
        .store
        .accept_events(&[of_type(world, "order.paid")])
        .await;
    assert_eq!(answer.unwrap(), [Acceptance::TooManyDestinations]);
    let answer = world
        .store
        .accept_events(&[of_type(world, "order.lost")])
        .await;
    assert_eq!(answer.unwrap()[0].destinations().len(), MAX_DESTINATIONS);
}
