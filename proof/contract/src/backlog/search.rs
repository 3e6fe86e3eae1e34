//! What people look for: events, by what they know of them.

use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{IDEMPOTENCY_KEY_KEPT, Idempotency, NewEvent, Timing};
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};

use super::BacklogWorld;
use engine::ports::{
    AttemptFilter, AttemptView, DEFAULT_TENANT, DestinationChange, EventFilter,
    MAX_EVENTS_EXAMINED, MIN_DELIVERIES, NextTry,
};

/// All that match, on pages of two.
async fn found(world: &BacklogWorld, tenant: TenantId, filter: &EventFilter) -> Vec<EventId> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = world.overview.find_events(tenant, filter, before, 2).await;
        let page = page.unwrap();
        assert!(page.events.len() <= 2, "a page is of two");
        found.extend(page.events.iter().map(|event| event.id));
        before = match page.next {
            Some(next) => Some(next),
            None => return found,
        };
    }
}

async fn ours(world: &BacklogWorld, filter: EventFilter) -> Vec<EventId> {
    found(world, DEFAULT_TENANT, &filter).await
}

/// From `since` on and before `until`, alone and with a type.
pub async fn events_are_found_by_when_they_were_accepted(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for number in 0..5 {
        world.pass(Duration::from_millis(3)).await;
        times.push(world.now().await);
        let event_type = ["even", "odd"][number % 2];
        ids.push(
            world
                .accept_one(&world.typed(event_type, Some(of)).await)
                .await,
        );
    }
    ids.reverse();
    let between = |since, until| EventFilter {
        since,
        until,
        ..EventFilter::default()
    };
    assert_eq!(ours(world, between(None, None)).await, ids);
    assert_eq!(ours(world, between(Some(times[3]), None)).await, ids[..2]);
    assert_eq!(ours(world, between(None, Some(times[1]))).await, ids[4..]);
    assert_eq!(
        ours(world, between(Some(times[1]), Some(times[4]))).await,
        ids[1..4]
    );
    let odd = EventFilter {
        event_type: Some("odd".to_owned()),
        ..between(Some(times[2]), None)
    };
    assert_eq!(ours(world, odd).await, [ids[1]]);
    let later = world.now().await + Duration::from_secs(60);
    assert_eq!(ours(world, between(Some(later), None)).await, []);
    let nobody = TenantId(world.id());
    assert_eq!(
        found(world, nobody, &between(Some(times[0]), None)).await,
        []
    );
}

/// And by the state of their attempts there, not of those at another.
pub async fn events_are_found_by_their_destination(world: &BacklogWorld) {
    let subscribe = || world.destination().unlimited().event_types(&["paid"]);
    let (one, other) = (subscribe().create().await, subscribe().create().await);
    let both = world.accept_one(&world.typed("paid", None).await).await;
    let only = world
        .accept_one(&world.typed("paid", Some(other)).await)
        .await;
    let worker = world.worker().await;
    for permit in world.start_all(worker, other).await {
        let (failed, dead) = (OutcomeKind::Failed, NextTry::DeadLetter);
        world.record(worker, &permit, failed, dead).await;
    }
    let at = |destination, state| EventFilter {
        destination: Some(destination),
        state,
        ..EventFilter::default()
    };
    assert_eq!(ours(world, at(one, None)).await, [both]);
    assert_eq!(ours(world, at(other, None)).await, [only, both]);
    let failed = Some(AttemptState::Failed);
    assert_eq!(ours(world, at(one, failed)).await, []);
    assert_eq!(ours(world, at(other, failed)).await, [only, both]);
    let filter = at(one, Some(AttemptState::Waiting));
    let page = world
        .overview
        .find_events(DEFAULT_TENANT, &filter, None, 9)
        .await;
    let events = page.unwrap().events;
    let counted: Vec<_> = (events.iter())
        .map(|event| (event.attempts, event.matching))
        .collect();
    assert_eq!(counted, [(2, Some(1))]);
}

