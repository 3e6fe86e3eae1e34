//! A receiver of webhooks that records what arrives: the other end of the demo
//! and of load tests, and the judge of both.
//!
//! One port serves any number of destinations, `/r/0`, `/r/1` and so on, so
//! that thousands of them cost one listener. It promises that an arrival is
//! timed before anything is waited for, that recording costs one short lock,
//! and that its memory is bounded: beyond its capacity arrivals are counted
//! and no longer kept. It verifies nothing and keeps no payload; an observer
//! of the caller's may.
//!
//! It has a thread of its own, whatever else the process does, and its clock is that
//! thread's: monotonic, and read where a request's head has just been read. A ticker
//! on the same thread notes when it stood still, for what lay in its sockets meanwhile
//! was read later than it came.

use std::collections::{BTreeSet, HashMap};
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
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
use domain::compliance::Stall;
use domain::time::Timestamp;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;
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

impl Arrival {
    /// When its head had been read, by the receiver's clock.
    #[must_use]
    pub fn read_at(&self) -> Timestamp {
        Timestamp::from_micros(i64::try_from(self.at_us).unwrap_or(i64::MAX))
    }
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

/// Is shown every whole request before it is answered, on a thread that may block, and
/// may say what the answer is; `None` leaves it to the destination's behaviour.
pub type Observer = dyn Fn(Observed<'_>) -> Option<Told> + Send + Sync;

/// Everything that arrived, as of one moment.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The first arrivals, up to the capacity, in order of arrival.
    pub arrivals: Vec<Arrival>,
    /// How many arrived, kept or not.
    pub total: u64,
    /// When the receiver stood still, by its clock; the first [`MAX_STALLS`].
    pub stalls: Vec<Stall>,
}

impl Record {
    /// The most seconds in a row, between the first arrival and the one of this number, in
    /// which none came. One in which the receiver stood still for half of the time is not
    /// counted, and does not end the row.
    #[must_use]
    pub fn empty_in_a_row(&self, number: usize) -> usize {
        let counted = self.arrivals.get(..number).unwrap_or(&self.arrivals);
        let Some(first) = counted.first() else {
            return 0;
        };
        let second_of = |arrival: &Arrival| arrival.at_us.saturating_sub(first.at_us) / SECOND_US;
        let full: BTreeSet<u64> = counted.iter().map(second_of).collect();
        let last = full.last().copied().unwrap_or_default();
        let stood_still = |second: u64| {
            let begin = first.at_us + second * SECOND_US;
            self.still_us(begin..begin + SECOND_US) >= SECOND_US / 2
        };
        let (mut longest, mut row) = (0, 0);
        for second in 0..last {
            if full.contains(&second) {
                row = 0;
            } else if !stood_still(second) {
                row += 1;
                longest = longest.max(row);
            }
        }
        longest
    }

