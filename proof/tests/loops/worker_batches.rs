//! Batches: one claim, one request, and what each event comes to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::OutcomeKind;
use domain::batch;
use domain::ids::AttemptId;
use engine::ports::{
    BATCH_BODY_BYTES, NextTry, Outcome, Request, Response, STORED_BODY_BYTES, Speaks,
};
use engine::worker::WorkerOptions;

use crate::support::{Event, World, answer, member, ms, pass, permit, settle};

/// A worker that is given one permit whose batch has so many events, each
/// answered so: the request, and the outcomes in the order of their record.
async fn sent(size: usize, response: Response) -> (Request, Vec<Outcome>) {
    let world = World::new();
    world.store.batches.store(size, Ordering::SeqCst);
    let _worker = world.worker().await;
    world.sender.send.answers(move |_| Ok(response.clone()));
    world.queue.delivers(&[permit(7)]);
    settle().await;
    let mut requests = world.journal.pick(|event| match event {
        Event::Send(request) => Some(request),
        _ => None,
    });
    assert_eq!(requests.len(), 1, "one request");
    let claims = world.journal.pick(|event| match event {
        Event::ClaimBatches(_, permits) => Some(permits),
        _ => None,
    });
    assert_eq!(claims, [[permit(7)]]);
    assert!(world.journal.claims().is_empty(), "of no other kind");
    let recorded = world.journal.recorded();
    assert_eq!(recorded.len(), 1, "in one commit");
    let recorded = recorded.into_iter();
    let outcomes = recorded.flat_map(|(_, outcomes)| outcomes).collect();
    (requests.remove(0), outcomes)
}