/// Of a key the whole, for as long as it stands for its event.
pub async fn events_are_found_by_a_part_of_their_id_or_their_key(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let keyed = NewEvent {
        idempotency: Some(Idempotency {
            key: "order-4711".to_owned(),
            digest: [7; 32],
            kept_for: IDEMPOTENCY_KEY_KEPT,
        }),
        ..world.typed("a", Some(of)).await
    };
    let keyed = world.accept_one(&keyed).await;
    let plain = world.accept_one(&world.typed("b", Some(of)).await).await;
    let by = |text: &str| EventFilter {
        text: Some(text.to_owned()),
        ..EventFilter::default()
    };
    let end = |id: EventId| id.to_string()[28..].to_owned();
    assert_eq!(ours(world, by("order-4711")).await, [keyed]);
    assert_eq!(ours(world, by("order-471")).await, [], "a key is whole");
    assert_eq!(ours(world, by(&end(plain).to_uppercase())).await, [plain]);
    assert_eq!(ours(world, by(&keyed.to_string())).await, [keyed]);
    assert_eq!(ours(world, by("-7000-8")).await, [plain, keyed]);
    let typed = EventFilter {
        event_type: Some("b".to_owned()),
        ..by("order-4711")
    };
    assert_eq!(ours(world, typed).await, []);
    let nobody = TenantId(world.id());
    for text in ["order-4711", &end(keyed), &keyed.to_string()] {
        assert_eq!(found(world, nobody, &by(text)).await, [], "{text}");
    }
    world
        .sql(
            "update idempotency_keys set expires_at = created.at from (
                select min(created_at) as at from events
            ) created",
        )
        .await;
    assert_eq!(ours(world, by("order-4711")).await, [], "it has expired");
}

/// The first of what waits: for its time, and until it is not sent any more.
pub async fn events_found_say_when_they_are_due(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let (now, hour) = (world.now().await, Duration::from_secs(3_600));
    let later = NewEvent {
        timing: Timing {
            deliver_at: Some(now + hour),
            expires_at: Some(now + hour * 2),
            urgent: false,
        },
        ..world.typed("later", Some(of)).await
    };
    world.accept_one(&later).await;
    world.accept_one(&world.typed("now", Some(of)).await).await;
    let filter = EventFilter::default();
    let page = (world.overview).find_events(DEFAULT_TENANT, &filter, None, 9);
    let told: Vec<_> = (page.await.unwrap().events.iter())
        .map(|event| (event.event_type.clone(), event.due_at, event.expires_at))
        .collect();
    let (at_once, later) = (Some("now".to_owned()), Some("later".to_owned()));
    let until = (later, Some(now + hour), Some(now + hour * 2));
    assert_eq!(told, [(at_once, None, None), until]);
}

/// A page of nothing says where to go on.
pub async fn a_page_of_events_examines_so_many(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let wanted = world
        .accept_one(&world.typed("wanted", Some(of)).await)
        .await;
    let mut others = Vec::new();
    for _ in 0..MAX_EVENTS_EXAMINED {
        others.push(world.typed("other", Some(of)).await);
    }
    for batch in others.chunks(MIN_DELIVERIES) {
        world.store.accept_events(batch).await.unwrap();
    }
    let filter = EventFilter {
        event_type: Some("wanted".to_owned()),
        ..EventFilter::default()
    };
    let page = async |before| {
        let page = world
            .overview
            .find_events(DEFAULT_TENANT, &filter, before, 10)
            .await;
        page.unwrap()
    };
    let first = page(None).await;
    assert_eq!(first.events, []);
    assert!(first.next.is_some(), "there is more");
    let rest = page(first.next).await;
    let ids: Vec<_> = rest.events.iter().map(|event| event.id).collect();
    assert_eq!((ids, rest.next), (vec![wanted], None));
}

/// Of all destinations or of one; and nobody else's.
pub async fn attempts_are_found_by_what_is_known_of_them(world: &BacklogWorld) {
    let one = world.destination().unlimited().create().await;
    let other = world.destination().unlimited().create().await;
    world.accept_one(&world.typed("a", Some(one)).await).await;
    world.accept_one(&world.typed("b", Some(other)).await).await;
    let worker = world.worker().await;
    for permit in world.start_all(worker, one).await {
        let (failed, later) = (OutcomeKind::Failed, NextTry::RetryAfter(Duration::ZERO));
        world.record(worker, &permit, failed, later).await;
    }
    // The retry was created when the try before it ended, which is told a moment ahead.
    world.pass(MAX_CLAIM_TO_SEND * 2).await;
    let then = world.now().await;
    world.accept_one(&world.typed("a", Some(other)).await).await;
    let (waiting, failed) = (AttemptState::Waiting, AttemptState::Failed);
    let all = [
        (other, waiting, 1),
        (one, waiting, 2),
        (other, waiting, 1),
        (one, failed, 1),
    ];
    let mut filters = vec![AttemptFilter::default(); 6];
    filters[1].destination = Some(one);
    filters[2].event_type = Some("b".to_owned());
    filters[3].state = Some(failed);
    filters[4].since = Some(then);
    (filters[5].until, filters[5].state) = (Some(then), Some(waiting));
    let expected: [&[usize]; 6] = [&[0, 1, 2, 3], &[1, 3], &[2], &[3], &[0], &[1, 2]];
    for (filter, expected) in filters.iter().zip(expected) {
        let expected: Vec<Told> = expected.iter().map(|at| all[*at]).collect();
        let found = attempts(world, DEFAULT_TENANT, filter).await;
        assert_eq!(found, expected, "{filter:?}");
        assert_eq!(attempts(world, TenantId(world.id()), filter).await, []);
    }
}

