//! The model of the sender: receivers that do what the caller says, and a log
//! of every request for the judge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use domain::ids::{AttemptId, DestinationId, EventId};
use domain::response_headers::ResponseHeaders;
use domain::signals::RawSignals;
use engine::ports::{FirstByte, Prepared, Request, Response, SendError, Sender, Target};
use tokio::time::{Instant, sleep};

/// How a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connecting {
    /// It is there after so long.
    Ready(Duration),
    /// It fails after so long.
    Fails(Duration),
    /// Nothing answers until the target's timeout.
    Hangs,
}

/// What a receiver does with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// It answers.
    Answers {
        /// From the first byte of the request to the last of the response.
        after: Duration,
        /// The HTTP status.
        status: u16,
        /// `Retry-After`, in seconds.
        retry_after: Option<u32>,
    },
    /// It breaks the connection after so long.
    Breaks(Duration),
    /// It never answers.
    Hangs,
}

impl Reaction {
    /// Answers without `Retry-After`.
    #[must_use]
    pub const fn answers(status: u16, after: Duration) -> Self {
        Self::Answers {
            after,
            status,
            retry_after: None,
        }
    }
}

/// All receivers there are. They may change their mind with every call.
pub trait Receivers: Send {
    /// Somebody connects.
    fn connect(&mut self, target: &Target) -> Connecting;

    /// Somebody's request begins.
    fn react(&mut self, destination: DestinationId, request: &Request) -> Reaction;

    /// What the answer to the request that began last says beside its status. A
    /// reaction's own `Retry-After` goes before.
    fn said(&mut self) -> (RawSignals, Bytes) {
        Default::default()
    }
}

/// One request, as its receiver saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// When its first byte was sent, in virtual time.
    pub at: Instant,
    /// At whom.
    pub destination: DestinationId,
    /// Which event.
    pub event: EventId,
    /// Which attempt.
    pub attempt: AttemptId,
    /// Which try.
    pub try_number: u32,
    /// What the receiver does with it, though its sender may be gone by then.
    pub reaction: Reaction,
}

/// A sender without a network.
pub struct ModelSender {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    receivers: Box<dyn Receivers>,
    log: Vec<Received>,
    under_way: BTreeMap<DestinationId, u32>,
}

impl ModelSender {
    /// A sender to these receivers.
    #[must_use]
    pub fn new(receivers: impl Receivers + 'static) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                receivers: Box::new(receivers),
                log: Vec::new(),
                under_way: BTreeMap::new(),
            })),
        }
    }

    /// The requests that began since the last call, in order. They have to be
    /// taken regularly.
    #[must_use]
    pub fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut lock(&self.shared).log)
    }

    /// How many requests are under way at a destination.
    #[must_use]
    pub fn under_way(&self, destination: DestinationId) -> u32 {
        let shared = lock(&self.shared);
        shared.under_way.get(&destination).copied().unwrap_or(0)
    }
}

impl std::fmt::Debug for ModelSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSender").finish_non_exhaustive()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Sender for ModelSender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        let connecting = lock(&self.shared).receivers.connect(target);
        let timed_out = Err(SendError::TimedOut(target.timeout));
        let (after, result) = match connecting {
            Connecting::Ready(after) => (after, Ok(())),
            Connecting::Fails(after) => (after, Err(SendError::Connect("nobody there".into()))),
            Connecting::Hangs => (Duration::MAX, timed_out.clone()),
        };
        let result = match after > target.timeout {
            true => timed_out,
            false => result,
        };
        pause(after.min(target.timeout)).await;
        result.map(|()| {
            Box::new(Connection {
                shared: Arc::clone(&self.shared),
                destination: target.destination,
            }) as Box<dyn Prepared>
        })
    }
}

/// Sleeps, but for nothing at all does not even yield.
async fn pause(duration: Duration) {
    if !duration.is_zero() {
        sleep(duration).await;
    }
}

struct Connection {
    shared: Arc<Mutex<Shared>>,
    destination: DestinationId,
}

impl Connection {
    /// Notes that the request has begun; what its receiver does.
    fn begin(&self, request: &Request) -> (Reaction, RawSignals, Bytes) {
        let mut shared = lock(&self.shared);
        let reaction = shared.receivers.react(self.destination, request);
        let (signals, body) = shared.receivers.said();
        shared.log.push(Received {
            at: Instant::now(),
            destination: self.destination,
            event: request.event,
            attempt: request.attempt,
            try_number: request.try_number,
            reaction,
        });
        *shared.under_way.entry(self.destination).or_default() += 1;
        (reaction, signals, body)
    }
}

#[async_trait]
impl Prepared for Connection {
    async fn send(
        self: Box<Self>,
        request: Request,
        first_byte: FirstByte,
    ) -> Result<Response, SendError> {
        first_byte.leaves();
        let (reaction, signals, body) = self.begin(&request);
        let _under_way = UnderWay(&self);
        let (after, result) = match reaction {
            Reaction::Answers {
                after,
                status,
                retry_after,
            } => {
                let response = Response {
                    status,
                    signals: RawSignals {
                        retry_after: (retry_after.map(|seconds| seconds.to_string()))
                            .or(signals.retry_after),
                        ..signals
                    },
                    headers: ResponseHeaders::default(),
                    body,
                    elapsed: after,
                };
                (after, Ok(response))
            }
            Reaction::Breaks(after) => (after, Err(SendError::Exchange("broken".into()))),
            Reaction::Hangs => (Duration::MAX, Err(SendError::TimedOut(request.timeout))),
        };
        if after > request.timeout {
            pause(request.timeout).await;
            return Err(SendError::TimedOut(request.timeout));
        }
        pause(after).await;
        result
    }
}

/// Until it is dropped.
struct UnderWay<'a>(&'a Connection);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut shared = lock(&self.0.shared);
        if let Some(under_way) = shared.under_way.get_mut(&self.0.destination) {
            *under_way -= 1;
        }
    }
}
