//! A receiver of webhooks that records what arrives: the other end of the demo
//! and of load tests, and the judge of both.
//!
//! One port serves any number of destinations, `/r/0`, `/r/1` and so on, so
//! that thousands of them cost one listener. It promises that an arrival is
//! timed before anything is waited for, that recording costs one short lock,
//! and that its memory is bounded: beyond its capacity arrivals are counted
//! and no longer kept. It verifies nothing and keeps no payload; an observer
//! of the caller's may.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

/// How a destination answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// With this status, after having the whole request for this long.
    Answer {
        /// The HTTP status.
        status: StatusCode,
        /// Zero for at once.
        after: Duration,
    },
    /// Takes the request and never answers it.
    NeverAnswer,
    /// 204 to so many requests in each second since its start, and 429 to any
    /// other, without saying for how long.
    TakeAtMost {
        /// In each second.
        per_second: u32,
    },
}

impl Behaviour {
    /// 204 at once.
    pub const ACCEPT: Self = Self::Answer {
        status: StatusCode::NO_CONTENT,
        after: Duration::ZERO,
    };
}

/// One request that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The number in the path.
    pub destination: u32,
    /// `webhook-id`, if there was one and it is one of ours.
    pub event: Option<Uuid>,
    /// When its head had been read, since the receiver's start.
    pub at_us: u64,
    /// How long its body was.
    pub body_bytes: u64,
}

/// One request, whole, as an observer sees it.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The number in the path.
    pub destination: u32,
    /// When its head had been read, in this process's time.
    pub at: Instant,
    /// All of them.
    pub headers: &'a HeaderMap,
    /// Every byte of it.
    pub body: &'a [u8],
}

/// What an observer wants to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The HTTP status.
    pub status: StatusCode,
    /// `Retry-After`, as it stands.
    pub retry_after: Option<HeaderValue>,
    /// After the head.
    pub body: Bytes,
}

impl From<StatusCode> for Told {
    fn from(status: StatusCode) -> Self {
        Self {
            status,
            retry_after: None,
            body: Bytes::new(),
        }
    }
}

impl IntoResponse for Told {
    fn into_response(self) -> Response {
        let retry_after = self.retry_after.map(|value| (RETRY_AFTER, value));
        (self.status, AppendHeaders(retry_after), self.body).into_response()
    }
}

/// Is shown every whole request before it is answered, and may say what the
/// answer is; `None` leaves it to the destination's behaviour.
pub type Observer = dyn Fn(Observed<'_>) -> Option<Told> + Send + Sync;

/// Everything that arrived, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The first arrivals, up to the capacity, in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// How many arrived, kept or not.
    pub total: u64,
}

/// Connections that wait to be accepted, as most servers have it. A sender that dials
/// more at once finds a queue that is full: the fault is its own, not the receiver's.
const ACCEPT_QUEUE: u32 = 128;

/// A free port of the loopback.
///
/// # Errors
/// No port could be bound.
pub fn listen() -> io::Result<TcpListener> {
    listen_at(0)
}

/// This port of the loopback; 0 for a free one.
///
/// # Errors
/// It could not be bound.
pub fn listen_at(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // One that was chosen, and has just been left, is free.
    socket.set_reuseaddr(port != 0)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(ACCEPT_QUEUE)
}

/// A running receiver; it stops when it is dropped, or in order by [`stop`].
///
/// [`stop`]: Receiver::stop
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    stopping: CancellationToken,
    served: JoinHandle<io::Result<()>>,
    _stop_on_drop: DropGuard,
}

struct Shared {
    started_at: Instant,
    capacity: usize,
    default: Behaviour,
    observer: Option<Box<Observer>>,
    exceptions: RwLock<HashMap<u32, Behaviour>>,
    kept: Mutex<Vec<Arrival>>,
    total: watch::Sender<u64>,
    /// By [`Behaviour::TakeAtMost`]: the last second of each destination, and
    /// how many requests it has had.
    seconds: Mutex<HashMap<u32, (u64, u32)>>,
    taken: AtomicU64,
    stopping: CancellationToken,
}

impl Receiver {
    /// Listens on a free port of the loopback and keeps at most `capacity`
    /// arrivals (32 bytes each, and more as they come in).
    ///
    /// # Errors
    /// No port could be bound.
    pub async fn start(default: Behaviour, capacity: usize) -> io::Result<Self> {
        Self::start_observed(default, capacity, None).await
    }

    /// The same, with an observer. Bodies are then read into memory: for
    /// senders that are ours.
    ///
    /// # Errors
    /// No port could be bound.
    pub async fn start_observed(
        default: Behaviour,
        capacity: usize,
        observer: Option<Box<Observer>>,
    ) -> io::Result<Self> {
        Self::serve(listen()?, default, capacity, observer).await
    }

