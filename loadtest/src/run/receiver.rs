//! The receiver, a process of its own so that its CPU is told apart.
//!
//! One thread serves all connections, so recording takes no lock: an arrival
//! is one push to a buffer that was sized beforehand. What does not fit is
//! counted and not kept. Its clock is read where a request's head has just been read,
//! and a ticker on the same thread notes when it stood still. It is spoken to by lines on
//! its input, answers each with a line of JSON on its output, and ends when its input
//! does.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use domain::compliance::Stall;
use domain::time::Timestamp;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use server::receiver::{MAX_STALLS, TICK, stall_between};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use super::arrivals::{self, Answer, Arrival};
use super::histogram::Histogram;
use super::payload;
use crate::chaos::boottime_us;

/// Orders that wait; each is answered before the next is given.
const MAX_ORDERS: usize = 4;

/// How the receiver behaves.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Ports to listen on.
    #[arg(long, default_value_t = 1)]
    pub(crate) ports: u16,
    /// Arrivals that it keeps.
    #[arg(long)]
    pub(crate) capacity: usize,
    /// Requests in a hundred that it answers with 500.
    #[arg(long, default_value_t = 0)]
    pub(crate) failing_percent: u32,
    /// How many destinations, the first ones, are slow.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_destinations: u32,
    /// How long those take to answer.
    #[arg(long, default_value_t = 0)]
    pub(crate) slow_ms: u64,
}

/// What it says when it listens.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) ports: Vec<u16>,
}

/// What it says when it is asked how many there were.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Count {
    /// Requests.
    pub(crate) arrived: u64,
    /// Of those, answered with a success.
    pub(crate) taken: u64,
    /// From sending to arrival, since the last tick; only at a tick.
    pub(crate) p99_us: Option<u64>,
}

/// What it says when it has written what it kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) kept: u64,
    pub(crate) arrived: u64,
    /// From when until when it stood still, in microseconds since the machine started.
    pub(crate) stalls_us: Vec<(i64, i64)>,
    /// The most connections that were open at once.
    pub(crate) connections: u64,
}

/// Listens until its input ends.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let ended = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the receiver's thread")?;
        LocalSet::new().block_on(&runtime, listen(args))
    });
    ended.await.context("the receiver's thread broke")?
}