/// By the receiver's status, or a class of them; an attempt without an answer has none.
pub async fn attempts_are_found_by_their_status(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let worker = world.worker().await;
    let mut ids = Vec::new();
    for status in [Some(500), Some(503), Some(429), None] {
        world.accept_one(&world.typed("a", Some(of)).await).await;
        for permit in world.start_all(worker, of).await {
            ids.push(permit.attempt);
            let (failed, dead) = (OutcomeKind::Failed, NextTry::DeadLetter);
            let mut outcome = world.outcome(&permit, failed, dead);
            outcome.status = status;
            let recorded = world.store.record_outcomes(worker, &[outcome]).await;
            recorded.unwrap();
        }
    }
    world.accept_one(&world.typed("a", Some(of)).await).await;
    let by = async |text: &str, since, state| {
        let filter = AttemptFilter {
            status: Some(text.parse().unwrap()),
            since,
            state,
            ..AttemptFilter::default()
        };
        let found = ids_of(world, DEFAULT_TENANT, &filter).await;
        assert_eq!(ids_of(world, TenantId(world.id()), &filter).await, []);
        found
    };
    assert_eq!(by("500", None, None).await, [ids[0]]);
    assert_eq!(by("5xx", None, None).await, [ids[1], ids[0]]);
    assert_eq!(by("4xx", None, None).await, [ids[2]]);
    assert_eq!(by("200", None, None).await, []);
    assert_eq!(by("5xx", None, Some(AttemptState::Waiting)).await, []);
    let later = world.now().await + Duration::from_secs(60);
    assert_eq!(by("5xx", Some(later), None).await, []);
}

/// Of an attempt at the destination that is asked for, and in that state; what waits has
/// no status.
pub async fn events_are_found_by_the_status_of_an_attempt(world: &BacklogWorld) {
    let subscribe = || world.destination().unlimited().event_types(&["paid"]);
    let (one, other) = (subscribe().create().await, subscribe().create().await);
    let worker = world.worker().await;
    let mut ids = Vec::new();
    for status in [Some(500), Some(503), Some(429), None] {
        let id = world.accept_one(&world.typed("paid", None).await).await;
        for permit in world.start_all(worker, one).await {
            let (failed, dead) = (OutcomeKind::Failed, NextTry::DeadLetter);
            let mut outcome = world.outcome(&permit, failed, dead);
            outcome.status = status;
            let recorded = world.store.record_outcomes(worker, &[outcome]).await;
            recorded.unwrap();
        }
        ids.push(id);
    }
    let by = |text: &str, destination, state| EventFilter {
        status: Some(text.parse().unwrap()),
        destination,
        state,
        ..EventFilter::default()
    };
    assert_eq!(ours(world, by("500", None, None)).await, [ids[0]]);
    assert_eq!(ours(world, by("5xx", None, None)).await, [ids[1], ids[0]]);
    assert_eq!(ours(world, by("4xx", Some(one), None)).await, [ids[2]]);
    assert_eq!(ours(world, by("200", None, None)).await, []);
    assert_eq!(ours(world, by("5xx", Some(other), None)).await, []);
    let (waiting, failed) = (AttemptState::Waiting, AttemptState::Failed);
    assert_eq!(ours(world, by("5xx", None, Some(waiting))).await, []);
    let nobody = TenantId(world.id());
    assert_eq!(found(world, nobody, &by("5xx", None, None)).await, []);
    let filter = by("503", None, Some(failed));
    let page = world
        .overview
        .find_events(DEFAULT_TENANT, &filter, None, 9)
        .await;
    let counted: Vec<_> = (page.unwrap().events.iter())
        .map(|event| (event.id, event.attempts, event.matching))
        .collect();
    assert_eq!(counted, [(ids[1], 2, Some(1))]);
}