    /// For how long of this span, in microseconds by its clock, the receiver stood still.
    fn still_us(&self, span: Range<u64>) -> u64 {
        let at = |time: Timestamp| u64::try_from(time.as_micros()).unwrap_or_default();
        let within = |stall: &Stall| {
            let until = at(stall.until).min(span.end);
            until.saturating_sub(at(stall.from).max(span.start))
        };
        self.stalls.iter().map(within).sum()
    }
}

const SECOND_US: u64 = 1_000_000;

/// How often a receiver looks whether it stands still.
pub const TICK: Duration = Duration::from_millis(1);

/// How late a tick is that stands for a stall: timers are as coarse as a millisecond.
const NOTED: Duration = Duration::from_millis(2);

/// The most stalls that are kept. What a later one holds up, none explains.
pub const MAX_STALLS: usize = 100_000;

/// The stall between two ticks of a receiver, if there was one.
#[must_use]
pub fn stall_between(last: Timestamp, now: Timestamp) -> Option<Stall> {
    let stood_still = now.since(last) > TICK + NOTED;
    stood_still.then_some(Stall {
        from: last,
        until: now,
    })
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
    served: oneshot::Receiver<io::Result<()>>,
    _stop_on_drop: DropGuard,
}

struct Shared {
    started_at: Instant,
    capacity: usize,
    default: Behaviour,
    observer: Option<Arc<Observer>>,
    exceptions: RwLock<HashMap<u32, Behaviour>>,
    kept: Mutex<Vec<Arrival>>,
    stalls: Mutex<Vec<Stall>>,
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
            observer: observer.map(Arc::from),
            exceptions: RwLock::default(),
            kept: Mutex::default(),
            stalls: Mutex::default(),
            total: watch::Sender::new(0),
            seconds: Mutex::default(),
            taken: AtomicU64::new(0),
            stopping: stopping.clone(),
        });
        let (listener, on_thread) = (listener.into_std()?, Arc::clone(&shared));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (tell, served) = oneshot::channel();
        let thread = std::thread::Builder::new().name("receiver".to_owned());
        thread.spawn(move || {
            let ended = runtime.block_on(run(listener, on_thread));
            // Nobody may be waiting for it.
            let _ = tell.send(ended);
        })?;
        Ok(Self {
            address,
            shared,
            _stop_on_drop: stopping.clone().drop_guard(),
            stopping,
            served,
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

    /// What time it is by the receiver's clock, in microseconds.
    #[must_use]
    pub fn clock(&self) -> i64 {
        self.shared.clock(Instant::now()).as_micros()
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
        // Before what is kept: so there are fewer of these only if some are not kept.
        let total = self.total();
        let kept = self.shared.kept.lock();
        let mut arrivals = kept.unwrap_or_else(PoisonError::into_inner).clone();
        // They are noted once their bodies are read, which may be out of turn.
        arrivals.sort_by_key(|arrival| arrival.at_us);
        let stalls = self.shared.stalls.lock();
        Record {
            total: total.max(arrivals.len() as u64),
            arrivals,
            stalls: stalls.unwrap_or_else(PoisonError::into_inner).clone(),
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

/// Serves until it is told to stop, and watches itself meanwhile.
async fn run(listener: std::net::TcpListener, shared: Arc<Shared>) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?.tap_io(|stream| {
        // A delay here would be measured as the sender's.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "nodelay not set");
        }
    });
    let stopping = shared.stopping.clone();
    let ticking = tokio::spawn(tick(Arc::clone(&shared)));
    let router = Router::new()
        .route("/r/{destination}", post(receive))
        .with_state(shared);
    let served = axum::serve(listener, router)
        .with_graceful_shutdown(stopping.cancelled_owned())
        .await;
    ticking.abort();
    served
}

/// Notes when this thread stood still.
async fn tick(shared: Arc<Shared>) {
    let mut last = shared.clock(Instant::now());
    loop {
        sleep(TICK).await;
        let now = shared.clock(Instant::now());
        if let Some(stall) = stall_between(last, now) {
            let mut stalls = shared.stalls.lock().unwrap_or_else(PoisonError::into_inner);
            if stalls.len() < MAX_STALLS {
                stalls.push(stall);
            }
        }
        last = now;
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
    let (body_bytes, told) = match &shared.observer {
        None => (body_bytes(body).await, None),
        Some(observer) => match body.collect().await {
            Ok(whole) => {
                let (observer, whole) = (Arc::clone(observer), whole.to_bytes());
                let length = whole.len() as u64;
                // On this thread it would hold up what comes meanwhile.
                let observed = spawn_blocking(move || {
                    observer(Observed {
                        destination,
                        at,
                        headers: &head.headers,
                        body: &whole,
                    })
                });
                match observed.await {
                    Ok(told) => (Some(length), told),
                    Err(_broken) => return StatusCode::INTERNAL_SERVER_ERROR.into(),
                }
            }
            Err(_) => (None, None),
        },
    };
    let Some(body_bytes) = body_bytes else {
        return StatusCode::BAD_REQUEST.into(); // the sender went away in the middle
    };
    shared.note(Arrival {
        destination,
        event,
        at_us: shared.clock(at).as_micros().unsigned_abs(),
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
    /// By the receiver's clock, which begins with it.
    fn clock(&self, at: Instant) -> Timestamp {
        let passed = at.saturating_duration_since(self.started_at).as_micros();
        Timestamp::from_micros(i64::try_from(passed).unwrap_or(i64::MAX))
    }

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

    #[test]
    fn a_second_without_arrivals_is_empty_unless_the_receiver_stood_still() {
        let arrival = |at_ms: u64| Arrival {
            destination: 0,
            event: None,
            at_us: at_ms * 1_000,
            body_bytes: 0,
        };
        let stall = |from, until| Stall {
            from: Timestamp::from_millis(from),
            until: Timestamp::from_millis(until),
        };
        let record = |stalls| Record {
            arrivals: [700, 900, 2_100, 9_000].map(arrival).to_vec(),
            total: 4,
            stalls,
        };
        let idle = record(Vec::new());
        // Of the seconds from 700 ms on, those from 2.7 to 8.7 s.
        assert_eq!(idle.empty_in_a_row(4), 6);
        assert_eq!(idle.empty_in_a_row(10), 6, "all that came");
        assert_eq!(idle.empty_in_a_row(3), 0, "what came later does not count");
        let twice = Record {
            arrivals: [700, 3_000, 9_000].map(arrival).to_vec(),
            ..record(Vec::new())
        };
        assert_eq!(twice.empty_in_a_row(3), 5, "one second, and later five");
        let short = vec![stall(3_000, 3_100), stall(3_200, 3_300)];
        assert_eq!(record(short).empty_in_a_row(4), 6);
        let long = vec![stall(2_800, 3_200), stall(3_400, 4_800)];
        assert_eq!(record(long).empty_in_a_row(4), 4);
        assert_eq!(Record::default().empty_in_a_row(4), 0);
    }

    /// Its thread is held, as a machine that is busy would hold it.
    #[tokio::test]
    async fn it_notes_when_it_stood_still() {
        const STILL: Duration = Duration::from_millis(50);
        let receiver = Receiver::start(Behaviour::ACCEPT, 10).await.unwrap();
        let shared = Arc::clone(&receiver.shared);
        let ticking = tokio::spawn(tick(Arc::clone(&shared)));
        tokio::task::yield_now().await;
        let until = Instant::now() + STILL;
        while Instant::now() < until {
            std::thread::yield_now();
        }
        let longest = || {
            let record = receiver.record();
            let lengths = record.stalls.iter().map(|one| one.until.since(one.from));
            lengths.max()
        };
        while longest() < Some(STILL) {
            tokio::task::yield_now().await;
        }
        ticking.abort();
    }

    #[tokio::test]
    async fn an_arrival_is_timed_by_its_clock() {
        let receiver = Receiver::start(Behaviour::ACCEPT, 10).await.unwrap();
        let before = receiver.clock();
        assert_eq!(
            status(post(&receiver, "/r/0", Uuid::nil()).await).await,
            "204"
        );
        let read_at = receiver.record().arrivals[0].read_at().as_micros();
        assert!((before..=receiver.clock()).contains(&read_at));
    }

    #[test]
    fn a_tick_that_is_as_late_as_timers_are_is_no_stall() {
        let between =
            |micros| stall_between(Timestamp::from_micros(5), Timestamp::from_micros(micros));
        assert_eq!([between(1_005), between(3_005)], [None, None]);
        let stall = between(3_006).unwrap();
        assert_eq!(
            (stall.from.as_micros(), stall.until.as_micros()),
            (5, 3_006)
        );
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
