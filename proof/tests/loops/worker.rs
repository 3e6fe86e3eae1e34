//! The worker on a good day, and what becomes of every kind of answer.

use std::time::Duration;

use domain::admission::MAX_CLAIM_TO_SEND;
use domain::attempt::OutcomeKind;
use domain::ids::{AttemptId, Epoch};
use domain::permit::Permit;
use engine::ports::{ClaimAnswer, NextTry, SendError, Settlement};
use tokio::time::Instant;

use crate::support::{
    Counted, Event, World, answer, destination, in_slot, ms, pass, permit, permit_of, settle,
    started, store_away,
};

#[tokio::test(start_paused = true)]
async fn a_permit_is_claimed_sent_and_recorded() {
    let world = World::new();
    let _worker = world.worker().await;
    let tag = world.queue.delivers(&[permit(7)]);
    settle().await;
    let steps = world.journal.pick(|event| match event {
        Event::Subscribe(prefetch) => Some(format!("subscribe {prefetch}")),
        Event::Targets(_) => Some("targets".to_owned()),
        Event::Prepare(_) => Some("prepare".to_owned()),
        Event::Claim(..) => Some("claim".to_owned()),
        Event::Send(_) => Some("send".to_owned()),
        Event::Record(..) => Some("record".to_owned()),
        _ => None,
    });
    // 32 places are two full messages.
    let expected = [
        "subscribe 2",
        "targets",
        "prepare",
        "claim",
        "send",
        "record",
    ];
    assert_eq!(steps, expected);
    assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
    let outcome = world.journal.only_outcome();
    assert_eq!(outcome.kind, OutcomeKind::Succeeded);
    assert_eq!((outcome.status, outcome.error), (Some(200), None));
    assert_eq!(
        (outcome.attempt, outcome.number),
        (AttemptId(7), permit(7).number)
    );
    assert_eq!(outcome.next, NextTry::None);
    assert_eq!(outcome.response_body, "thanks");
    assert_eq!(outcome.response_headers.as_text(), Some("server: fake\n"));
}

#[tokio::test(start_paused = true)]
async fn a_request_says_what_the_claim_said() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.prepare.takes(ms(400));
    world.queue.delivers(&[permit(7)]);
    pass(ms(500)).await;
    let requests = world.journal.pick(|event| match event {
        Event::Send(request) => Some(request),
        _ => None,
    });
    let request = &requests[0];
    assert_eq!(request.try_number, 1);
    assert_eq!(request.sent_at_seconds, 1_800_000_000);
    assert_eq!(request.payload, "{}");
    assert_eq!(
        request.timeout,
        ms(15_000),
        "dialling has a bound of its own"
    );
}

