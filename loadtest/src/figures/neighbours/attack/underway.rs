//! An attack that goes on: who asks, who holds a connection, and how they were answered.

use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::super::super::nuisance::Hostile;
use super::attacker::{Ask, Attacker, FROM};
use super::late::Late;
use crate::api::socket_from;

/// Clients that ask in turn.
pub(super) const CLIENTS: u32 = 16;

/// The kernel keeps as little as it can for whoever reads nothing.
const UNREAD_BYTES: u32 = 4_096;

/// Whoever reads nothing hangs up then, and begins again: before the API does.
const UNREAD_FOR: Duration = Duration::from_secs(20);

/// How often whoever reads nothing looks whether it is closed.
const LOOK_CLOSED: Duration = Duration::from_millis(250);

/// How often it is counted how many connections are held.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// The first time each hangs up by itself, after another part of this: else all that the API
/// closes after a while would be opened anew in the same second, and none be held in it.
const APART: Duration = Duration::from_secs(10);
const PARTS: u32 = 10;

/// A connection that is closed or refused is opened again after this.
const AGAIN: Duration = Duration::from_secs(1);

/// What is refused or closed before this was never held.
const AT_ONCE: Duration = Duration::from_secs(1);

/// How every answer begins that is none of a refusal or a failure.
const SUCCESS: &[u8] = b"HTTP/1.1 2";

/// Until the rest of a status comes.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// How often a little of a body is sent.
pub(super) const DRIP_EVERY: Duration = Duration::from_millis(100);

/// After one that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// It goes on until it is dropped.
#[derive(Default)]
pub(in crate::figures::neighbours) struct Underway {
    pub(super) tasks: JoinSet<()>,
    told: Arc<Told>,
    pub(super) receivers: Vec<Hostile>,
    pub(super) full: Vec<TcpListener>,
    pub(super) late: Option<Late>,
}

/// How its requests were answered.
#[derive(Default)]
struct Told {
    asked: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    /// Connections that are held just now.
    held: AtomicU64,
}

/// One of those, until it is dropped.
struct Holding<'a>(&'a AtomicU64);

