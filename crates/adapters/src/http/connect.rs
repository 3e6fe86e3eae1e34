//! From an endpoint to a connection that is ready for its first request:
//! addresses, TCP, TLS, the handshake of HTTP/1.1 or HTTP/2, each bounded on its
//! own. The caller bounds their sum.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{ClientIdentity, SendError};
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use super::connection::AtRest;
use super::dial::Dial;
use super::endpoint::{Endpoint, Origin, Scheme};
use super::identities::Identities;
use super::policy::{Policy, Vetted};
use super::proxy::ProxyAway;
use super::resolve::Resolver;
use super::sessions::Sessions;
use super::verifier::Bounded;
use crate::unsent::take_little;

/// For all addresses of a destination together.
const TCP_TIMEOUT: Duration = Duration::from_secs(5);

/// For the TLS handshake.
const TLS_TIMEOUT: Duration = Duration::from_secs(5);

/// What it is called in there.
const HTTP2: &[u8] = b"h2";

/// Opens connections.
pub(super) struct Connector {
    policy: Arc<Policy>,
    resolver: Resolver,
    dial: Arc<dyn Dial>,
    /// Or why there is no TLS on this host.
    tls: Result<Identities, String>,
}

impl Connector {
    pub(super) fn new(
        policy: Arc<Policy>,
        name_servers: &[SocketAddr],
        dial: Arc<dyn Dial>,
        tls: Result<ClientConfig, rustls::Error>,
    ) -> Self {
        Self {
            policy,
            resolver: Resolver::new(name_servers),
            dial,
            tls: tls.map(Identities::new).map_err(|error| error.to_string()),
        }
    }

    pub(super) fn tls(&self) -> Result<&Identities, SendError> {
        self.tls.as_ref().map_err(|why| failed("tls", why))
    }

    /// As this one, or as nobody.
    pub(super) async fn connect(
        &self,
        endpoint: &Endpoint,
        identity: Option<&ClientIdentity>,
    ) -> Result<AtRest, SendError> {
        let origin = &endpoint.origin;
        if identity.is_some() && origin.scheme == Scheme::Http {
            let problem = "a client certificate can only be shown over https";
            return Err(SendError::Refused(problem.to_owned()));
        }
        let addresses = self.resolver.choose(origin, &self.policy).await?;
        let tcp = self.connect_first(&addresses).await?;
        // A request is written in one piece: waiting to fill a segment would
        // only delay it.
        tcp.set_nodelay(true)
            .map_err(|error| failed("tcp", &error))?;
        let opened = match origin.scheme {
            Scheme::Http => AtRest::open(Box::new(tcp)).await,
            Scheme::Https => {
                let tls = self.secure(tcp, (origin, identity)).await?;
                if tls.get_ref().1.alpn_protocol() == Some(HTTP2) {
                    // A request waits behind what others wrote: what the kernel takes counts
                    // as left, and is not to lie there.
                    if let Err(error) = take_little(tls.get_ref().0) {
                        tracing::debug!(%error, "the system takes as much as it likes");
                    }
                    AtRest::multiplexed(Box::new(tls)).await
                } else {
                    AtRest::open(Box::new(tls)).await
                }
            }
        };
        opened.map_err(|why| failed("http", &why))
    }

    /// The first address that answers. Each gets an equal share of the time
    /// that is left, so that one which swallows packets leaves some to the next.
    async fn connect_first(&self, addresses: &[Vetted]) -> Result<TcpStream, SendError> {
        let deadline = Instant::now() + TCP_TIMEOUT;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
            let share = deadline
                .saturating_duration_since(Instant::now())
                .as_secs_f64()
                / left as f64;
            let dialled = self.dial.dial(address.address());
            match timeout(Duration::from_secs_f64(share), dialled).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) if is_of_the_proxy(&error) => {
                    return Err(SendError::NoWay(error.to_string()));
                }
                Ok(Err(error)) => last = error,
                Err(_elapsed) => last = io::Error::from(io::ErrorKind::TimedOut),
            }
        }
        match last.kind() {
            io::ErrorKind::TimedOut => Err(SendError::TimedOut(TCP_TIMEOUT)),
            _ => Err(failed("tcp", &last)),
        }
    }

    async fn secure(
        &self,
        tcp: TcpStream,
        (origin, identity): (&Origin, Option<&ClientIdentity>),
    ) -> Result<TlsStream<TcpStream>, SendError> {
        let tls = self.tls()?.of(identity)?;
        let handshake = tls.connect(origin.server_name()?, tcp);
        match timeout(TLS_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(failed("tls", &error)),
            Err(_elapsed) => Err(failed(
                "tls",
                &format!("no handshake within {TLS_TIMEOUT:?}"),
            )),
        }
    }
}

/// The same with HTTP/2 offered before HTTP/1.1: for destinations, whose connections speak
/// what was chosen.
pub(super) fn with_http2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols.insert(0, HTTP2.to_vec());
    config
}

/// A client's side of TLS: the host's roots and these, and no way to switch verification
/// off. HTTP/1.1 is the only protocol offered, so that nobody answers in another.
pub fn tls_config(
    extra_roots: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier::new_with_extra_roots(extra_roots, Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous() // the name of the way to a verifier of one's own: this is the host's
        .with_custom_certificate_verifier(Arc::new(Bounded(Arc::new(verifier))))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::store(Arc::new(Sessions::default()));
    Ok(config)
}

fn is_of_the_proxy(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<ProxyAway>())
}

/// Without the address: it may be one of an inner network, and people at the
/// destination read this.
fn failed(step: &str, why: &dyn std::fmt::Display) -> SendError {
    SendError::Connect(format!("{step}: {why}"))
}
