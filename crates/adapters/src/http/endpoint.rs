//! A destination's URL, parsed once.
//!
//! By the WHATWG parser, which normalises the addresses that hide in
//! `0x7f.1` or `2130706433`, so that whoever vets the host sees what will be
//! connected to. Its errors name the rule and never the URL: URLs carry
//! secrets.

use std::net::IpAddr;
use std::sync::Arc;

use engine::ports::SendError;
use http::header::HeaderValue;
use http::uri::{PathAndQuery, Uri};
use rustls::pki_types::ServerName;
use url::{Host, Position, Url};

use super::policy::Policy;

/// Which transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// What two URLs have in common when they may share a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) scheme: Scheme,
    pub(super) host: Host,
    pub(super) port: u16,
}

impl Origin {
    /// The name that the receiver's certificate must carry.
    pub(super) fn server_name(&self) -> Result<ServerName<'static>, SendError> {
        match &self.host {
            Host::Domain(name) => ServerName::try_from(name.clone())
                .map_err(|_invalid| refused("the host is not a name that TLS can verify")),
            Host::Ipv4(address) => Ok(ServerName::from(IpAddr::from(*address))),
            Host::Ipv6(address) => Ok(ServerName::from(IpAddr::from(*address))),
        }
    }
}

/// Where the requests of one URL go and what they name.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub(super) origin: Arc<Origin>,
    /// The value of the `host` header: the port only where it is not the
    /// scheme's own.
    pub(super) authority: HeaderValue,
    /// Path and query as they are sent; the fragment is not.
    pub(super) request_target: Uri,
}

impl Endpoint {
    /// Refuses whatever is not an absolute `https` (or allowed `http`) URL
    /// without user information, to a host whose certificate can be verified,
    /// at a port that is open somewhere. Addresses are vetted when they are
    /// known: at the connect.
    pub(super) fn parse(text: &str, policy: &Policy) -> Result<Self, SendError> {
        let url = Url::parse(text).map_err(|error| refused(&format!("not a URL: {error}")))?;
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" if policy.allow_http => Scheme::Http,
            "http" => return Err(refused("plain http is not allowed")),
            _ => return Err(refused("the scheme is not http or https")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refused("the URL contains user information"));
        }
        let host = match url.host() {
            Some(host) => host.to_owned(),
            None => return Err(refused("the URL has no host")),
        };
        let port = match url.port_or_known_default() {
            Some(port) if port != 0 => port,
            _ => return Err(refused("port 0 cannot be connected to")),
        };
        policy.vet_port(port)?;
        let origin = Origin { scheme, host, port };
        if scheme == Scheme::Https {
            origin.server_name()?;
        }
        Ok(Self {
            authority: HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort])
                .map_err(|_invalid| refused("the host is not a header value"))?,
            request_target: url[Position::BeforePath..Position::AfterQuery]
                .parse::<PathAndQuery>()
                .map_err(|_invalid| refused("the path is not a request target"))?
                .into(),
            origin: Arc::new(origin),
        })
    }
}

fn refused(why: &str) -> SendError {
    SendError::Refused(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Policy {
        Policy {
            allow_http: true,
            networks: vec!["0.0.0.0/0:*".parse().unwrap()],
            ..Policy::default()
        }
    }

    #[test]
    fn names_what_is_sent() {
        let cases = [
            ("https://Example.com", "example.com", 443, "/"),
            ("https://example.com:443/a", "example.com", 443, "/a"),
            (
                "https://example.com:8443/a?b=c#d",
                "example.com:8443",
                8443,
                "/a?b=c",
            ),
            ("http://127.1:81/x y", "127.0.0.1:81", 81, "/x%20y"),
            ("http://2130706433/", "127.0.0.1", 80, "/"),
            ("https://[::1]:444/?q=`{|}", "[::1]:444", 444, "/?q=`{|}"),
        ];
        for (url, authority, port, target) in cases {
            let endpoint = Endpoint::parse(url, &open()).unwrap();
            assert_eq!(endpoint.authority, authority, "{url}");
            assert_eq!(endpoint.origin.port, port, "{url}");
            assert_eq!(endpoint.request_target, target, "{url}");
        }
    }

    #[test]
    fn verifies_names_and_addresses() {
        for url in [
            "https://example.com",
            "https://192.0.2.1",
            "https://[2001:db8::1]",
        ] {
            Endpoint::parse(url, &Policy::default())
                .unwrap()
                .origin
                .server_name()
                .unwrap();
        }
    }
}
