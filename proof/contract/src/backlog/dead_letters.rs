//! Dead letters, as people look at them.

use std::time::Duration;

use domain::attempt::{AttemptState, OutcomeKind};
use domain::event::{Audience, NewEvent};
use domain::ids::TenantId;

use super::BacklogWorld;
use engine::ports::{CatalogError, DEFAULT_TENANT, DeadLetterFilter, NextTry};

/// The last try, and the event that it was for.
pub async fn a_dead_letter_says_why_when_and_what_was_answered(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let event = NewEvent {
        event_type: Some("order.paid".to_owned()),
        audience: Audience::Destination(of),
        ..world.event(of)
    };
    let accepted = world
        .store
        .accept_events(std::slice::from_ref(&event))
        .await;
    accepted.unwrap();
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    world
        .record(
            worker,
            &permits[0],
            OutcomeKind::Failed,
            NextTry::DeadLetter,
        )
        .await;
    let found = world.dead_letters(&DeadLetterFilter::default()).await;
    assert_eq!(found.len(), 1);
    let one = &found[0];
    assert_eq!(one.event_type.as_deref(), Some("order.paid"));
    assert_eq!(one.attempt, world.attempts(of).await[0]);
    assert_eq!(one.attempt.event, event.id);
    assert_eq!(one.attempt.state, AttemptState::Failed);
    assert_eq!(one.attempt.status, Some(503));
    assert_eq!(one.attempt.response_body.as_deref(), Some("ok"));
    let headers = one.attempt.response_headers.as_text();
    assert_eq!(headers, Some("retry-after: 3\n"));
    let why = "the receiver answered 503";
    assert_eq!(one.attempt.error.as_deref(), Some(why));
    assert_eq!(Some(one.died_at), one.attempt.finished_at);
    assert_eq!(one.replayed_at, None);
    let shown = world.backlog.dead_letter(DEFAULT_TENANT, one.attempt.id);
    assert_eq!(shown.await.unwrap(), *one);
}

/// Those that died last first, each once.
pub async fn dead_letters_are_paged_by_when_they_died(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let mut died = Vec::new();
    for count in [1, 3, 1] {
        died.extend(world.die(of, count).await);
    }
    // What lives is no dead letter.
    world.accept(of, 1).await;
    let found = world.dead_letters(&DeadLetterFilter::default()).await;
    assert!(found.is_sorted_by(|a, b| (a.died_at, a.attempt.id) > (b.died_at, b.attempt.id)));
    let mut ids: Vec<_> = found.iter().map(|one| one.attempt.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, died);
}

/// By destination, type, status and time.
pub async fn dead_letters_are_found_by_filter(world: &BacklogWorld) {
    let (of, other) = (
        world.destination().unlimited().create().await,
        world.destination().unlimited().create().await,
    );
    let typed = NewEvent {
        event_type: Some("a".to_owned()),
        audience: Audience::Destination(of),
        ..world.event(of)
    };
    world.store.accept_events(&[typed]).await.unwrap();
    let worker = world.worker().await;
    let permits = world.start_all(worker, of).await;
    let mut outcome = world.outcome(&permits[0], OutcomeKind::Failed, NextTry::DeadLetter);
    outcome.status = Some(422);
    let recorded = world.store.record_outcomes(worker, &[outcome]).await;
    recorded.unwrap();
    world.pass(Duration::from_millis(50)).await;
    let between = world.now().await;
    world.pass(Duration::from_millis(5)).await;
    let typed = permits[0].attempt;
    let later = world.die(of, 2).await;
    let others = world.die(other, 1).await;
    let found = async |filter: DeadLetterFilter| {
        let found = world.dead_letters(&filter).await;
        let mut ids: Vec<_> = found.iter().map(|one| one.attempt.id).collect();
        ids.sort_unstable();
        ids
    };
    let none = DeadLetterFilter::default;
    let at = |destination| DeadLetterFilter {
        destination: Some(destination),
        ..none()
    };
    assert_eq!(found(at(other)).await, others);
    assert_eq!(found(none()).await.len(), 4);
    let of_type = DeadLetterFilter {
        event_type: Some("a".to_owned()),
        ..none()
    };
    assert_eq!(found(of_type).await, [typed]);
    let status = |status| DeadLetterFilter {
        status: Some(status),
        ..at(of)
    };
    assert_eq!(found(status(422)).await, [typed]);
    assert_eq!(found(status(503)).await, later);
    let before = DeadLetterFilter {
        died_before: Some(between),
        ..at(of)
    };
    assert_eq!(found(before).await, [typed]);
    let from = DeadLetterFilter {
        died_from: Some(between),
        ..at(of)
    };
    assert_eq!(found(from).await, later);
}

/// Neither on pages nor by id.
pub async fn another_tenant_sees_none(world: &BacklogWorld) {
    let of = world.destination().unlimited().create().await;
    let died = world.die(of, 1).await;
    let nobody = TenantId(world.id());
    for destination in [None, Some(of)] {
        let filter = DeadLetterFilter {
            destination,
            ..DeadLetterFilter::default()
        };
        let page = world.backlog.dead_letters(nobody, &filter, None, 10).await;
        assert_eq!(page.unwrap().dead_letters, []);
    }
    let shown = world.backlog.dead_letter(nobody, died[0]).await;
    assert!(matches!(shown, Err(CatalogError::NotFound("dead letter"))));
}
