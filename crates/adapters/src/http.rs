//! The `Sender` over HTTP/1.1 and HTTP/2: one POST, once, to exactly the address that was
//! chosen for it; and by the same rules the `Asker`, one OPTIONS, and the `Granter`, one
//! POST to a token server.
//!
//! ```text
//!  Target ─ endpoint ─► pool ── idle, still ready ────────────────────► Prepared
//!           (parse)       └─ none ─► line ─► resolve, connect (TCP, TLS) ──┘ │
//!                                                                            ▼
//!             pool, line ◄─ whole response read, kept alive ─ exchange ─► Response
//! ```
//!
//! It owns the connections to destinations. It promises that nothing is sent
//! twice, that every byte read and every wait is bounded, and that a request
//! that is dropped closes its connection at once, or over HTTP/2 its stream: a
//! connection over HTTP/1.1 has no task of its own, whoever holds it drives it.
//! A dial has one: it goes on when who waited for it has no more time; and so has a
//! connection over HTTP/2, as long as somebody has a place on it or it is idle. It connects only to addresses that its
//! [`Policy`] has vetted, each time that it connects, and tells a proxy, where one is
//! set, that address and no name. It refuses to follow redirects, to decompress and to
//! keep cookies: those would connect to places that nobody chose.
//!
//! hyper's connections and not a client on top of them: such a client sends
//! again by itself when a reused connection turns out to be dead.

pub mod address;
mod certificate;
mod connect;
mod connection;
mod connections;
mod dial;
mod endpoint;
mod endpoints;
mod exchange;
mod frames;
#[cfg(test)]
mod fuzz;
mod http1;
mod http2;
mod identities;
mod metered;
mod networks;
mod policy;
mod pool;
mod proxy;
mod resolve;
mod sessions;
mod stream;
mod token;
mod verifier;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::credentials::OAuthClient;
use domain::handshake::{Origin, Reply};
use domain::ids::DestinationId;
use domain::signature::HeaderPrefix;
use engine::ports::{
    Asker, ClientIdentity, Granter, Prepared, Question, SendError, Sender, Target, TokenAnswer,
};
use futures_util::FutureExt;
use rustls::pki_types::CertificateDer;
use tokio::time::timeout;
use url::Host;

pub use certificate::check_certificate;
pub use connect::tls_config;
use connect::{Connector, with_http2};
use connection::AtRest;
use connections::{Connections, Dialled, Lined};
use endpoint::Endpoint;
use endpoints::Endpoints;
use exchange::Exchange;
use pool::{Key, PoolLimits};

pub use address::{Nat64Prefix, NotANat64Prefix};
pub use dial::{Dial, DialDirect};
pub use exchange::{OwnHeaders, SignatureNames};
pub use networks::{AllowedNetwork, NotANetwork};
pub use policy::{Policy, Refusal, USUAL_PORTS, Vetted};
pub use proxy::{DialThrough, EgressProxy, NotAProxy};

/// What an [`HttpSender`] may do, and how many idle connections it keeps.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Where requests may go.
    pub policy: Policy,
    /// Who is asked for addresses; if empty, the name servers of the host.
    pub name_servers: Vec<SocketAddr>,
    /// What opens the sockets.
    pub dial: Arc<dyn Dial>,
    /// Who receivers are asked as.
    pub origin: Option<Origin>,
    /// What the headers of a signature begin with.
    pub signature_prefix: HeaderPrefix,
    /// Whether receivers are offered HTTP/2, over TLS. Those that do not choose it are sent
    /// to over HTTP/1.1. Off, because a segment that is lost delays all requests of a
    /// connection together, by more than the margin of a limit covers.
    pub http2: bool,
    /// Roots to trust besides the host's.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Idle connections kept for one destination.
    pub max_idle_per_destination: usize,
    /// Idle connections kept in all. Each holds one file descriptor and a KiB of memory,
    /// over TLS what that needs besides.
    pub max_idle: usize,
    /// How long a connection may be idle. Below the keep-alive of common
    /// servers and load balancers (60 to 75 s), so that we are the one who
    /// closes; a shorter one that the receiver announces is respected.
    pub max_idle_age: Duration,
    /// How long a connection may live, so that a change of DNS is followed, and
    /// so that an address which would be refused today is left by then.
    pub max_age: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            name_servers: Vec::new(),
            dial: Arc::new(DialDirect),
            origin: None,
            signature_prefix: HeaderPrefix::default(),
            http2: false,
            extra_roots: Vec::new(),
            max_idle_per_destination: 64,
            max_idle: 16_384,
            max_idle_age: Duration::from_secs(30),
            max_age: Duration::from_secs(300),
        }
    }
}

