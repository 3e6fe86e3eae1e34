//! Where requests may go: the one place that decides it.
//!
//! A [`Vetted`] address is made here and nowhere else, and it is all that can
//! be connected to. So there is no way from a URL or a name to a socket that
//! leads around this file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use engine::ports::SendError;
use url::{Host, Url};

use super::address::{self, AddressKind, Nat64Prefix, canonical, is_local_nat64};
use super::networks::AllowedNetwork;

/// The ports of `https` and `http`, and what stands in for them where a service
/// may not listen below 1024. Others are those of databases, mail and shells.
pub const USUAL_PORTS: [u16; 4] = [443, 80, 8443, 8080];

/// Where requests may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Whether plain `http` URLs are allowed. For development and for networks
    /// that are trusted as a whole: payloads travel in the clear.
    pub allow_http: bool,
    /// The ports of public addresses.
    pub ports: Vec<u16>,
    /// What is open although it is not public, or at other ports.
    pub networks: Vec<AllowedNetwork>,
    /// The prefixes of NAT64 in this network. What stands behind one is as open as it is
    /// without: a gateway is a way to all of IPv4, and its address says nothing of where.
    pub nat64: Vec<Nat64Prefix>,
}

impl Default for Policy {
    /// `https` to public addresses.
    fn default() -> Self {
        Self {
            allow_http: false,
            ports: USUAL_PORTS.to_vec(),
            networks: Vec::new(),
            nat64: Vec::new(),
        }
    }
}

/// Why an address is refused. Without the address, and without what would open it:
/// people at the destination read this, and it may be one of an inner network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not public.
    #[error("{0} addresses are not allowed")]
    Address(AddressKind),
    /// Not a port for requests.
    #[error("port {0} is not allowed")]
    Port(u16),
}

impl From<Refusal> for SendError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.to_string())
    }
}

/// An address that may be connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vetted(SocketAddr);

impl Vetted {
    /// The address, in its one form: what is connected to is what was vetted.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        self.0
    }
}

impl Policy {
    /// Vets one address.
    ///
    /// # Errors
    /// Why nothing may be connected to there.
    pub fn vet(&self, address: IpAddr, port: u16) -> Result<Vetted, Refusal> {
        let address = canonical(address);
        let mut prefixes = self.nat64.iter().filter(|one| one.contains(address));
        if let Some(first) = prefixes.next() {
            // Which of several gateways has it, routes say, and we do not know.
            for prefix in std::iter::once(first).chain(prefixes) {
                let behind = prefix.behind(address);
                let behind = behind.ok_or(Refusal::Address(AddressKind::Translated))?;
                self.vet(behind.into(), port)?;
            }
            return Ok(Vetted(SocketAddr::new(address, port)));
        }
        let kind = address::kind(address);
        if kind == AddressKind::Public && self.ports.contains(&port) || self.opened(address, port) {
            // Without a scope: a link-local address needs one, and has none here.
            return Ok(Vetted(SocketAddr::new(address, port)));
        }
        Err(match kind {
            AddressKind::Public => Refusal::Port(port),
            special => Refusal::Address(special),
        })
    }

    /// Vets every address that a name has; one that is refused refuses the
    /// name. Whoever answers with a mixture wants us to pick the wrong one.
    ///
    /// # Errors
    /// The first refusal.
    pub fn vet_all(
        &self,
        addresses: impl IntoIterator<Item = IpAddr>,
        port: u16,
    ) -> Result<Vec<Vetted>, Refusal> {
        let vet = |address| self.vet(address, port);
        addresses.into_iter().map(vet).collect()
    }

    /// What can be said of a URL without asking a name server: its port, and
    /// its host if that is an address or a name of this host. For those who
    /// write URLs down; what is sent is vetted again, at every connect.
    ///
    /// # Errors
    /// Why nothing would ever be sent there.
    pub fn vet_url(&self, url: &Url) -> Result<(), Refusal> {
        let Some(port) = url.port_or_known_default() else {
            return Ok(());
        };
        match url.host() {
            Some(Host::Ipv4(address)) => self.vet(address.into(), port).map(|_| ()),
            Some(Host::Ipv6(address)) => self.vet(address.into(), port).map(|_| ()),
            Some(Host::Domain(name)) if is_localhost(name) => {
                let both = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                self.vet_all(both, port).map(|_| ())
            }
            Some(Host::Domain(_)) => self.vet_port(port),
            None => Ok(()),
        }
    }

    /// The flag that would open what was refused, for those who run this.
    #[must_use]
    pub fn opened_by(&self, host: &str, port: u16, refusal: Refusal) -> String {
        match refusal {
            Refusal::Address(_) => format!("--allow-networks {host}:{port}"),
            Refusal::Port(port) => {
                let ports = self.ports.iter().chain([&port]);
                let ports: Vec<String> = ports.map(ToString::to_string).collect();
                format!("--allow-ports {}", ports.join(","))
            }
        }
    }

    /// Whether the port is open anywhere.
    pub(super) fn vet_port(&self, port: u16) -> Result<(), Refusal> {
        let somewhere = |network: &AllowedNetwork| network.has_port(port, &self.ports);
        if self.ports.contains(&port) || self.networks.iter().any(somewhere) {
            return Ok(());
        }
        Err(Refusal::Port(port))
    }

    /// Opened by the operator. The well-known prefix of NAT64 is a door to all of IPv4, so
    /// the address behind it has to be allowed as well; of a local one nobody knows which
    /// address that is, unless it is named.
    fn opened(&self, address: IpAddr, port: u16) -> bool {
        let covers = |network: &AllowedNetwork| network.covers(address, port, &self.ports);
        let behind = Nat64Prefix::WELL_KNOWN.behind(address);
        self.networks.iter().any(covers)
            && !is_local_nat64(address)
            && behind.is_none_or(|behind| self.vet(behind.into(), port).is_ok())
    }
}

/// Names of this host by RFC 6761: no name server is asked for them.
fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}
