//! One connection to the broker, and how it is dialled.
//!
//! Promises that nothing here waits longer than [`STEP_TIMEOUT`] a step, that
//! a dial which fails leaves nothing behind, and that no error and no `Debug`
//! shows the password.
//!
//! lapin reads a connection on a thread of its own, which ends only when the
//! socket does. So the socket is opened here, and kept hold of: a broker that
//! accepts and then says nothing would otherwise cost a thread per dial. lapin
//! could reconnect by itself, but gives up after a number of tries and does
//! not tell a redialled connection's delivery tags from the old one's.

use std::fmt;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::Duration;

use engine::ports::QueueError;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties, ConnectionStatus};
use rand::rngs::{StdRng, SysRng};
use rand::{RngExt, SeedableRng};

/// How long a dial, a declaration or the opening of a channel may take. A
/// broker that elects a queue's leader needs a second or two.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

/// Proposed to the broker, which by default wants 60: a peer that vanished
/// without a word is noticed after twice this many seconds.
const HEARTBEAT_SECONDS: u16 = 10;

/// The largest frame where we publish, if the URL names none (`?frame_max=`). lapin keeps room
/// for 32 of them each way, whatever comes: with the broker's 128 KiB that is 8 MiB for each
/// connection, and no message of ours has more than 1 KiB. Where we consume it is the
/// broker's: what comes may be anybody's, and its headers are one frame.
const FRAME_BYTES: u32 = 16_384;

/// How often a connection is asked whether it still is one. Reads a flag.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Why a broker takes nothing, when it says that it does not.
pub(super) const BLOCKED: &str = "a memory or disk alarm";

/// The first wait before a redial: a restarted connection is back at once.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest wait: a broker that comes back is found again within this.
const BACKOFF_LONGEST: Duration = Duration::from_secs(5);

/// Where the broker is, and who we are.
pub(super) struct Address {
    uri: AMQPUri,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, QueueError> {
        // lapin's own message would quote the URL, password and all.
        let unusable = || unavailable("not an amqp://user:password@host:port/vhost address");
        let Ok(mut uri) = url.parse::<AMQPUri>() else {
            return Err(unusable());
        };
        // It also takes an IPv6 host for none, and would dial localhost.
        let Ok(parsed) = url::Url::parse(url) else {
            return Err(unusable());
        };
        if let Some(host) = parsed.host_str() {
            host.trim_start_matches('[')
                .trim_end_matches(']')
                .clone_into(&mut uri.authority.host);
        }
        uri.query.heartbeat.get_or_insert(HEARTBEAT_SECONDS);
        Ok(Self { uri })
    }

    /// The same, for a connection on which nothing comes but answers to what we publish.
    pub(super) fn for_publishing(&self) -> Self {
        let mut uri = self.uri.clone();
        uri.query.frame_max.get_or_insert(FRAME_BYTES);
        Self { uri }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.uri.authority;
        write!(f, "{}:{}", authority.host, authority.port)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self}, vhost {:?})", self.uri.vhost)
    }
}

/// An open connection.
pub(super) struct Line {
    connection: Connection,
    socket: Socket,
}

impl Line {
    /// Dials once.
    pub(super) async fn dial(address: &Address, name: &str) -> Result<Self, QueueError> {
        match tokio::time::timeout(STEP_TIMEOUT, Self::handshake(address, name)).await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(unavailable(format!("dialling {address}: {error}"))),
            Err(_) => Err(unavailable(format!("dialling {address}: timed out"))),
        }
    }

    async fn handshake(address: &Address, name: &str) -> lapin::Result<Self> {
        let host = address.uri.authority.host.as_str();
        let places: Vec<SocketAddr> = tokio::net::lookup_host((host, address.uri.authority.port))
            .await?
            .collect();
        let runtime = lapin::runtime::default_runtime()?;
        let stream = AsyncTcpStream::connect(&runtime, places).await?;
        let AsyncTcpStream::Plain(plain) = &stream else {
            return Err(std::io::Error::other("a new stream is a plain one").into());
        };
        let handle = plain.get_ref().as_fd().try_clone_to_owned()?;
        let socket = Handshake(Some(Socket(TcpStream::from(handle))));
        let stream = match address.uri.scheme {
            AMQPScheme::AMQP => stream,
            AMQPScheme::AMQPS => {
                let tls = lapin::tcp::OwnedTLSConfig::default();
                stream.into_tls(host, tls.as_ref()).await?
            }
        };
        // Handed to lapin once: it never reconnects by itself.
        let stream = Mutex::new(Some(stream));
        let take = async move |_, _| {
            let taken = stream.lock().ok().and_then(|mut slot| slot.take());
            taken.ok_or_else(|| std::io::Error::other("the stream was taken already").into())
        };
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let connection =
            Connection::connector(address.uri.clone(), runtime, take, properties).await?;
        Ok(Self {
            connection,
            socket: socket.finish(),
        })
    }

    pub(super) async fn open_channel(&self) -> Result<Channel, QueueError> {
        bounded("opening a channel", self.connection.create_channel()).await
    }

    /// A view that outlives the connection.
    pub(super) fn status(&self) -> ConnectionStatus {
        self.connection.status().clone()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// Whether the broker has stopped reading what we write.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// Ends the connection without a farewell, which a broken one would wait
    /// for in vain.
    pub(super) fn sever(&self) {
        self.socket.shut();
    }
}

