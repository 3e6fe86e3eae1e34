//! The networks that an operator opens, although they are not public.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;

use super::address::{self, AddressKind};

/// Ports.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ports {
    /// Those that are allowed everywhere.
    Usual,
    /// These.
    These(RangeInclusive<u16>),
}

/// What an operator opens by one word: a network, an address, or `private` or
/// `localhost`, with the ports that requests may go to there.
///
/// ```
/// use adapters::http::AllowedNetwork;
/// for text in [
///     "10.0.0.0/8",
///     "192.168.1.20:8123",
///     "[fd12:3456::/48]:8000-8999",
///     "::1",
///     "private",
///     "localhost:*",
/// ] {
///     let network: AllowedNetwork = text.parse().unwrap();
///     assert_eq!(network.to_string(), text);
/// }
/// ```
///
/// Without ports, those that are allowed everywhere. A metadata service is
/// opened by its own address alone, never by a network around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNetwork {
    /// As it was written.
    text: String,
    networks: Vec<IpNet>,
    ports: Ports,
}

impl AllowedNetwork {
    /// Whether a request may go there. `usual` are the ports that are allowed
    /// everywhere.
    pub(super) fn covers(&self, address: IpAddr, port: u16, usual: &[u16]) -> bool {
        self.has_port(port, usual) && self.networks.iter().any(|one| opens(one, address))
    }

    pub(super) fn has_port(&self, port: u16, usual: &[u16]) -> bool {
        match &self.ports {
            Ports::Usual => usual.contains(&port),
            Ports::These(ports) => ports.contains(&port),
        }
    }
}

fn opens(network: &IpNet, address: IpAddr) -> bool {
    let single = network.prefix_len() == network.max_prefix_len();
    let guarded = address::kind(address) == AddressKind::Metadata;
    network.contains(&address) && (single || !guarded)
}

/// Why a word opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a network, an address, `private` or `localhost`, each with or without `:PORTS`, \
     such as 10.0.0.0/8, 192.168.1.20:8123, [fd12::/48]:8000-8999 or localhost:*"
)]
pub struct NotANetwork;

impl FromStr for AllowedNetwork {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        // Bare IPv6 has colons of its own; with ports it needs brackets.
        let (place, ports) = if let Ok(network) = network(text) {
            (vec![network], None)
        } else if let Some(rest) = text.strip_prefix('[') {
            let (place, rest) = rest.split_once(']').ok_or(NotANetwork)?;
            let ports = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(NotANetwork)?),
            };
            (vec![network(place)?], ports)
        } else {
            let (place, ports) = match text.split_once(':') {
                Some((place, ports)) => (place, Some(ports)),
                None => (text, None),
            };
            (named(place)?, ports)
        };
        Ok(Self {
            text: text.to_owned(),
            networks: place,
            ports: ports.map_or(Ok(Ports::Usual), self::ports)?,
        })
    }
}

fn named(place: &str) -> Result<Vec<IpNet>, NotANetwork> {
    let words: &[&str] = match place {
        "private" => &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"],
        "localhost" => &["127.0.0.0/8", "::1/128"],
        other => &[other],
    };
    words.iter().map(|word| network(word)).collect()
}

/// One that is written with host bits is a typing error: `10.1.2.3/8` opens
/// more than it seems to.
fn network(text: &str) -> Result<IpNet, NotANetwork> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address::canonical(address)),
        Err(_) => text.parse::<IpNet>().map_err(|_invalid| NotANetwork)?,
    };
    (network.trunc() == network)
        .then_some(network)
        .ok_or(NotANetwork)
}

fn ports(text: &str) -> Result<Ports, NotANetwork> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(NotANetwork),
    };
    let (first, last) = match text.split_once('-') {
        _ if text == "*" => (1, u16::MAX),
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    if first > last {
        return Err(NotANetwork);
    }
    Ok(Ports::These(first..=last))
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(network: &str, address: &str, port: u16) -> bool {
        let network: AllowedNetwork = network.parse().unwrap();
        network.covers(address.parse().unwrap(), port, &[443, 80])
    }

    #[test]
    fn what_a_word_opens() {
        for (network, address, port, open) in [
            ("10.0.0.0/8", "10.255.255.255", 443, true),
            ("10.0.0.0/8", "10.0.0.1", 6379, false),
            ("10.0.0.0/8", "11.0.0.0", 443, false),
            ("10.0.0.0/8:*", "10.0.0.1", 6379, true),
            ("192.168.1.20:8123", "192.168.1.20", 8123, true),
            ("192.168.1.20:8123", "192.168.1.20", 443, false),
            ("192.168.1.20:8123", "192.168.1.21", 8123, false),
            ("192.168.1.20", "192.168.1.20", 80, true),
            ("::ffff:10.0.0.1", "10.0.0.1", 80, true),
            ("[fd12::/48]:8000-8999", "fd12::1", 8999, true),
            ("[fd12::/48]:8000-8999", "fd12::1", 9000, false),
            ("fd12::/48", "fd12::1", 443, true),
            ("[::1]:9000", "::1", 9000, true),
            ("private", "172.31.0.1", 443, true),
            ("private", "fd00::1", 443, true),
            ("private", "127.0.0.1", 443, false),
            ("localhost:9000", "127.1.2.3", 9000, true),
            ("localhost:9000", "::1", 9000, true),
        ] {
            assert_eq!(
                covers(network, address, port),
                open,
                "{network} {address} {port}"
            );
        }
    }

    #[test]
    fn a_metadata_service_is_opened_by_its_own_address_alone() {
        for around in ["169.254.0.0/16", "0.0.0.0/0", "169.254.169.254/31"] {
            assert!(!covers(around, "169.254.169.254", 80), "{around}");
        }
        assert!(covers("169.254.0.0/16", "169.254.1.1", 80));
        assert!(!covers("private", "fd00:ec2::254", 80));
        assert!(covers("169.254.169.254", "169.254.169.254", 80));
        assert!(covers("fd00:ec2::254/128", "fd00:ec2::254", 80));
    }

    #[test]
    fn typing_errors_open_nothing() {
        for text in [
            "",
            "*",
            ":",
            ":80",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "10.0.0",
            "10.0.0.0/8:",
            "10.0.0.0/8:0",
            "10.0.0.0/8:65536",
            "10.0.0.0/8:90-80",
            "10.0.0.0/8:80-",
            "fd12::1/48",
            "[fd12::/48",
            "[fd12::/48]80",
            "[fd12::/48]:",
            "example.com",
            "private/8",
            "Private",
            " 10.0.0.0/8",
            "[10.0.0.0/8]x",
            "10.0.0.0/8:80:81",
            "[]",
        ] {
            assert_eq!(text.parse::<AllowedNetwork>(), Err(NotANetwork), "{text}");
        }
    }
}
