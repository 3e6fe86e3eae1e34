//! Through a proxy: by CONNECT, or by SOCKS 5.
//!
//! A proxy is told the address that was vetted and never a name, so it looks nothing up and
//! connects to nothing that the policy has not seen. TLS goes through it, from us to the
//! receiver.
//!
//! What the proxy itself cannot do is no receiver's failure ([`ProxyAway`]): while it is
//! away, or does not let us in, permits go back and nobody's breaker opens. What it says of a
//! receiver, that it is not there, is.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_socks::tcp::Socks5Stream;
use url::Url;
use zeroize::Zeroizing;

use super::dial::Dial;

/// A proxy is in our own network, and less than what an address has: a dial tries eight of
/// them in five seconds.
const REACHED_WITHIN: Duration = Duration::from_millis(500);

/// A proxy, as its URL names it: `http://proxy:3128`, `socks5://user:password@proxy:1080`.
#[derive(Clone)]
pub struct EgressProxy {
    way: Way,
    host: String,
    port: u16,
    user: String,
    password: Zeroizing<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Connect,
    Socks5,
}

/// The text names no proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a proxy: {0}")]
pub struct NotAProxy(&'static str);

impl FromStr for EgressProxy {
    type Err = NotAProxy;

    fn from_str(text: &str) -> Result<Self, NotAProxy> {
        let url = Url::parse(text).map_err(|_unparsed| NotAProxy("a URL is wanted"))?;
        let (way, usual) = match url.scheme() {
            "http" => (Way::Connect, 80),
            "socks5" | "socks5h" => (Way::Socks5, 1_080),
            _ => return Err(NotAProxy("it begins with http:// or socks5://")),
        };
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or(NotAProxy("it has no host"))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(NotAProxy("nothing comes after its port"));
        }
        let decoded = |part: &str| {
            let decoded = percent_encoding::percent_decode_str(part).decode_utf8();
            decoded
                .map(String::from)
                .map_err(|_unparsed| NotAProxy("its user is no text"))
        };
        let user = decoded(url.username())?;
        let password = Zeroizing::new(decoded(url.password().unwrap_or_default())?);
        if user.is_empty() != password.is_empty() {
            return Err(NotAProxy("a user and a password come together"));
        }
        if way == Way::Connect && user.contains(':') {
            return Err(NotAProxy("its user has a colon"));
        }
        if way == Way::Socks5 && (user.len() > 255 || password.len() > 255) {
            return Err(NotAProxy(
                "SOCKS has at most 255 bytes for a user and a password",
            ));
        }
        Ok(Self {
            way,
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(usual),
            user,
            password,
        })
    }
}

/// Without its password.
impl fmt::Debug for EgressProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.way {
            Way::Connect => "http",
            Way::Socks5 => "socks5",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)
    }
}

/// Dials through a proxy.
#[derive(Debug)]
pub struct DialThrough {
    proxy: EgressProxy,
    /// Whether it was away or let us not in, and that was said.
    is_away: AtomicBool,
}

/// Nobody can be reached: it is not there, or does not let us in.
#[derive(Debug, thiserror::Error)]
#[error("no way through the proxy: {0}")]
pub(super) struct ProxyAway(String);

/// Why there is no way through a proxy.
enum NoWay {
    /// It is not there, or not for us: `Display` says which.
    Proxy(String),
    /// What it says of the address.
    Address(io::Error),
}

impl DialThrough {
    /// Through this one.
    #[must_use]
    pub fn new(proxy: EgressProxy) -> Self {
        Self {
            proxy,
            is_away: AtomicBool::new(false),
        }
    }

    async fn attempt(&self, address: SocketAddr) -> Result<TcpStream, NoWay> {
        let proxy = &self.proxy;
        let stream = TcpStream::connect((proxy.host.as_str(), proxy.port));
        let stream = match timeout(REACHED_WITHIN, stream).await {
            Ok(stream) => stream.map_err(|error| NoWay::Proxy(error.to_string()))?,
            Err(_elapsed) => return Err(NoWay::Proxy("it does not answer".to_owned())),
        };
        match proxy.way {
            Way::Connect => proxy.connect(stream, address).await,
            Way::Socks5 => proxy.socks(stream, address).await,
        }
    }
}