/// A second handle on a connection's socket, to end it with.
struct Socket(TcpStream);

impl Socket {
    fn shut(&self) {
        // It fails if the socket is closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// Ends the socket of a handshake that failed, timed out or was given up.
struct Handshake(Option<Socket>);

impl Handshake {
    fn finish(mut self) -> Socket {
        self.0.take().expect("taken only here, by value")
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        if let Some(socket) = &self.0 {
            socket.shut();
        }
    }
}

/// Exponential waits between dials, each between half and all of its step, so
/// that a fleet does not come back in one moment.
pub(super) struct Backoff {
    next: Duration,
    random: StdRng,
}

impl Backoff {
    pub(super) fn new() -> Self {
        // The seed spreads a fleet, nothing more: without one it still works.
        let random = StdRng::try_from_rng(&mut SysRng)
            .unwrap_or_else(|_| StdRng::seed_from_u64(u64::from(std::process::id())));
        Self {
            next: BACKOFF_FIRST,
            random,
        }
    }

    pub(super) async fn wait(&mut self) {
        let wait = self.next.mul_f64(self.random.random_range(0.5..=1.0));
        self.next = (self.next * 2).min(BACKOFF_LONGEST);
        tokio::time::sleep(wait).await;
    }
}

/// At most [`STEP_TIMEOUT`] for one exchange with the broker.
pub(super) async fn bounded<T>(
    what: &str,
    exchange: impl Future<Output = lapin::Result<T>>,
) -> Result<T, QueueError> {
    match tokio::time::timeout(STEP_TIMEOUT, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(unavailable(format!("{what}: {error}"))),
        Err(_) => Err(unavailable(format!("{what}: timed out"))),
    }
}

pub(super) fn unavailable(reason: impl Into<String>) -> QueueError {
    QueueError::Unavailable(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_ever_printed() {
        let address = Address::parse("amqp://paceline:s3cret@broker:5673/%2f").unwrap();
        assert_eq!(format!("{address:?}"), r#"Address(broker:5673, vhost "/")"#);
        for url in [
            "http://u:s3cret@broker",
            "amqp:s3cret",
            "s3cret",
            "amqp://u:s3cret@h:no",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_ipv6_host_is_not_localhost() {
        let address = Address::parse("amqp://[::1]:5673/").unwrap();
        assert_eq!(address.uri.authority.host, "::1");
    }

    #[test]
    fn frames_are_small_where_we_publish_unless_the_url_says_otherwise() {
        for (query, consuming, publishing) in [
            ("", None, FRAME_BYTES),
            ("?frame_max=65536", Some(65_536), 65_536),
        ] {
            let address = Address::parse(&format!("amqp://broker/%2f{query}")).unwrap();
            assert_eq!(address.uri.query.frame_max, consuming);
            let address = address.for_publishing();
            assert_eq!(address.uri.query.frame_max, Some(publishing));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_double_up_to_the_longest() {
        let mut backoff = Backoff::new();
        for step in [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
            let before = tokio::time::Instant::now();
            backoff.wait().await;
            let waited = before.elapsed();
            let step = Duration::from_millis(step);
            assert!(waited + Duration::from_millis(2) >= step / 2, "{waited:?}");
            assert!(waited <= step + Duration::from_millis(2), "{waited:?}");
        }
    }
}