/// The host and port that requests to a destination's URL go to, or why none
/// would ever be sent. Resolves nothing and connects to nothing.
pub fn place(url: &str, policy: &Policy) -> Result<(Host, u16), SendError> {
    let origin = Endpoint::parse(url, policy)?.origin;
    Ok((origin.host.clone(), origin.port))
}

/// Sends over HTTP/1.1 and HTTP/2 from a bounded pool of connections.
pub struct HttpSender {
    policy: Arc<Policy>,
    connector: Arc<Connector>,
    connections: Arc<Connections>,
    endpoints: Endpoints,
    origin: Option<Origin>,
    signature_prefix: HeaderPrefix,
}

impl HttpSender {
    /// Reads the host's root certificates and name servers; opens nothing yet.
    #[must_use]
    pub fn new(options: HttpOptions) -> Self {
        let limits = PoolLimits {
            per_key: options.max_idle_per_destination,
            total: options.max_idle,
            idle_age: options.max_idle_age,
            age: options.max_age,
            http2: options.http2,
        };
        let tls = tls_config(options.extra_roots);
        let tls = match options.http2 {
            true => tls.map(with_http2),
            false => tls,
        };
        let policy = Arc::new(options.policy);
        Self {
            connector: Arc::new(Connector::new(
                Arc::clone(&policy),
                &options.name_servers,
                options.dial,
                tls,
            )),
            policy,
            connections: Arc::new(Connections::new(limits)),
            endpoints: Endpoints::default(),
            origin: options.origin,
            signature_prefix: options.signature_prefix,
        }
    }

    /// Why no `https` destination can be reached, if so: no root certificate
    /// was found on this host. To be asked at start, where it is a mistake in
    /// the deployment; later it fails attempts one by one.
    ///
    /// # Errors
    /// The reason.
    pub fn check_tls(&self) -> Result<(), SendError> {
        self.connector.tls().map(|_| ())
    }

    /// Closes the connections that have been idle for too long. Every use of
    /// the pool does that too; this is for when there is no use.
    pub fn sweep(&self) {
        self.connections.sweep();
    }

    /// How many idle connections there are.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.connections.idle()
    }

    /// An idle connection that is still ready. Those that are not are closed
    /// on the way; at most as many as one destination may have.
    async fn reuse(&self, key: &Key) -> Option<AtRest> {
        let mut turned = false;
        loop {
            let mut connection = self.connections.take(key)?;
            if !turned {
                // One turn of the runtime, in which it learns of the closes that
                // the kernel knows of already (but for one that another thread
                // is just being told of). Here and not in `send`, where a wait
                // would come between the claim and the request.
                tokio::task::yield_now().await;
                turned = true;
            }
            if connection.is_ready().await {
                return Some(connection);
            }
        }
    }

    /// A connection to there that is ready for one request.
    async fn exchange(
        &self,
        (destination, identity): (DestinationId, Option<&ClientIdentity>),
        endpoint: Arc<Endpoint>,
        limit: Duration,
    ) -> Result<Exchange, SendError> {
        let key = Key {
            destination,
            origin: Arc::clone(&endpoint.origin),
            identity: identity.map(|identity| identity.secret),
        };
        let connection = match self.reuse(&key).await {
            Some(connection) => connection,
            None => self.dialled((&key, identity), &endpoint, limit).await?,
        };
        let connections = Arc::clone(&self.connections);
        Ok(Exchange::new(connection, key, endpoint, connections))
    }

    /// The next that is opened or comes back. Dropped, it leaves the line; what it had
    /// begun goes on.
    async fn dialled(
        &self,
        (key, identity): (&Key, Option<&ClientIdentity>),
        endpoint: &Arc<Endpoint>,
        limit: Duration,
    ) -> Dialled {
        let Lined { dialled, begin } = self.connections.line_up(key)?;
        let dialling = Dialling {
            connector: Arc::clone(&self.connector),
            connections: Arc::clone(&self.connections),
            key: key.clone(),
            identity: identity.cloned(),
            endpoint: Arc::clone(endpoint),
            limit,
        };
        dialling.begin(begin);
        let gone = |_| Err(SendError::Connect("the sender has ended".to_owned()));
        dialled.await.unwrap_or_else(gone)
    }
}