    /// The same at a port that was chosen.
    ///
    /// # Errors
    /// The listener is of no use.
    pub async fn serve(
        listener: TcpListener,
        default: Behaviour,
        capacity: usize,
        observer: Option<Box<Observer>>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let stopping = CancellationToken::new();
        let shared = Arc::new(Shared {
            started_at: Instant::now(),
            capacity,
            default,
            observer,
            exceptions: RwLock::default(),
            kept: Mutex::default(),
            total: watch::Sender::new(0),
            seconds: Mutex::default(),
            taken: AtomicU64::new(0),
            stopping: stopping.clone(),
        });
        let router = Router::new()
            .route("/r/{destination}", post(receive))
            .with_state(Arc::clone(&shared));
        let listener = listener.tap_io(|stream| {
            // A delay here would be measured as the sender's.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "nodelay not set");
            }
        });
        let served = axum::serve(listener, router)
            .with_graceful_shutdown(stopping.clone().cancelled_owned());
        Ok(Self {
            address,
            shared,
            _stop_on_drop: stopping.clone().drop_guard(),
            stopping,
            served: tokio::spawn(served.into_future()),
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where a destination sends to.
    #[must_use]
    pub fn url(&self, destination: u32) -> String {
        format!("http://{}/r/{destination}", self.address)
    }

    /// Makes one destination behave differently, from its next request on.
    pub fn set_behaviour(&self, destination: u32, behaviour: Behaviour) {
        self.shared
            .exceptions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(destination, behaviour);
    }

    /// What arrivals are timed from.
    #[must_use]
    pub fn started_at(&self) -> Instant {
        self.shared.started_at
    }

    /// How many requests have arrived.
    #[must_use]
    pub fn total(&self) -> u64 {
        *self.shared.total.borrow()
    }

    /// How many requests were answered 204 by [`Behaviour::TakeAtMost`].
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// What has arrived.
    #[must_use]
    pub fn record(&self) -> Record {
        let kept = self.shared.kept.lock();
        let mut arrivals = kept.unwrap_or_else(PoisonError::into_inner).clone();
        // They are noted once their bodies are read, which may be out of turn.
        arrivals.sort_by_key(|arrival| arrival.at_us);
        Record {
            total: self.total().max(arrivals.len() as u64),
            arrivals,
        }
    }

    /// Waits until so many have arrived. Without a timeout: the caller knows
    /// how long is too long.
    pub async fn wait_for(&self, total: u64) {
        let mut changes = self.shared.total.subscribe();
        if changes.wait_for(|arrived| *arrived >= total).await.is_err() {
            pending::<()>().await; // not while `shared` holds the other end
        }
    }

    /// Stops listening, answers what is in hand (503 where an answer was not
    /// due yet) and returns the record.
    ///
    /// # Errors
    /// The listener had failed.
    pub async fn stop(mut self) -> io::Result<Record> {
        self.stopping.cancel();
        (&mut self.served).await.map_err(io::Error::other)??;
        Ok(self.record())
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    Path(destination): Path<u32>,
    request: Request,
) -> Told {
    let at = Instant::now();
    let (head, body) = request.into_parts();
    let event = head
        .headers
        .get("webhook-id")
        .and_then(|id| Uuid::try_parse_ascii(id.as_bytes()).ok());
    let mut told = None;
    let body_bytes = match &shared.observer {
        None => body_bytes(body).await,
        Some(observer) => body.collect().await.ok().map(|whole| {
            let whole = whole.to_bytes();
            told = observer(Observed {
                destination,
                at,
                headers: &head.headers,
                body: &whole,
            });
            whole.len() as u64
        }),
    };
    let Some(body_bytes) = body_bytes else {
        return StatusCode::BAD_REQUEST.into(); // the sender went away in the middle
    };
    let at_us = at.saturating_duration_since(shared.started_at).as_micros();
    shared.note(Arrival {
        destination,
        event,
        at_us: u64::try_from(at_us).unwrap_or(u64::MAX),
        body_bytes,
    });
    if let Some(told) = told {
        return told;
    }
    let status = tokio::select! {
        biased;
        status = shared.answer(destination, at) => status,
        () = shared.stopping.cancelled() => StatusCode::SERVICE_UNAVAILABLE,
    };
    status.into()
}

/// Counted piece by piece, for a payload is nothing that we need.
async fn body_bytes(mut body: Body) -> Option<u64> {
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        length += frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
    }
    Some(length)
}

impl Shared {
    async fn answer(&self, destination: u32, at: Instant) -> StatusCode {
        match self.behaviour(destination) {
            Behaviour::Answer { status, after } => {
                if !after.is_zero() {
                    sleep(after).await;
                }
                status
            }
            Behaviour::NeverAnswer => pending().await,
            Behaviour::TakeAtMost { per_second } => {
                let second = at.saturating_duration_since(self.started_at).as_secs();
                self.take_at_most(destination, second, per_second)
            }
        }
    }

    fn take_at_most(&self, destination: u32, second: u64, most: u32) -> StatusCode {
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = seconds.entry(destination).or_default();
        if *last < second {
            (*last, *count) = (second, 0);
        }
        *count += 1;
        if *count > most {
            return StatusCode::TOO_MANY_REQUESTS;
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        StatusCode::NO_CONTENT
    }

    fn note(&self, arrival: Arrival) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < self.capacity {
            kept.push(arrival);
        }
        drop(kept);
        self.total.send_modify(|total| *total += 1);
    }

    fn behaviour(&self, destination: u32) -> Behaviour {
        self.exceptions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&destination)
            .copied()
            .unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Sends a request by hand and returns the connection.
    async fn post(receiver: &Receiver, path: &str, event: Uuid) -> TcpStream {
        let mut stream = TcpStream::connect(receiver.address).await.unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nwebhook-id: {event}\r\n\
             connection: close\r\ncontent-length: 5\r\n\r\nhello"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    async fn status(mut stream: TcpStream) -> String {
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response.split(' ').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn beyond_so_many_in_a_second_it_answers_429() {
        let receiver = Receiver::start(Behaviour::ACCEPT, 10).await.unwrap();
        let take = |second| receiver.shared.take_at_most(7, second, 2).as_u16();
        assert_eq!([take(3), take(3), take(3), take(4)], [204, 204, 429, 204]);
        assert_eq!(receiver.taken(), 3);
    }

    #[tokio::test]
    async fn records_what_arrives() {
        let receiver = Receiver::start(Behaviour::ACCEPT, 2).await.unwrap();
        assert!(receiver.url(7).ends_with("/r/7"));
        for (destination, event) in [(0, 10), (7, 11), (0, 12)] {
            let path = format!("/r/{destination}");
            let stream = post(&receiver, &path, Uuid::from_u128(event)).await;
            assert_eq!(status(stream).await, "204");
        }
        assert_eq!(
            status(post(&receiver, "/r/x", Uuid::nil()).await).await,
            "400"
        );
        receiver.wait_for(3).await;
        let record = receiver.stop().await.unwrap();
        assert_eq!(record.total, 3);
        let kept: Vec<_> = record
            .arrivals
            .iter()
            .map(|arrival| (arrival.destination, arrival.event, arrival.body_bytes))
            .collect();
        let event = |number| Some(Uuid::from_u128(number));
        assert_eq!(
            kept,
            [(0, event(10), 5), (7, event(11), 5)],
            "no more than the capacity"
        );
        assert!(record.arrivals.is_sorted_by_key(|arrival| arrival.at_us));
    }

    #[tokio::test]
    async fn an_observer_may_ask_for_time_and_say_more() {
        let asks = |_: Observed<'_>| {
            Some(Told {
                status: StatusCode::TOO_MANY_REQUESTS,
                retry_after: Some(HeaderValue::from_static("7, or so")),
                body: Bytes::from_static(b"busy"),
            })
        };
        let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(asks)))
            .await
            .unwrap();
        let mut response = String::new();
        let mut stream = post(&receiver, "/r/0", Uuid::nil()).await;
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 429"), "{response}");
        assert!(response.contains("retry-after: 7, or so\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\nbusy"), "{response}");
    }