fn says(status: u16, body: String) -> Response {
    Response {
        body: Bytes::from(body),
        ..answer(status)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_one_request_under_the_id_of_all() {
    let (request, outcomes) = sent(3, answer(200)).await;
    let members: Vec<_> = (0..3).map(|place| member(&permit(7), place)).collect();
    let id = batch::id(members.iter().map(|member| member.event));
    assert_eq!(request.batch, Some(id));
    assert_eq!(request.content_type, "application/json");
    let body = String::from_utf8(request.payload.to_vec()).unwrap();
    assert_eq!(body.matches("\"data\":{}").count(), 3, "{body}");
    assert_eq!(body.matches("\"try\":1").count(), 3, "{body}");
    let attempts: Vec<_> = outcomes.iter().map(|one| one.attempt).collect();
    assert_eq!(attempts, [7, 8, 9].map(AttemptId), "the leader first");
    let speaks: Vec<_> = outcomes.iter().map(|one| one.speaks).collect();
    let carried = Speaks::Carried;
    assert_eq!(speaks, [Speaks::ForRequest, carried, carried]);
    for outcome in &outcomes {
        assert_eq!(outcome.number, permit(7).number);
        assert_eq!(outcome.kind, OutcomeKind::Succeeded);
        assert_eq!(outcome.status, Some(200));
    }
    assert_eq!(outcomes[0].response_body, "thanks");
    assert!(outcomes[1].response_body.is_empty(), "kept once");
    let headers = outcomes.iter().map(|one| one.response_headers.as_text());
    assert_eq!(
        headers.collect::<Vec<_>>(),
        [Some("server: fake\n"), None, None]
    );
}

#[tokio::test(start_paused = true)]
async fn a_final_answer_splits_and_one_alone_is_given_up() {
    for (size, next) in [
        (
            5,
            NextTry::Split {
                limit: 3,
                delay: std::time::Duration::ZERO,
            },
        ),
        (
            2,
            NextTry::Split {
                limit: 1,
                delay: std::time::Duration::ZERO,
            },
        ),
        (1, NextTry::DeadLetter),
    ] {
        let (_, outcomes) = sent(size, answer(422)).await;
        assert_eq!(outcomes.len(), size);
        assert!(outcomes.iter().all(|one| one.next == next), "{outcomes:?}");
        assert!(outcomes.iter().all(|one| one.status == Some(422)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_failed_together_comes_back_together() {
    let (_, outcomes) = sent(20, answer(503)).await;
    let NextTry::RetryAfter(_) = outcomes[0].next else {
        panic!("{:?}", outcomes[0].next);
    };
    assert!(outcomes.iter().all(|one| one.next == outcomes[0].next));
}

#[tokio::test(start_paused = true)]
async fn a_207_says_what_became_of_each() {
    let event = |place| member(&permit(7), place).event;
    let body = format!(
        r#"{{"results":[{{"id":"{}","status":503,"error":"busy"}},{{"id":"{}","status":410}}]}}"#,
        event(0),
        event(2)
    );
    let (_, outcomes) = sent(3, says(207, body)).await;
    let kinds: Vec<_> = outcomes.iter().map(|one| one.kind).collect();
    let failed = OutcomeKind::Failed;
    assert_eq!(kinds, [failed, OutcomeKind::Succeeded, failed]);
    assert_eq!(outcomes[0].speaks, Speaks::ForParts { taken: true });
    assert_eq!(outcomes[2].speaks, Speaks::Apart);
    assert!(matches!(outcomes[0].next, NextTry::RetryAfter(_)));
    let error = outcomes[0].error.as_deref();
    assert_eq!(error, Some("the receiver answered 503 for it: busy"));
    assert_eq!(outcomes[2].next, NextTry::DeadLetter, "its own, and final");
    assert_eq!(outcomes[2].status, Some(410));
}

#[tokio::test(start_paused = true)]
async fn a_207_that_says_nothing_is_a_failed_exchange() {
    let (_, outcomes) = sent(3, says(207, "ok".to_owned())).await;
    for outcome in &outcomes {
        assert_eq!((outcome.kind, outcome.status), (OutcomeKind::Failed, None));
        assert!(matches!(outcome.next, NextTry::RetryAfter(_)));
        let error = outcome.error.as_deref().unwrap();
        assert!(error.starts_with("exchange failed"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_of_a_long_answer_is_kept_than_of_others() {
    let (_, outcomes) = sent(2, says(200, "x".repeat(60_000))).await;
    assert_eq!(outcomes[0].response_body.len(), STORED_BODY_BYTES);
}

/// Which is said by its length.
#[tokio::test(start_paused = true)]
async fn what_a_207_too_long_does_not_say_is_tried_again() {
    let event = |place| member(&permit(7), place).event;
    let begins = format!(
        r#"{{"results":[{{"id":"{}","status":200}},{{"id":"{}","status":422}},"#,
        event(0),
        event(1)
    );
    let rest = r#"{"id":"a","status":200,"error":""#;
    let body = format!("{begins}{rest}{}", "x".repeat(BATCH_BODY_BYTES));
    let (_, outcomes) = sent(3, says(207, body[..BATCH_BODY_BYTES].to_owned())).await;
    let kinds: Vec<_> = outcomes.iter().map(|one| one.kind).collect();
    let failed = OutcomeKind::Failed;
    assert_eq!(kinds, [OutcomeKind::Succeeded, failed, failed]);
    assert_eq!(outcomes[1].next, NextTry::DeadLetter);
    assert!(matches!(outcomes[2].next, NextTry::RetryAfter(_)));
    assert_eq!(outcomes[0].speaks, Speaks::ForParts { taken: true });
}

/// The bound holds for the first byte, and composing a large batch takes its time.
#[tokio::test(start_paused = true)]
async fn a_batch_that_took_too_long_to_compose_is_not_sent() {
    let world = World::new();
    world.store.batches.store(2, Ordering::SeqCst);
    *world.store.composing.lock().unwrap() = MAX_CLAIM_TO_SEND + ms(1);
    let _worker = world.worker().await;
    world.queue.delivers(&[permit(7)]);
    pass(ms(1)).await;
    assert_eq!(world.journal.sent(), []);
    let recorded = world.journal.recorded();
    let outcomes: Vec<_> = recorded.iter().flat_map(|(_, of_one)| of_one).collect();
    let said: Vec<_> = outcomes.iter().map(|one| (one.kind, one.next)).collect();
    assert_eq!(said, [(OutcomeKind::NotSent, NextTry::Again); 2]);
}

/// Whatever the places are. Who waits for too long is handed back, and nothing is
/// claimed that is not sent.
#[tokio::test(start_paused = true)]
async fn no_more_batches_are_in_flight_than_there_is_room_for() {
    // By their envelopes and what may be answered: half a megabyte each.
    const EACH: usize = 500;
    const PERMITS: i64 = 400;
    let world = World::new();
    world.store.batches.store(EACH, Ordering::SeqCst);
    let options = WorkerOptions {
        places: 2_000,
        ..WorkerOptions::default()
    };
    let _worker = world.worker_with(options).await;
    world.sender.send.takes(Duration::from_secs(9));
    let permits: Vec<_> = (1..=PERMITS).map(|id| permit(id * 1_000)).collect();
    for group in permits.chunks(16) {
        world.queue.delivers(group);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let claims = world.journal.pick(|event| match event {
        Event::ClaimBatches(_, permits) => Some(permits.len()),
        _ => None,
    });
    let claimed: usize = claims.iter().sum();
    assert!((200..300).contains(&claimed), "{claimed} of them");
    let sent = world.journal.pick(|event| match event {
        Event::Send(request) => Some(request),
        _ => None,
    });
    assert_eq!(sent.len(), claimed);
    let released = world.journal.pick(|event| match event {
        Event::Release(permits) => Some(permits.len()),
        _ => None,
    });
    assert_eq!(released.iter().sum::<usize>() + claimed, permits.len());
    // Nobody knows before the first how long they take.
    assert!(
        claims[0] <= 2 && claims.iter().max() == Some(&16),
        "{claims:?}"
    );
}