/// And never more than the worker's.
#[tokio::test(start_paused = true)]
async fn a_destinations_own_timeout_is_its_requests() {
    for (own, its) in [(200, ms(200)), (20_000, ms(15_000))] {
        let world = World::new();
        let _worker = world.worker().await;
        world.store.claim.answers(move |_| {
            let mut claimed = started(1);
            if let ClaimAnswer::Started(start) = &mut claimed {
                start.retry.timeout_ms = Some(own);
            }
            Some(Ok(claimed))
        });
        world.queue.delivers(&[permit(7)]);
        settle().await;
        let timeouts = world.journal.pick(|event| match event {
            Event::Send(request) => Some(request.timeout),
            _ => None,
        });
        assert_eq!(timeouts, [its]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_before_its_slot_by_the_stores_clock() {
    let world = World::new();
    world.store.steps_by(ms(500));
    let _worker = world.worker().await;
    world.queue.delivers(&[in_slot(permit(7), ms(800))]);
    pass(ms(299)).await;
    assert_eq!(world.journal.claims().len(), 0);
    pass(ms(2)).await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
}

/// Before the first sample of the store's clock, 100 ms would be all that a
/// first connection gets.
#[tokio::test(start_paused = true)]
async fn the_very_first_permit_has_time_to_dial() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.prepare.takes(ms(900));
    world.queue.delivers(&[permit(7)]);
    pass(ms(1_000)).await;
    assert_eq!(world.journal.only_outcome().kind, OutcomeKind::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_cannot_be_made_is_a_failed_try() {
    let world = World::new();
    let _worker = world.worker().await;
    let refused = |_| Err(SendError::Connect("refused".to_owned()));
    world.sender.prepare.answers(refused);
    world.queue.delivers(&[permit(7)]);
    settle().await;
    let outcome = world.journal.only_outcome();
    assert_eq!(world.journal.claims().len(), 1, "it costs a start");
    assert_eq!(world.journal.sent(), []);
    assert_eq!((outcome.kind, outcome.status), (OutcomeKind::Failed, None));
    assert_eq!(outcome.error.as_deref(), Some("connect failed: refused"));
    let NextTry::RetryAfter(delay) = outcome.next else {
        panic!("{:?}", outcome.next);
    };
    assert!(delay <= Duration::from_secs(5));
}

/// That is our impatience: the receiver may have been dialled a moment ago.
#[tokio::test(start_paused = true)]
async fn a_permit_that_gets_no_connection_in_time_goes_back_and_nothing_has_failed() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.prepare.takes(Duration::from_secs(60));
    world.queue.delivers(&[permit(7)]);
    pass(ms(1_950)).await;
    assert_eq!(world.journal.claims(), []);
    assert_eq!(world.journal.recorded(), []);
    assert_eq!(world.journal.released(), [permit(7)]);
}

/// A proxy that is away says nothing of who is behind it.
#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_reached_the_permit_goes_back_and_nothing_has_failed() {
    let world = World::new();
    let _worker = world.worker().await;
    let away = |_| Err(SendError::NoWay("the proxy is away".to_owned()));
    world.sender.prepare.answers(away);
    world.queue.delivers(&[permit(7)]);
    pass(ms(1_000)).await;
    assert_eq!(
        world.journal.released(),
        [],
        "it is not admitted again at once"
    );
    pass(ms(950)).await;
    let claimed = world.journal.pick(|event| match event {
        Event::Claim(..) => Some(()),
        _ => None,
    });
    assert_eq!(claimed, [], "nothing is started");
    assert_eq!(world.journal.recorded(), []);
    assert_eq!(world.journal.released(), [permit(7)]);
}

/// What stands behind others on a connection may come to it too late.
#[tokio::test(start_paused = true)]
async fn a_request_is_told_by_when_it_has_to_leave() {
    let world = World::new();
    let _worker = world.worker().await;
    world.queue.delivers(&[permit(7)]);
    settle().await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
    let leave_by = world.sender.leave_by().unwrap();
    let latest = Instant::now() + MAX_CLAIM_TO_SEND;
    assert!(leave_by <= latest, "no later than it may be dated");
}

/// Its first byte has left, so it is a start; and no try, and no failure of the receiver.
#[tokio::test(start_paused = true)]
async fn what_a_receiver_has_not_looked_at_is_not_sent() {
    let world = World::new();
    let _worker = world.worker().await;
    let refused = |_| {
        Err(SendError::Unread {
            why: "the stream was refused".to_owned(),
            may_arrive: true,
        })
    };
    world.sender.send.answers(refused);
    world.queue.delivers(&[permit(7)]);
    settle().await;
    assert_eq!(world.journal.sent(), [AttemptId(7)]);
    let outcome = world.journal.only_outcome();
    assert_eq!((outcome.kind, outcome.status), (OutcomeKind::NotSent, None));
    assert_eq!(outcome.error.as_deref(), Some("the stream was refused"));
    assert_eq!(outcome.next, NextTry::Again);
    assert!(outcome.may_arrive);
}

#[tokio::test(start_paused = true)]
async fn statuses_decide_what_follows() {
    for (status, kind) in [
        (204, OutcomeKind::Succeeded),
        (301, OutcomeKind::Failed),
        (404, OutcomeKind::Failed),
        (503, OutcomeKind::Failed),
    ] {
        let world = World::new();
        let _worker = world.worker().await;
        world.sender.send.answers(move |_| Ok(answer(status)));
        world.queue.delivers(&[permit(7)]);
        settle().await;
        let outcome = world.journal.only_outcome();
        assert_eq!((outcome.kind, outcome.status), (kind, Some(status)));
        let retried = matches!(outcome.next, NextTry::RetryAfter(_));
        assert_eq!(retried, kind == OutcomeKind::Failed);
    }
}

/// The worker asks for its counters once, each with its label.
#[tokio::test(start_paused = true)]
async fn answers_are_counted_by_their_class_and_attempts_by_their_outcome() {
    let (counted, world) = (Counted::default(), World::new());
    let _counting = counted.begin();
    let _worker = world.worker().await;
    for (attempt, status) in (7..).zip([200, 204, 301, 404, 429, 503, 999]) {
        world.sender.send.answers(move |_| Ok(answer(status)));
        world.queue.delivers(&[permit(attempt)]);
        settle().await;
    }
    let gone = |_| Err(SendError::Exchange("gone".to_owned()));
    world.sender.send.answers(gone);
    world.queue.delivers(&[permit(20)]);
    settle().await;
    let said = |name: &str| {
        let counts = counted.of(name).into_iter();
        let counts = counts.map(|(label, count)| format!("{label} {count}"));
        counts.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(
        said("paceline_responses_total"),
        "2xx 2, 3xx 1, 429 1, 4xx 1, 5xx 1, none 1, other 1"
    );
    assert_eq!(
        said("paceline_attempts_total"),
        "failed 6, not_sent 0, succeeded 2"
    );
    assert_eq!(said("paceline_starts_total"), " 8");
}

#[tokio::test(start_paused = true)]
async fn what_the_receiver_asks_for_goes_with_the_outcome() {
    for (status, wait) in [
        (429, Some(Duration::from_secs(30))),
        (503, Some(Duration::from_secs(30))),
        (200, None),
    ] {
        let world = World::new();
        let _worker = world.worker().await;
        world.sender.send.answers(move |_| {
            let mut response = answer(status);
            response.signals.retry_after = Some("30".to_owned());
            Ok(response)
        });
        world.queue.delivers(&[permit(7)]);
        settle().await;
        assert_eq!(world.journal.only_outcome().signal.wait, wait, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_wants_no_more_says_so_with_the_outcome() {
    for status in [200, 503] {
        let world = World::new();
        let _worker = world.worker().await;
        world.sender.send.answers(move |_| {
            let mut response = answer(status);
            response.signals.delivery = Some("disable".to_owned());
            Ok(response)
        });
        world.queue.delivers(&[permit(7)]);
        settle().await;
        assert!(world.journal.only_outcome().signal.disable, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_eighth_failure_is_a_dead_letter() {
    let world = World::new();
    let _worker = world.worker().await;
    world.sender.send.answers(|_| Ok(answer(500)));
    world.store.claim.answers(|_| Some(Ok(started(8))));
    world.queue.delivers(&[permit(7)]);
    settle().await;
    assert_eq!(world.journal.only_outcome().next, NextTry::DeadLetter);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_sender_is_a_failed_try() {
    for in_prepare in [true, false] {
        let world = World::new();
        let worker = world.worker().await;
        if in_prepare {
            let poisoned = |target: engine::ports::Target| {
                assert_ne!(target.destination, destination(2), "a bug");
                Ok(())
            };
            world.sender.prepare.answers(poisoned);
        } else {
            let poisoned = |request: engine::ports::Request| {
                assert_ne!(request.attempt, AttemptId(66), "a bug");
                Ok(answer(200))
            };
            world.sender.send.answers(poisoned);
        }
        let poison = world.queue.delivers(&[permit_of(2, 66)]);
        settle().await;
        let outcome = world.journal.only_outcome();
        assert_eq!(outcome.kind, OutcomeKind::Failed);
        assert!(matches!(outcome.next, NextTry::RetryAfter(_)));
        let next = world.queue.delivers(&[permit(7)]);
        settle().await;
        assert!(!worker.is_finished());
        let done = [(poison, Settlement::Done), (next, Settlement::Done)];
        assert_eq!(world.journal.settled(), done);
        assert_eq!(world.journal.recorded().len(), 2);
    }
}

fn epochs(world: &World) -> usize {
    let reads = world.journal.times(|e| matches!(e, Event::Targets(_)));
    reads.len()
}

#[tokio::test(start_paused = true)]
async fn targets_are_read_once_for_each_epoch() {
    let world = World::new();
    let _worker = world.worker().await;
    for number in 0..3 {
        world.queue.delivers(&[permit(number)]);
        settle().await;
    }
    assert_eq!(epochs(&world), 1);
    world.store.targets.answers(|()| Ok(Epoch(2)));
    let renewed = Permit {
        epoch: Epoch(2),
        ..permit(3)
    };
    world.queue.delivers(&[renewed]);
    settle().await;
    assert_eq!(epochs(&world), 2);
    assert_eq!(world.journal.sent().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_permit_without_a_target_is_left_to_its_deadline() {
    for stale in [true, false] {
        let world = World::new();
        let _worker = world.worker().await;
        let answer = move |()| {
            if stale {
                Ok(Epoch(0))
            } else {
                Err(store_away())
            }
        };
        world.store.targets.answers(answer);
        let tag = world.queue.delivers(&[permit(7)]);
        settle().await;
        assert_eq!(world.journal.settled(), [(tag, Settlement::Done)]);
        assert_eq!(world.journal.claims().len(), 0);
        assert_eq!(world.journal.released(), []);
        // The error is not remembered.
        world.store.targets.answers(|()| Ok(Epoch(1)));
        world.queue.delivers(&[permit(8)]);
        settle().await;
        assert_eq!(world.journal.sent(), [AttemptId(8)]);
    }
}