/// By a part of the event's id, by all of it or by its key: nobody else's, and in the
/// same order.
pub async fn attempts_are_found_by_their_event(world: &BacklogWorld) {
    let subscribe = || world.destination().unlimited().event_types(&["paid"]);
    let (one, other) = (subscribe().create().await, subscribe().create().await);
    let keyed = NewEvent {
        idempotency: Some(Idempotency {
            key: "order-4711".to_owned(),
            digest: [7; 32],
            kept_for: IDEMPOTENCY_KEY_KEPT,
        }),
        ..world.typed("paid", None).await
    };
    let keyed = world.accept_one(&keyed).await;
    let plain = world.accept_one(&world.typed("b", Some(one)).await).await;
    let worker = world.worker().await;
    for permit in world.start_all(worker, other).await {
        let (failed, later) = (OutcomeKind::Failed, NextTry::RetryAfter(Duration::ZERO));
        world.record(worker, &permit, failed, later).await;
    }
    let by = |text: &str| AttemptFilter {
        text: Some(text.to_owned()),
        ..AttemptFilter::default()
    };
    let end = |id: EventId| id.to_string()[28..].to_owned();
    let whole = keyed.to_string().to_uppercase();
    for text in ["order-4711", &end(keyed), &whole] {
        let found = attempts(world, DEFAULT_TENANT, &by(text)).await;
        assert_eq!(found.len(), 3, "{text}: both, and a retry: {found:?}");
        let there = AttemptFilter {
            destination: Some(other),
            ..by(text)
        };
        let found = attempts(world, DEFAULT_TENANT, &there).await;
        let (waiting, failed) = (AttemptState::Waiting, AttemptState::Failed);
        assert_eq!(found, [(other, waiting, 2), (other, failed, 1)], "{text}");
        let failed = AttemptFilter {
            state: Some(failed),
            ..by(text)
        };
        let found = attempts(world, DEFAULT_TENANT, &failed).await;
        assert_eq!(found, [(other, AttemptState::Failed, 1)], "{text}");
        let nobody = TenantId(world.id());
        assert_eq!(attempts(world, nobody, &by(text)).await, [], "{text}");
    }
    let found = attempts(world, DEFAULT_TENANT, &by(&end(plain))).await;
    assert_eq!(found, [(one, AttemptState::Waiting, 1)]);
    for text in ["order-471", "nothing", &"a".repeat(36)] {
        let found = attempts(world, DEFAULT_TENANT, &by(text)).await;
        assert_eq!(found, [], "{text}");
    }
}

/// Wherever that has moved since, and when it is deleted as well.
pub async fn an_attempt_went_where_its_destination_was_then(world: &BacklogWorld) {
    const THERE: &str = "https://elsewhere.example/";
    let of = world.destination().unlimited().create().await;
    let worker = world.worker().await;
    let went_to = async |attempt: AttemptId| {
        let found = world.overview.requested(DEFAULT_TENANT, attempt).await;
        found.unwrap().url
    };
    world.accept(of, 1).await;
    let waiting = AttemptFilter {
        destination: Some(of),
        ..AttemptFilter::default()
    };
    let first = ids_of(world, DEFAULT_TENANT, &waiting).await[0];
    assert_eq!(went_to(first).await, None, "it has not been sent");
    world.start_all(worker, of).await;
    world.pass(Duration::from_millis(2)).await;

    let moved = DestinationChange {
        url: Some(THERE.to_owned()),
        ..DestinationChange::default()
    };
    let changed = (world.catalog).change_destination(DEFAULT_TENANT, of, &moved);
    let before = "https://receiver.example/hooks";
    changed.await.unwrap();
    assert_eq!(went_to(first).await.as_deref(), Some(before));
    world.pass(Duration::from_millis(2)).await;
    world.accept(of, 1).await;
    let second = world.start_all(worker, of).await[0].attempt;
    let deleted = world.catalog.delete_destination(DEFAULT_TENANT, of);
    deleted.await.unwrap();
    let both = (went_to(first).await, went_to(second).await);
    assert_eq!(
        (both.0.as_deref(), both.1.as_deref()),
        (Some(before), Some(THERE))
    );
}

/// To whom an attempt goes, where it stands, and which try it is.
type Told = (DestinationId, AttemptState, u32);

async fn attempts(world: &BacklogWorld, tenant: TenantId, filter: &AttemptFilter) -> Vec<Told> {
    let told = all(world, tenant, filter).await.into_iter();
    told.map(|one| (one.destination, one.state, one.try_number))
        .collect()
}

async fn ids_of(world: &BacklogWorld, tenant: TenantId, filter: &AttemptFilter) -> Vec<AttemptId> {
    let found = all(world, tenant, filter).await.into_iter();
    found.map(|one| one.id).collect()
}

/// All that match, on pages of two, in their order.
async fn all(world: &BacklogWorld, tenant: TenantId, filter: &AttemptFilter) -> Vec<AttemptView> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = world
            .overview
            .find_attempts(tenant, filter, before, 2)
            .await;
        let page = page.unwrap();
        assert!(page.attempts.len() <= 2, "a page is of two");
        found.extend(page.attempts);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert!(found.is_sorted_by(|a, b| a.id > b.id), "{found:?}");
    found
}