impl<'a> Holding<'a> {
    fn of(held: &'a AtomicU64) -> Self {
        held.fetch_add(1, Ordering::Relaxed);
        Self(held)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is held.
pub(super) struct Held {
    /// What they begin with, in turn.
    pub(super) heads: Vec<String>,
    pub(super) then: Then,
    /// From how many addresses, in turn: there is a bound on those of one.
    pub(super) addresses: u32,
}

/// What is done on a connection after it has begun.
pub(super) enum Then {
    /// All is read, until it is closed.
    Reads,
    /// The same, and this is sent each [`DRIP_EVERY`].
    Sends(Vec<u8>),
    /// Nothing is read.
    ReadsNothing,
}

impl Underway {
    /// Requests so far: all, and of these those that were taken, refused, and answered
    /// by a failure or not at all. Connections that are held count as taken, and those
    /// that are closed or refused at once as refused.
    pub(in crate::figures::neighbours) fn told(&self) -> [u64; 4] {
        let Told {
            asked,
            taken,
            refused,
            failed,
            held: _,
        } = &*self.told;
        [asked, taken, refused, failed].map(|count| count.load(Ordering::Relaxed))
    }

    /// Connections that are held just now.
    pub(in crate::figures::neighbours) fn held(&self) -> u64 {
        self.told.held.load(Ordering::Relaxed)
    }

    /// What that comes to, and the fewest connections that were held in any second until then.
    pub(in crate::figures::neighbours) async fn fewest_held<T>(
        &self,
        doing: impl Future<Output = T>,
    ) -> (T, u64) {
        let mut doing = pin!(doing);
        let mut turns = interval(COUNT_EVERY);
        let mut fewest = u64::MAX;
        loop {
            tokio::select! {
                biased;
                _ = turns.tick() => fewest = fewest.min(self.held()),
                done = &mut doing => return (done, fewest),
            }
        }
    }

    /// Waits until all has come that has to come in spite of how it was sent.
    pub(in crate::figures::neighbours) async fn settled(&self) -> anyhow::Result<()> {
        match &self.late {
            Some(late) => late.all_arrive().await,
            None => Ok(()),
        }
    }

    /// Clients that send one request after the other, so many a second together,
    /// whatever is answered.
    pub(super) fn crew(
        &mut self,
        attacker: &Attacker,
        per_second: u32,
        request: impl Fn(u64) -> Ask + Send + Sync + 'static,
    ) {
        let request = Arc::new(request);
        for number in 0..CLIENTS {
            let (attacker, request) = (attacker.clone(), Arc::clone(&request));
            let told = Arc::clone(&self.told);
            self.tasks.spawn(async move {
                let mut turns = interval(Duration::from_secs(1) * CLIENTS / per_second);
                turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut client = None;
                for turn in (u64::from(number)..).step_by(CLIENTS as usize) {
                    turns.tick().await;
                    let Ask {
                        method,
                        path,
                        body,
                        key,
                    } = request(turn);
                    told.asked.fetch_add(1, Ordering::Relaxed);
                    let asked = async {
                        let mut one = match client.take() {
                            Some(client) => client,
                            None => attacker.client().await?,
                        };
                        if let Some(key) = key {
                            one = one.with_key(&key);
                        }
                        let (status, _) = one.answer(method, &path, &body).await?;
                        anyhow::Ok((one, status))
                    };
                    let counted = match asked.await {
                        Ok((one, status)) => {
                            client = Some(one);
                            match status {
                                // A form that is taken leads to its page.
                                status if status.is_success() || status.is_redirection() => {
                                    &told.taken
                                }
                                status if status.is_client_error() => &told.refused,
                                _ => &told.failed,
                            }
                        }
                        Err(_closed) => &told.failed,
                    };
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// One that does the same again and again, whatever comes of it.
    pub(super) fn repeat<F, D>(&mut self, mut once: F)
    where
        F: FnMut() -> D + Send + 'static,
        D: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let told = Arc::clone(&self.told);
        self.tasks.spawn(async move {
            loop {
                told.asked.fetch_add(1, Ordering::Relaxed);
                if once().await.is_ok() {
                    told.taken.fetch_add(1, Ordering::Relaxed);
                } else {
                    told.refused.fetch_add(1, Ordering::Relaxed);
                    sleep(PAUSE).await;
                }
            }
        });
    }

    /// Connections to this address, each opened again a second after it was closed or
    /// refused, and so over the whole of each second.
    pub(super) fn hold(&mut self, connections: u32, address: &str, held: Held) {
        let held = Arc::new(held);
        for number in 0..connections {
            let (address, held) = (address.to_owned(), Arc::clone(&held));
            let told = Arc::clone(&self.told);
            self.tasks.spawn(async move {
                sleep(begins(number, connections)).await;
                let mut most = Some(APART * (number % PARTS + 1) / PARTS);
                loop {
                    told.asked.fetch_add(1, Ordering::Relaxed);
                    match held.begin(number, &address).await {
                        Ok(stream) => {
                            told.taken.fetch_add(1, Ordering::Relaxed);
                            let _one = Holding::of(&told.held);
                            let going_on = held.go_on(stream);
                            // However it ended: it is opened again.
                            match most.take() {
                                Some(most) => drop(timeout(most, going_on).await),
                                None => drop(going_on.await),
                            }
                        }
                        Err(_refused) => {
                            told.refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    sleep(AGAIN).await;
                }
            });
        }
    }
}

/// When one of so many begins: none of a kind at the instant of another.
fn begins(number: u32, connections: u32) -> Duration {
    AGAIN * number / connections
}

impl Held {
    fn source(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(FROM.to_bits() + number % self.addresses.max(1))
    }

    /// One that is neither refused nor closed at once.
    async fn begin(&self, number: u32, address: &str) -> anyhow::Result<TcpStream> {
        let socket = socket_from(self.source(number))?;
        if matches!(self.then, Then::ReadsNothing) {
            socket.set_recv_buffer_size(UNREAD_BYTES)?;
        }
        let mut stream = socket.connect(address.parse()?).await?;
        let head = &self.heads[number as usize % self.heads.len()];
        stream.write_all(head.as_bytes()).await?;
        match timeout(AT_ONCE, refusal(&stream)).await {
            Err(_elapsed) => Ok(stream),
            Ok(closed_or_refused) => anyhow::bail!("it is not held: {closed_or_refused:?}"),
        }
    }

    /// Until it is closed.
    async fn go_on(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let piece = match &self.then {
            Then::ReadsNothing => {
                let closed = timeout(UNREAD_FOR, closed(&mut stream)).await;
                return closed.unwrap_or(Ok(()));
            }
            Then::Reads => None,
            Then::Sends(piece) => Some(piece),
        };
        let (mut reader, mut writer) = stream.split();
        let read = async {
            let mut buffer = [0; 4_096];
            while reader.read(&mut buffer).await? > 0 {}
            Ok(())
        };
        let write = async {
            let Some(piece) = piece else {
                return std::future::pending().await;
            };
            loop {
                sleep(DRIP_EVERY).await;
                writer.write_all(piece).await?;
            }
        };
        tokio::select! {
            done = read => done,
            failed = write => failed,
        }
    }
}

/// Until it is closed, nothing of it being read. The end is behind what is unread; but who
/// is sent something after he has gone says so at once. An empty line before a request is
/// none.
async fn closed(stream: &mut TcpStream) -> std::io::Result<()> {
    while !stream.ready(Interest::READABLE).await?.is_read_closed() {
        stream.write_all(b"\r\n").await?;
        sleep(LOOK_CLOSED).await;
    }
    Ok(())
}

/// Until it is closed, or answered by anything but a success. Nothing of it is read.
async fn refusal(stream: &TcpStream) -> std::io::Result<()> {
    let mut begun = [0; SUCCESS.len()];
    loop {
        match stream.peek(&mut begun).await? {
            0 => return Ok(()),
            all if all == SUCCESS.len() => break,
            // What is there is told at once, again and again.
            _some => sleep(LOOK_AGAIN).await,
        }
    }
    match begun == *SUCCESS {
        true => std::future::pending().await,
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One connection that begins with this.
    fn one(head: &str, then: Then) -> Held {
        Held {
            heads: vec![head.to_owned()],
            then,
            addresses: 1,
        }
    }

    /// Waits until so many connections were refused or held.
    async fn met(underway: &Underway, connections: u64) {
        loop {
            let [_, taken, refused, _] = underway.told();
            if taken + refused >= connections {
                return;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    #[test]
    fn connections_come_from_their_addresses_in_turn() {
        let held = |addresses| Held {
            addresses,
            ..one("", Then::Reads)
        };
        let from = |addresses| [0, 1, 2].map(|number| held(addresses).source(number).octets()[3]);
        assert_eq!(from(1), [2, 2, 2]);
        assert_eq!(from(2), [2, 3, 2]);
    }

    /// Those of a small kind all came in its first fifth, and so did those of the next.
    #[test]
    fn connections_begin_over_the_whole_second() {
        for connections in [2, 200, 10_000] {
            let mut last = Duration::ZERO;
            for number in 0..connections {
                let next = begins(number, connections);
                assert!(next - last <= AGAIN / connections + Duration::from_nanos(1));
                last = next;
            }
            assert!(last < AGAIN && last >= AGAIN - AGAIN / connections - Duration::from_nanos(1));
        }
    }

    #[tokio::test]
    async fn who_reads_nothing_leaves_the_answer_where_it_is() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut underway = Underway::default();
        let held = one("GET / HTTP/1.1\r\n\r\n", Then::ReadsNothing);
        underway.hold(1, &address, held);
        let (mut stream, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.ip(), FROM);
        let mut head = [0; 18];
        stream.read_exact(&mut head).await.unwrap();
        // More than two kernels keep between them.
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let answer = vec![b'a'; 64 << 20];
        let written = stream.write_all(&answer);
        let written = tokio::time::timeout(Duration::from_millis(200), written).await;
        assert!(written.is_err(), "it was read");
        met(&underway, 1).await;
        assert_eq!(underway.told(), [1, 1, 0, 0]);
        assert_eq!(underway.held(), 1);
    }

    #[tokio::test]
    async fn who_reads_nothing_notices_that_it_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = socket_from(FROM).unwrap();
        socket.set_recv_buffer_size(UNREAD_BYTES).unwrap();
        let connected = socket.connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(connected, listener.accept());
        let (mut client, (mut server, _)) = (client.unwrap(), accepted.unwrap());
        let answer = vec![b'a'; 64 << 20];
        let written = timeout(Duration::from_millis(200), server.write_all(&answer)).await;
        assert!(written.is_err(), "it was read");
        let early = timeout(LOOK_CLOSED * 2, closed(&mut client)).await;
        assert!(early.is_err(), "it is open");
        drop(server);
        let noticed = timeout(UNREAD_FOR, closed(&mut client)).await;
        assert!(noticed.is_ok(), "nobody noticed");
    }

    #[tokio::test]
    async fn the_fewest_of_any_second_are_those_that_are_held() {
        let underway = Underway::default();
        let told = Arc::clone(&underway.told);
        let _all = [(); 3].map(|()| Holding::of(&told.held));
        let some = [(); 4].map(|()| Holding::of(&told.held));
        let looking = async {
            drop(some);
            sleep(COUNT_EVERY * 3 / 2).await;
            "looked"
        };
        assert_eq!(underway.fewest_held(looking).await, ("looked", 3));
    }

    /// A listener that answers each of its connections with this, and keeps them.
    async fn answering(answer: &'static str) -> (String, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut kept = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                kept.push(stream);
            }
        });
        (address, serving)
    }

    #[tokio::test]
    async fn what_is_refused_at_once_is_not_held() {
        let (address, _serving) = answering("HTTP/1.1 413 Payload Too Large\r\n\r\n").await;
        let mut underway = Underway::default();
        underway.hold(1, &address, one("POST / HTTP/1.1\r\n", Then::Reads));
        met(&underway, 1).await;
        let [_, taken, refused, _] = underway.told();
        assert_eq!((taken, refused >= 1, underway.held()), (0, true, 0));
    }

    #[tokio::test]
    async fn what_is_answered_by_a_stream_is_held() {
        let (address, _serving) = answering("HTTP/1.1 200 OK\r\n\r\nso far").await;
        let mut underway = Underway::default();
        underway.hold(1, &address, one("GET / HTTP/1.1\r\n\r\n", Then::Reads));
        met(&underway, 1).await;
        assert_eq!(underway.told(), [1, 1, 0, 0]);
        assert_eq!(underway.held(), 1);
    }

    #[tokio::test]
    async fn what_is_closed_at_once_is_not_held() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut closing = JoinSet::new();
        closing.spawn(async move {
            loop {
                drop(listener.accept().await.unwrap());
            }
        });
        let mut underway = Underway::default();
        underway.hold(1, &address, one("", Then::Reads));
        met(&underway, 1).await;
        let [_, taken, refused, _] = underway.told();
        assert_eq!((taken, refused >= 1, underway.held()), (0, true, 0));
    }

    #[tokio::test]
    async fn what_is_repeated_is_counted_by_how_it_ended() {
        let mut underway = Underway::default();
        let mut turns = 0;
        let (done, mut all) = tokio::sync::mpsc::channel(1);
        underway.repeat(move || {
            turns += 1;
            let (turn, done) = (turns, done.clone());
            async move {
                match turn {
                    1 => anyhow::Ok(()),
                    2 => anyhow::bail!("refused"),
                    _ => {
                        done.send(()).await?;
                        std::future::pending().await
                    }
                }
            }
        });
        all.recv().await.unwrap();
        assert_eq!(underway.told(), [3, 1, 1, 0]);
    }
}