    #[tokio::test]
    async fn shows_whole_requests_to_an_observer_that_may_answer() {
        let (tell, mut told) = tokio::sync::mpsc::channel(4);
        let observer = move |seen: Observed<'_>| {
            let line = (seen.destination, seen.headers.len(), seen.body.to_vec());
            tell.try_send(line).unwrap();
            (seen.destination == 1).then_some(StatusCode::IM_A_TEAPOT.into())
        };
        let receiver = Receiver::start_observed(Behaviour::ACCEPT, 10, Some(Box::new(observer)))
            .await
            .unwrap();
        for (path, expected) in [("/r/0", "204"), ("/r/1", "418")] {
            let stream = post(&receiver, path, Uuid::nil()).await;
            assert_eq!(status(stream).await, expected);
        }
        for destination in [0, 1] {
            let seen = told.recv().await.unwrap();
            assert_eq!(seen, (destination, 4, b"hello".to_vec()));
        }
    }

    #[tokio::test]
    async fn behaves_as_told_and_stops_in_order() {
        let receiver = Receiver::start(Behaviour::NeverAnswer, 10).await.unwrap();
        let failing = Behaviour::Answer {
            status: StatusCode::BAD_GATEWAY,
            after: Duration::from_millis(1),
        };
        receiver.set_behaviour(1, failing);
        let unanswered = post(&receiver, "/r/0", Uuid::nil()).await;
        assert_eq!(
            status(post(&receiver, "/r/1", Uuid::nil()).await).await,
            "502"
        );
        receiver.wait_for(2).await;
        receiver.stop().await.unwrap();
        assert_eq!(status(unanswered).await, "503");
    }
}