#[async_trait]
impl Dial for DialThrough {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let why = match self.attempt(address).await {
            Ok(stream) => {
                self.is_away.store(false, Relaxed);
                return Ok(stream);
            }
            Err(NoWay::Address(error)) => return Err(error),
            Err(NoWay::Proxy(why)) => why,
        };
        if !self.is_away.swap(true, Relaxed) {
            tracing::warn!(proxy = ?self.proxy, why, "no way through the proxy: nothing is sent");
        }
        Err(io::Error::other(ProxyAway(why)))
    }
}

impl EgressProxy {
    /// RFC 9110, 9.3.6.
    async fn connect(&self, stream: TcpStream, address: SocketAddr) -> Result<TcpStream, NoWay> {
        let broken = |error: hyper::Error| NoWay::Proxy(error.to_string());
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::CONNECT;
        let authority = address.to_string();
        *request.uri_mut() = (authority.parse())
            .map_err(|_unparsed| NoWay::Address(io::ErrorKind::InvalidInput.into()))?;
        let headers = request.headers_mut();
        // An address is digits, dots, colons and brackets.
        headers.extend(HeaderValue::from_str(&authority).map(|value| (HOST, value)));
        headers.extend(
            self.authorization()
                .map(|value| (PROXY_AUTHORIZATION, value)),
        );
        let driven = connection.with_upgrades();
        let mut asked = pin!(async {
            let answer = requests.send_request(request).await.map_err(broken)?;
            match answer.status() {
                status if status.is_success() => hyper::upgrade::on(answer).await.map_err(broken),
                status @ StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                    Err(NoWay::Proxy(format!("it answers {status}")))
                }
                status => {
                    let problem = format!("the proxy answers {status}");
                    Err(NoWay::Address(io::Error::other(problem)))
                }
            }
        });
        let upgraded = tokio::select! {
            biased;
            upgraded = &mut asked => upgraded,
            // It ends with its upgrade, or because it breaks: what was asked says how.
            _ = driven => asked.await,
        };
        let parts = upgraded?.downcast::<TokioIo<TcpStream>>();
        let parts =
            parts.map_err(|_other| NoWay::Proxy("it is no connection of ours".to_owned()))?;
        match parts.read_buf.is_empty() {
            true => Ok(parts.io.into_inner()),
            // Nobody has been spoken to yet.
            false => Err(NoWay::Proxy(
                "it speaks before the receiver is asked".to_owned(),
            )),
        }
    }

    fn authorization(&self) -> Option<HeaderValue> {
        if self.user.is_empty() && self.password.is_empty() {
            return None;
        }
        let pair = Zeroizing::new(format!("{}:{}", self.user, self.password.as_str()));
        let basic = Zeroizing::new(format!("Basic {}", BASE64_STANDARD.encode(pair.as_bytes())));
        let mut value = HeaderValue::from_str(&basic).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// RFC 1928 and 1929.
    async fn socks(&self, stream: TcpStream, address: SocketAddr) -> Result<TcpStream, NoWay> {
        use tokio_socks::Error;
        let tunnel = match self.user.is_empty() {
            true => Socks5Stream::connect_with_socket(stream, address).await,
            false => {
                let (user, password) = (self.user.as_str(), self.password.as_str());
                Socks5Stream::connect_with_password_and_socket(stream, address, user, password)
                    .await
            }
        };
        tunnel
            .map(Socks5Stream::into_inner)
            .map_err(|error| match error {
                Error::Io(_)
                | Error::InvalidResponseVersion
                | Error::InvalidReservedByte
                | Error::NoAcceptableAuthMethods
                | Error::UnknownAuthMethod
                | Error::InvalidAuthValues(_)
                | Error::PasswordAuthFailure(_)
                | Error::AuthorizationRequired => NoWay::Proxy(error.to_string()),
                // Whatever else it says is of this address: another one may be let pass.
                error => NoWay::Address(io::Error::other(format!("the proxy says: {error}"))),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_by_its_url() {
        let shown = |text: &str| {
            text.parse::<EgressProxy>()
                .map(|proxy| format!("{proxy:?}"))
        };
        assert_eq!(shown("http://proxy").unwrap(), "http://proxy:80");
        let socks = shown("socks5://me:secret@[::1]").unwrap();
        assert_eq!(socks, "socks5://::1:1080");
        let decoded: EgressProxy = "http://me:p%40ss@proxy:3128/".parse().unwrap();
        assert_eq!(
            (decoded.user.as_str(), decoded.password.as_str()),
            ("me", "p@ss")
        );
        for bad in [
            "proxy:3128",
            "https://proxy",
            "http://",
            "http://proxy/path",
            "http://proxy?a=b",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
