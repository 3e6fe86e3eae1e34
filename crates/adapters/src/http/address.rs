//! Which addresses are public: a pure function of an address.
//!
//! IPv4 is public but for the blocks of IANA's special-purpose registry,
//! multicast, the reserved rest, and the addresses at which clouds hand out
//! credentials. IPv6 is the other way round: public only inside 2000::/3, the
//! part that is given out as global unicast, and there but for the blocks that
//! are special or carry an IPv4 address. So an IPv6 block that is invented
//! tomorrow is refused until somebody allows it.
//!
//! Blocks that the registry calls globally reachable but that are anycast
//! services of the network itself (AS112, AMT) count as special: nobody
//! receives webhooks there.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{Ipv4Net, Ipv6Net};

/// What kind of address it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// Anybody on the Internet may have it.
    Public,
    /// A cloud's metadata service: credentials without a password.
    Metadata,
    /// This host.
    Loopback,
    /// An inner network: RFC 1918, unique local.
    Private,
    /// Between a provider and its customers: 100.64.0.0/10.
    Shared,
    /// One link: autoconfigured, or site-local of old.
    LinkLocal,
    /// No host in particular: 0.0.0.0/8 (which Linux takes for itself) and ::.
    Unspecified,
    /// Many hosts, or all.
    Multicast,
    /// An IPv4 address inside: NAT64, 6to4, Teredo, IPv4-compatible.
    Translated,
    /// For examples and benchmarks.
    Documentation,
    /// For the Internet's own machinery.
    Protocol,
    /// Given to nobody.
    Reserved,
}

impl AddressKind {
    /// One word, as it stands in errors and in the test table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Metadata => "metadata",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::Shared => "shared",
            Self::LinkLocal => "link-local",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Translated => "translated",
            Self::Documentation => "documentation",
            Self::Protocol => "protocol",
            Self::Reserved => "reserved",
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

/// By its first four groups; the rest is zero.
const fn v6(a: u16, b: u16, c: u16, d: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), bits)
}

/// The first block that contains an address says what it is.
const SPECIAL_V4: &[(Ipv4Net, AddressKind)] = &[
    // AWS, Google, Azure, DigitalOcean, Oracle and others.
    (v4(169, 254, 169, 254, 32), AddressKind::Metadata),
    // AWS: credentials of containers (ECS) and of pods (EKS).
    (v4(169, 254, 170, 2, 32), AddressKind::Metadata),
    (v4(169, 254, 170, 23, 32), AddressKind::Metadata),
    // Alibaba, inside the shared block.
    (v4(100, 100, 100, 200, 32), AddressKind::Metadata),
    // Oracle, inside the protocol block.
    (v4(192, 0, 0, 192, 32), AddressKind::Metadata),
    // Azure's host agent: in public space, and reachable only from inside.
    (v4(168, 63, 129, 16, 32), AddressKind::Metadata),
    (v4(0, 0, 0, 0, 8), AddressKind::Unspecified),
    (v4(10, 0, 0, 0, 8), AddressKind::Private),
    (v4(100, 64, 0, 0, 10), AddressKind::Shared),
    (v4(127, 0, 0, 0, 8), AddressKind::Loopback),
    (v4(169, 254, 0, 0, 16), AddressKind::LinkLocal),
    (v4(172, 16, 0, 0, 12), AddressKind::Private),
    (v4(192, 0, 0, 0, 24), AddressKind::Protocol),
    (v4(192, 0, 2, 0, 24), AddressKind::Documentation),
    (v4(192, 31, 196, 0, 24), AddressKind::Protocol), // AS112
    (v4(192, 52, 193, 0, 24), AddressKind::Protocol), // AMT
    (v4(192, 88, 99, 0, 24), AddressKind::Protocol),  // 6to4 relays of old
    (v4(192, 168, 0, 0, 16), AddressKind::Private),
    (v4(192, 175, 48, 0, 24), AddressKind::Protocol), // AS112
    (v4(198, 18, 0, 0, 15), AddressKind::Documentation), // benchmarks
    (v4(198, 51, 100, 0, 24), AddressKind::Documentation),
    (v4(203, 0, 113, 0, 24), AddressKind::Documentation),
    (v4(224, 0, 0, 0, 4), AddressKind::Multicast),
    (v4(240, 0, 0, 0, 4), AddressKind::Reserved), // and broadcast
];

/// The only part of IPv6 in which there are public addresses.
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 0, 3);