/// Dials to one destination, each a task of its own.
#[derive(Clone)]
struct Dialling {
    connector: Arc<Connector>,
    connections: Arc<Connections>,
    key: Key,
    identity: Option<ClientIdentity>,
    endpoint: Arc<Endpoint>,
    /// For a dial, at most; each of its steps has a bound of its own.
    limit: Duration,
}

impl Dialling {
    fn begin(&self, dials: usize) {
        for _ in 0..dials {
            tokio::spawn(self.clone().run());
        }
    }

    async fn run(self) {
        let connecting = (self.connector).connect(&self.endpoint, self.identity.as_ref());
        let dial = timeout(self.limit, connecting);
        let dialled = match AssertUnwindSafe(dial).catch_unwind().await {
            Ok(Ok(dialled)) => dialled,
            Ok(Err(_elapsed)) => Err(SendError::TimedOut(self.limit)),
            Err(_panic) => Err(SendError::Connect("the dial panicked".to_owned())),
        };
        let begin = self.connections.ended(&self.key, dialled);
        self.begin(begin);
    }
}

#[async_trait]
impl Sender for HttpSender {
    async fn prepare(&self, target: &Target) -> Result<Box<dyn Prepared>, SendError> {
        let endpoint = self.endpoints.of(target, &self.policy)?;
        let of = (target.destination, target.identity.as_ref());
        let exchange = self.exchange(of, endpoint, target.timeout);
        let origin = self.origin.as_ref().filter(|_| target.names_origin);
        let exchange = exchange.await?.naming(origin)?;
        Ok(Box::new(exchange.prefixed(self.signature_prefix)))
    }
}

#[async_trait]
impl Asker for HttpSender {
    fn origin(&self) -> Option<&Origin> {
        self.origin.as_ref()
    }

    async fn ask(&self, question: &Question, limit: Duration) -> Result<Reply, SendError> {
        let asking = async {
            let endpoint = Arc::new(Endpoint::parse(&question.url, &self.policy)?);
            let of = (question.destination, question.identity.as_ref());
            let exchange = self.exchange(of, endpoint, limit);
            let exchange = exchange.await?.naming(self.origin.as_ref())?;
            exchange.ask(question.per_minute, limit).await
        };
        let asked = timeout(limit, asking).await;
        asked.unwrap_or(Err(SendError::TimedOut(limit)))
    }
}

#[async_trait]
impl Granter for HttpSender {
    async fn ask_for_token(
        &self,
        destination: DestinationId,
        client: &OAuthClient,
        limit: Duration,
    ) -> Result<TokenAnswer, SendError> {
        let asking = async {
            let url = &client.facts().token_url;
            let endpoint = Arc::new(Endpoint::parse(url, &self.policy)?);
            let exchange = self.exchange((destination, None), endpoint, limit).await?;
            exchange.ask_for_token(client, limit).await
        };
        let asked = timeout(limit, asking).await;
        asked.unwrap_or(Err(SendError::TimedOut(limit)))
    }
}
