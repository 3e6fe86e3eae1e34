//! What the model of the sender does, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::ids::{AttemptId, DestinationId, Epoch, EventId};
use engine::ports::{FirstByte, MAX_REQUEST_TIMEOUT, Request, Response, SendError, Sender, Target};
use simulation::model::{Connecting, ModelSender, Reaction, Receivers};
use tokio::time::Instant;
use uuid::Uuid;

const TIMEOUT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// One receiver that does the same every time.
#[derive(Clone, Copy)]
struct Steady(Connecting, Reaction);

impl Receivers for Steady {
    fn connect(&mut self, _: &Target) -> Connecting {
        self.0
    }

    fn react(&mut self, _: DestinationId, _: &Request) -> Reaction {
        self.1
    }
}

const DESTINATION: DestinationId = DestinationId(Uuid::from_u128(0xd));

fn request(attempt: i64) -> Request {
    Request {
        attempt: AttemptId(attempt),
        event: EventId(Uuid::from_u128(0xe)),
        batch: None,
        try_number: 1,
        sent_at_seconds: 0,
        content_type: "text/plain".to_owned(),
        payload: Bytes::new(),
        signature: None,
        token: None,
        headers: Arc::default(),
        timeout: TIMEOUT,
        trace: None,
    }
}

/// What one request meets, and how long it took from dialling on.
async fn exchange(sender: &ModelSender) -> (Result<Response, SendError>, Duration) {
    let began = Instant::now();
    let target = Target {
        destination: DESTINATION,
        epoch: Epoch(0),
        url: "https://receiver.example/".to_owned(),
        timeout: MAX_REQUEST_TIMEOUT,
        batches: false,
        secrets: Vec::new(),
        pass_traceparent: false,
        names_origin: false,
        identity: None,
    };
    let answer = match sender.prepare(&target).await {
        Ok(prepared) => prepared.send(request(7), FirstByte::default()).await,
        Err(error) => Err(error),
    };
    (answer, began.elapsed())
}

async fn meet(connecting: Connecting, reaction: Reaction) -> (Result<Response, SendError>, u64) {
    let sender = ModelSender::new(Steady(connecting, reaction));
    let (answer, took) = exchange(&sender).await;
    (answer, took.as_secs())
}

#[tokio::test(start_paused = true)]
async fn receivers_do_as_they_are_told() {
    let ready = Connecting::Ready(SECOND);
    let slow_down = Reaction::Answers {
        after: 2 * SECOND,
        status: 429,
        retry_after: Some(30),
    };
    let (answer, took) = meet(ready, slow_down).await;
    let answer = answer.unwrap();
    assert_eq!((answer.status, took), (429, 3));
    assert_eq!(answer.signals.retry_after.as_deref(), Some("30"));
    assert_eq!(answer.elapsed, 2 * SECOND);

    let timed_out = |timeout| Err(SendError::TimedOut(timeout));
    assert_eq!(meet(ready, Reaction::Hangs).await, (timed_out(TIMEOUT), 11));
    let too_slow = Reaction::answers(200, 11 * SECOND);
    assert_eq!(meet(ready, too_slow).await, (timed_out(TIMEOUT), 11));
    let never = (timed_out(MAX_REQUEST_TIMEOUT), 30);
    assert_eq!(meet(Connecting::Hangs, slow_down).await, never);

    let (broken, took) = meet(ready, Reaction::Breaks(SECOND)).await;
    assert!(matches!(broken, Err(SendError::Exchange(_))) && took == 2);
    let (failed, took) = meet(Connecting::Fails(SECOND), slow_down).await;
    assert!(matches!(failed, Err(SendError::Connect(_))) && took == 1);
}

#[tokio::test(start_paused = true)]
async fn the_log_has_what_began_though_the_sender_is_gone() {
    let ready = Connecting::Ready(SECOND);
    let receivers = Steady(ready, Reaction::answers(200, 5 * SECOND));
    let sender = ModelSender::new(receivers);
    let began = Instant::now();
    {
        let exchange = exchange(&sender);
        assert!(tokio::time::timeout(3 * SECOND, exchange).await.is_err());
    }
    assert_eq!(sender.under_way(DESTINATION), 0);
    let log = sender.take_received();
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].at, began + SECOND);
    assert_eq!((log[0].attempt, log[0].try_number), (AttemptId(7), 1));
    assert_eq!(log[0].reaction, receivers.1);
    assert_eq!(sender.take_received(), []);
    let (answer, during) = tokio::join!(exchange(&sender), async {
        tokio::time::sleep(3 * SECOND).await;
        sender.under_way(DESTINATION)
    });
    assert_eq!((answer.0.unwrap().status, during), (200, 1));
}
