//! A TCP proxy whose link misbehaves on command.
//!
//! Every process has a proxy of its own to every server, so one of them can be
//! cut off alone. What the link does applies to connections that are open as
//! well as to later ones, from the next bytes on; when it passes again, bytes
//! that were held go on, as after a partition.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// What a link does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Link {
    /// Passes all bytes at once.
    #[default]
    Pass,
    /// Holds every piece for this long, each way.
    Latency(Duration),
    /// Passes at most so many bytes a second, each way.
    Throttle(u64),
    /// Passes nothing and closes nothing: a peer that vanished.
    Blackhole,
    /// Passes only from the server to the process: what it says is lost.
    DeafServer,
    /// Passes only from the process to the server: it hears no answer.
    DeafProcess,
    /// Cuts every connection, each after so many more bytes of either way.
    CutAfter(u64),
}

/// The largest piece that is passed at once.
const PIECE: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, Default)]
struct State {
    link: Link,
    /// Connections of an earlier life are reset.
    life: u64,
}

/// One listener that forwards to one address. Its connections end with it.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback.
    pub(crate) async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, states) = watch::channel(State::default());
        let accepting = tokio::spawn(accept(listener, server, states));
        Ok(Self {
            address,
            state,
            accepting,
        })
    }

    /// Where processes connect.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the link does this.
    pub(crate) fn set(&self, link: Link) {
        self.state.send_modify(|state| state.link = link);
    }

    /// Resets every open connection, at both ends; new ones are served.
    pub(crate) fn reset(&self) {
        self.state.send_modify(|state| state.life += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, states: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((process, _)) = accepted else { continue };
                connections.spawn(connect(process, server, states.clone()));
            }
        }
    }
}

/// A server that is away is a connection that is reset.
async fn connect(process: TcpStream, server: SocketAddr, states: watch::Receiver<State>) {
    let Ok(server) = TcpStream::connect(server).await else {
        abort(&process);
        return;
    };
    for stream in [&process, &server] {
        // Our own delay must not look like the link's.
        let _ = stream.set_nodelay(true);
    }
    forward(process, server, states).await;
}

/// A reset instead of an orderly end.
fn abort(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn forward(process: TcpStream, server: TcpStream, states: watch::Receiver<State>) {
    let life = states.borrow().life;
    let (process_read, process_write) = process.into_split();
    let (server_read, server_write) = server.into_split();
    let mut up = Pump::new(process_read, server_write, states.clone(), Way::Up);
    let mut down = Pump::new(server_read, process_write, states.clone(), Way::Down);
    let mut watched = states;
    let cut = tokio::select! {
        biased;
        _ = watched.wait_for(|state| state.life != life) => true,
        cut = async {
            // One way may end before the other does; a cut ends both.
            tokio::select! {
                biased;
                end = up.run() => end == End::Cut || down.run().await == End::Cut,
                end = down.run() => end == End::Cut || up.run().await == End::Cut,
            }
        } => cut,
    };
    if cut {
        for half in [&up.to, &down.to] {
            abort(half.as_ref());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// How one way ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// In order.
    Closed,
    /// The link cut it, or either peer did.
    Cut,
}

/// One way of one connection.
struct Pump {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    states: watch::Receiver<State>,
    way: Way,
    /// Read and not yet passed on; kept here, for `run` may be dropped.
    held: Vec<u8>,
    /// What it may still pass before it is cut.
    left: Option<u64>,
    closed: bool,
}

impl Pump {
    fn new(
        from: OwnedReadHalf,
        to: OwnedWriteHalf,
        states: watch::Receiver<State>,
        way: Way,
    ) -> Self {
        Self {
            from,
            to,
            states,
            way,
            held: Vec::with_capacity(PIECE),
            left: None,
            closed: false,
        }
    }

    async fn run(&mut self) -> End {
        while !self.closed {
            let link = self.states.borrow_and_update().link;
            if self.is_blocked(link) {
                if self.states.changed().await.is_err() {
                    return End::Cut;
                }
                continue;
            }
            if !matches!(link, Link::CutAfter(_)) {
                self.left = None;
            }
            if self.held.is_empty() {
                tokio::select! {
                    biased;
                    changed = self.states.changed() => {
                        if changed.is_err() {
                            return End::Cut;
                        }
                        continue;
                    }
                    read = self.from.read_buf(&mut self.held) => match read {
                        Ok(0) => {
                            let _ = self.to.shutdown().await;
                            self.closed = true;
                            continue;
                        }
                        Ok(_) => {}
                        Err(_) => return End::Cut,
                    },
                }
            }
            // It may have changed while we read.
            let link = self.states.borrow().link;
            if self.is_blocked(link) {
                continue;
            }
            if let Some(end) = self.pass(link).await {
                return end;
            }
        }
        End::Closed
    }

    fn is_blocked(&self, link: Link) -> bool {
        match link {
            Link::Blackhole => true,
            Link::DeafServer => self.way == Way::Up,
            Link::DeafProcess => self.way == Way::Down,
            Link::Pass | Link::Latency(_) | Link::Throttle(_) | Link::CutAfter(_) => false,
        }
    }

    /// Passes on what is held.
    async fn pass(&mut self, link: Link) -> Option<End> {
        let mut length = self.held.len().min(PIECE);
        match link {
            Link::Latency(latency) => sleep(latency).await,
            Link::Throttle(per_second) => {
                let micros = (length as u64).saturating_mul(1_000_000) / per_second.max(1);
                sleep(Duration::from_micros(micros)).await;
            }
            Link::CutAfter(bytes) => {
                let left = self.left.get_or_insert(bytes);
                length = length.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
            }
            Link::Pass | Link::Blackhole | Link::DeafServer | Link::DeafProcess => {}
        }
        let piece: Vec<u8> = self.held.drain(..length).collect();
        if self.to.write_all(&piece).await.is_err() {
            return Some(End::Cut);
        }
        (self.left == Some(0)).then_some(End::Cut)
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;