const SPECIAL_V6: &[(Ipv6Net, AddressKind)] = &[
    // AWS and Google.
    (metadata_v6(0xfd00, 0x0ec2, 0x0254), AddressKind::Metadata),
    (metadata_v6(0xfd20, 0x00ce, 0x0254), AddressKind::Metadata),
    // AWS: credentials of pods (EKS).
    (metadata_v6(0xfd00, 0x0ec2, 0x0023), AddressKind::Metadata),
    // Inside global unicast.
    (v6(0x2001, 0, 0, 0, 32), AddressKind::Translated), // Teredo
    (v6(0x2001, 0, 0, 0, 23), AddressKind::Protocol),
    (v6(0x2001, 0x0db8, 0, 0, 32), AddressKind::Documentation),
    (v6(0x2002, 0, 0, 0, 16), AddressKind::Translated), // 6to4
    (v6(0x2620, 0x004f, 0x8000, 0, 48), AddressKind::Protocol), // AS112
    (v6(0x3fff, 0, 0, 0, 20), AddressKind::Documentation),
    // Outside, where all is refused: for the words of the refusal.
    (single_v6(Ipv6Addr::LOCALHOST), AddressKind::Loopback),
    (single_v6(Ipv6Addr::UNSPECIFIED), AddressKind::Unspecified),
    (v6(0, 0, 0, 0, 96), AddressKind::Translated), // IPv4-compatible
    (v6(0x0064, 0xff9b, 0, 0, 96), AddressKind::Translated), // NAT64
    (v6(0x0064, 0xff9b, 1, 0, 48), AddressKind::Translated), // local NAT64
    (v6(0xfc00, 0, 0, 0, 7), AddressKind::Private),
    (v6(0xfe80, 0, 0, 0, 10), AddressKind::LinkLocal),
    (v6(0xfec0, 0, 0, 0, 10), AddressKind::LinkLocal),
    (v6(0xff00, 0, 0, 0, 8), AddressKind::Multicast),
];

const fn metadata_v6(first: u16, second: u16, last: u16) -> Ipv6Net {
    single_v6(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last))
}

const fn single_v6(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new_assert(address, 128)
}

/// The one form of an address: IPv4 in IPv6 (`::ffff:a.b.c.d`) is IPv4. The
/// system connects both to the same place.
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// What kind of address it is, in whichever form it is written.
#[must_use]
pub fn kind(address: IpAddr) -> AddressKind {
    match canonical(address) {
        IpAddr::V4(address) => first(
            SPECIAL_V4
                .iter()
                .map(|(net, kind)| net.contains(&address).then_some(*kind)),
        )
        .unwrap_or(AddressKind::Public),
        IpAddr::V6(address) => first(
            SPECIAL_V6
                .iter()
                .map(|(net, kind)| net.contains(&address).then_some(*kind)),
        )
        .unwrap_or(if GLOBAL_UNICAST.contains(&address) {
            AddressKind::Public
        } else {
            AddressKind::Reserved
        }),
    }
}

fn first(mut found: impl Iterator<Item = Option<AddressKind>>) -> Option<AddressKind> {
    found.find_map(|kind| kind)
}

/// A prefix behind which a NAT64 gateway puts all of IPv4 (RFC 6052), as 64:ff9b::/96.
///
/// ```
/// use adapters::http::Nat64Prefix;
/// let prefix: Nat64Prefix = "64:ff9b:1::/48".parse().unwrap();
/// assert_eq!(prefix.to_string(), "64:ff9b:1::/48");
/// assert!("64:ff9b:1::/50".parse::<Nat64Prefix>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Ipv6Net);

/// Why a word is no such prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits, such as 64:ff9b:1::/48")]
pub struct NotANat64Prefix;

impl FromStr for Nat64Prefix {
    type Err = NotANat64Prefix;

    fn from_str(text: &str) -> Result<Self, NotANat64Prefix> {
        let net: Ipv6Net = text.parse().map_err(|_no_network| NotANat64Prefix)?;
        let is_one = [32, 40, 48, 56, 64, 96].contains(&net.prefix_len());
        (is_one && net.trunc() == net)
            .then_some(Self(net))
            .ok_or(NotANat64Prefix)
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Nat64Prefix {
    /// The one that needs no name: 64:ff9b::/96.
    pub(super) const WELL_KNOWN: Self = Self(v6(0x0064, 0xff9b, 0, 0, 96));

    /// Whether this address is behind it.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(address) if self.0.contains(&address))
    }

    /// The IPv4 address that a gateway at this prefix connects to; `None` if it does to
    /// none. It stands after the prefix, but never in the ninth octet, which is zero.
    #[must_use]
    pub fn behind(self, address: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V6(address) = address else {
            return None;
        };
        let octets = address.octets();
        let first = usize::from(self.0.prefix_len() / 8);
        if first <= 8 && octets[8] != 0 {
            return None;
        }
        let mut after = (first..octets.len()).filter(|place| *place != 8);
        let mut next = || Some(octets[after.next()?]);
        let behind = Ipv4Addr::new(next()?, next()?, next()?, next()?);
        self.0.contains(&address).then_some(behind)
    }
}

/// Whether it is behind some prefix for local use (RFC 8215), of whatever length.
pub(super) fn is_local_nat64(address: IpAddr) -> bool {
    const LOCAL: Ipv6Net = v6(0x0064, 0xff9b, 1, 0, 48);
    matches!(address, IpAddr::V6(address) if LOCAL.contains(&address))
}
