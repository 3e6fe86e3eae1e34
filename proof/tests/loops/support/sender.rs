//! A sender that sends nothing.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::ids::{AttemptId, DestinationId};
use domain::response_headers::ResponseHeaders;
use domain::signals::RawSignals;
use engine::ports::{FirstByte, Prepared, Request, Response, SendError, Sender, Target};
use tokio::time::Instant;

use super::script::Script;
use super::{Event, Journal, ms};

/// Counts what is under way.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    most: AtomicUsize,
}

pub(crate) struct FakeSender {
    journal: Arc<Journal>,
    gauge: Arc<Gauge>,
    pub(crate) prepare: Script<Target, Result<(), SendError>>,
    /// 200, unless the test answers otherwise.
    pub(crate) send: Arc<Script<Request, Result<Response, SendError>>>,
    hangs_from: Arc<AtomicI64>,
    held_up: Arc<Mutex<Duration>>,
    leave_by: Arc<Mutex<Option<Instant>>>,
    unreached: Mutex<Option<DestinationId>>,
}

impl FakeSender {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            gauge: Arc::default(),
            prepare: Script::new(|_| Ok(())),
            send: Arc::new(Script::new(|_| Ok(answer(200)))),
            hangs_from: Arc::new(AtomicI64::new(i64::MAX)),
            held_up: Arc::default(),
            leave_by: Arc::default(),
            unreached: Mutex::default(),
        }
    }

    /// Dials to this destination never end.
    pub(crate) fn never_reaches(&self, destination: DestinationId) {
        *self.unreached.lock().unwrap() = Some(destination);
    }

    /// Requests are held up for so long from now on, before anything of them leaves.
    pub(crate) fn holds_up(&self, time: Duration) {
        *self.held_up.lock().unwrap() = time;
    }

    /// By when the last request had to leave.
    pub(crate) fn leave_by(&self) -> Option<Instant> {
        *self.leave_by.lock().unwrap()
    }

    /// Attempts from this one on are never answered.
    pub(crate) fn hangs_from(&self, attempt: AttemptId) {
        self.hangs_from.store(attempt.0, Ordering::SeqCst);
    }

    /// The most requests that were under way at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.gauge.most.load(Ordering::SeqCst)
    }

    /// The requests that are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.gauge.now.load(Ordering::SeqCst)
    }
}

/// A response with this status.
pub(crate) fn answer(status: u16) -> Response {
    Response {
        status,
        signals: RawSignals::default(),
        headers: ResponseHeaders::kept((status, b"thanks"), [("server", b"fake".as_slice())]),
        body: Bytes::from_static(b"thanks"),
        elapsed: ms(1),
    }
}

#[async_trait]
impl Sender for FakeSender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        self.journal.note(Event::Prepare(target.destination));
        let is_reached = *self.unreached.lock().unwrap() != Some(target.destination);
        if !is_reached {
            std::future::pending::<()>().await;
        }
        self.prepare.ask(target.clone()).await?;
        Ok(Box::new(Ready {
            journal: Arc::clone(&self.journal),
            gauge: Arc::clone(&self.gauge),
            send: Arc::clone(&self.send),
            hangs_from: Arc::clone(&self.hangs_from),
            held_up: *self.held_up.lock().unwrap(),
            leave_by: Arc::clone(&self.leave_by),
        }))
    }
}

struct Ready {
    journal: Arc<Journal>,
    gauge: Arc<Gauge>,
    send: Arc<Script<Request, Result<Response, SendError>>>,
    hangs_from: Arc<AtomicI64>,
    held_up: Duration,
    leave_by: Arc<Mutex<Option<Instant>>>,
}

#[async_trait]
impl Prepared for Ready {
    async fn send(
        self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError> {
        *self.leave_by.lock().unwrap() = first_byte.leave_by();
        if !self.held_up.is_zero() {
            tokio::time::sleep(self.held_up).await;
        }
        first_byte.leaves();
        self.journal.note(Event::Send(request.clone()));
        let now = self.gauge.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.gauge.most.fetch_max(now, Ordering::SeqCst);
        let _under_way = UnderWay(Arc::clone(&self.gauge));
        if request.attempt.0 >= self.hangs_from.load(Ordering::SeqCst) {
            tokio::time::sleep(request.timeout).await;
            return Err(SendError::TimedOut(request.timeout));
        }
        self.send.ask(request).await
    }
}

/// Until it is dropped.
struct UnderWay(Arc<Gauge>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}