async fn listen(args: Args) -> anyhow::Result<ExitCode> {
    server::open_files::raise_limit();
    let mut ports = Vec::new();
    let state = Rc::new(State {
        kept: RefCell::new(Vec::with_capacity(args.capacity)),
        stalls: RefCell::default(),
        counted: RefCell::default(),
        connections: Cell::default(),
        args,
    });
    for _ in 0..state.args.ports {
        let listener = server::receiver::listen().context("listen")?;
        ports.push(listener.local_addr()?.port());
        spawn_local(accept(listener, Rc::clone(&state)));
    }
    spawn_local(tick(Rc::clone(&state)));
    say(&Listening { ports })?;
    let mut orders = orders()?;
    while let Some(line) = orders.recv().await {
        match line.split_once(' ') {
            Some(("write", path)) => say(&state.write(Path::new(path))?)?,
            _ if line == "forget" => say(&state.forget())?,
            _ if line == "tick" => say(&state.tick())?,
            _ => say(&state.count())?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of the input, read by a thread that waits for them.
fn orders() -> anyhow::Result<mpsc::Receiver<String>> {
    let (tell, orders) = mpsc::channel(MAX_ORDERS);
    let read = move || {
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        let _ = lines.try_for_each(|line| tell.blocking_send(line));
    };
    let reader = std::thread::Builder::new().name("orders".to_owned());
    reader.spawn(read).context("start the reader of orders")?;
    Ok(orders)
}

fn say(what: &impl Serialize) -> anyhow::Result<()> {
    server::output::line(&serde_json::to_string(what)?)
}

async fn accept(listener: TcpListener, state: Rc<State>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(serve(stream, Rc::clone(&state)))),
            // Too many open files, as a rule: the sender tries again.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Notes when this thread stood still.
async fn tick(state: Rc<State>) {
    let clock = || Timestamp::from_micros(boottime_us());
    let mut last = clock();
    loop {
        tokio::time::sleep(TICK).await;
        let now = clock();
        if let Some(stall) = stall_between(last, now) {
            state.note_stall(stall);
        }
        last = now;
    }
}

async fn serve(stream: TcpStream, state: Rc<State>) {
    // A delay here would be measured as the sender's.
    let _ = stream.set_nodelay(true);
    let _open = Open::new(Rc::clone(&state));
    let service = service_fn(move |request| receive(Rc::clone(&state), request));
    // A sender that goes away is its own business.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn receive(
    state: Rc<State>,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let at_us = boottime_us();
    let destination = destination(request.uri().path());
    let attempt = attempt(request.headers());
    let body = request.into_body().collect().await;
    let (Some(destination), Ok(body)) = (destination, body) else {
        return Ok(answer(StatusCode::BAD_REQUEST));
    };
    let (event, sent_us) = payload::read(&body.to_bytes()).unwrap_or((u32::MAX, at_us));
    let said = state.answer(event, attempt);
    let arrival = Arrival::new(at_us, event, destination, said);
    state.note(arrival, sent_us);
    if destination < state.args.slow_destinations {
        tokio::time::sleep(Duration::from_millis(state.args.slow_ms)).await;
    }
    Ok(answer(match said {
        Answer::Taken => StatusCode::NO_CONTENT,
        Answer::Refused => StatusCode::INTERNAL_SERVER_ERROR,
    }))
}

/// Which try of its event this is, as the sender says.
fn attempt(headers: &HeaderMap) -> u32 {
    let text = headers
        .get("paceline-try")
        .and_then(|text| text.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The number in `/r/12`.
fn destination(path: &str) -> Option<u32> {
    path.strip_prefix("/r/")?.parse().ok()
}

fn answer(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}

struct State {
    args: Args,
    kept: RefCell<Vec<Arrival>>,
    stalls: RefCell<Vec<Stall>>,
    counted: RefCell<Counted>,
    connections: Cell<Connections>,
}

#[derive(Clone, Copy, Default)]
struct Connections {
    open: u64,
    /// The most since it began, or began anew.
    most: u64,
}

/// A connection that is open.
struct Open(Rc<State>);

impl Open {
    fn new(state: Rc<State>) -> Self {
        let Connections { open, most } = state.connections.get();
        let open = open + 1;
        let most = most.max(open);
        state.connections.set(Connections { open, most });
        Self(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut connections = self.0.connections.get();
        connections.open -= 1;
        self.0.connections.set(connections);
    }
}

#[derive(Default)]
struct Counted {
    arrived: u64,
    taken: u64,
    waits: Histogram,
}

impl State {
    fn note(&self, arrival: Arrival, sent_us: i64) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < self.args.capacity {
            kept.push(arrival);
        }
        let mut counted = self.counted.borrow_mut();
        counted.arrived += 1;
        counted.taken += u64::from(arrival.is_taken());
        let wait = u64::try_from(arrival.at_us - sent_us).unwrap_or(0);
        counted.waits.note(wait);
    }

    fn note_stall(&self, stall: Stall) {
        let mut stalls = self.stalls.borrow_mut();
        if stalls.len() < MAX_STALLS {
            stalls.push(stall);
        }
    }

    /// Decided by the event and its try, so that a retry has another chance.
    fn answer(&self, event: u32, attempt: u32) -> Answer {
        let drawn = scrambled(u64::from(event) << 32 | u64::from(attempt)) % 100;
        if drawn < u64::from(self.args.failing_percent) {
            Answer::Refused
        } else {
            Answer::Taken
        }
    }

    fn count(&self) -> Count {
        let counted = self.counted.borrow();
        Count {
            arrived: counted.arrived,
            taken: counted.taken,
            p99_us: None,
        }
    }

    /// With what arrivals had to wait since the last tick.
    fn tick(&self) -> Count {
        let p99_us = self.counted.borrow_mut().waits.take_percentile(99);
        Count {
            p99_us,
            ..self.count()
        }
    }

    /// Begins anew: what arrived so far was for warming up.
    fn forget(&self) -> Count {
        self.kept.borrow_mut().clear();
        self.stalls.borrow_mut().clear();
        self.counted.take();
        let Connections { open, .. } = self.connections.get();
        self.connections.set(Connections { open, most: open });
        self.count()
    }

    fn write(&self, path: &Path) -> anyhow::Result<Written> {
        let kept = self.kept.borrow();
        arrivals::write(path, &kept)?;
        let stalls = self.stalls.borrow();
        let as_written = |one: &Stall| (one.from.as_micros(), one.until.as_micros());
        Ok(Written {
            stalls_us: stalls.iter().map(as_written).collect(),
            connections: self.connections.get().most,
            kept: kept.len() as u64,
            arrived: self.counted.borrow().arrived,
        })
    }
}

/// Spreads numbers that are close to each other (the finaliser of splitmix64).
fn scrambled(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(capacity: usize, failing_percent: u32) -> State {
        State {
            args: Args {
                ports: 1,
                capacity,
                failing_percent,
                slow_destinations: 0,
                slow_ms: 0,
            },
            kept: RefCell::default(),
            stalls: RefCell::default(),
            counted: RefCell::default(),
            connections: Cell::default(),
        }
    }

    #[test]
    fn connections_are_counted_while_they_are_open() {
        let state = Rc::new(state(0, 0));
        let most = || state.connections.get().most;
        let (first, second) = (Open::new(Rc::clone(&state)), Open::new(Rc::clone(&state)));
        drop(first);
        let third = Open::new(Rc::clone(&state));
        assert_eq!(most(), 2);
        drop(second);
        state.forget();
        assert_eq!(most(), 1);
        drop(third);
    }

    #[test]
    fn a_share_fails_and_a_retry_has_another_chance() {
        let state = state(1, 20);
        let failed = |attempt| {
            let refused = move |event: &u32| state.answer(*event, attempt) == Answer::Refused;
            (0..10_000).filter(refused).collect::<Vec<_>>()
        };
        let first = failed(1);
        assert!((1_800..2_200).contains(&first.len()), "{}", first.len());
        let state = self::state(1, 20);
        let again = first
            .iter()
            .filter(|event| state.answer(**event, 2) == Answer::Refused);
        assert!((300..500).contains(&again.count()));
    }

    #[test]
    fn what_does_not_fit_is_counted_and_not_kept() {
        let state = state(2, 0);
        for event in 0..5 {
            state.note(Arrival::new(100, event, 0, Answer::Taken), 40);
        }
        assert_eq!(state.count().p99_us, None);
        let count = state.tick();
        assert_eq!((count.arrived, count.taken, count.p99_us), (5, 5, Some(61)));
        assert_eq!(state.kept.borrow().len(), 2);
        state.note_stall(Stall {
            from: Timestamp::from_micros(90),
            until: Timestamp::from_micros(110),
        });
        let folder = tempfile::tempdir().unwrap();
        let written = state.write(&folder.path().join("arrivals")).unwrap();
        assert_eq!(written.stalls_us, [(90, 110)]);
        assert_eq!(state.forget().arrived, 0);
        assert!(state.kept.borrow().is_empty() && state.stalls.borrow().is_empty());
    }

    #[test]
    fn a_destination_is_the_number_in_the_path() {
        assert_eq!(destination("/r/70000"), Some(70_000));
        assert_eq!(destination("/r/"), None);
        assert_eq!(destination("/x/1"), None);
    }
}
