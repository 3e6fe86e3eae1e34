//! Who may do what: the ids of API keys and of links, and scopes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of an API key: 64 random bits, in text 16 lower-case hex digits. It
/// is no secret: it stands in lists and in the key itself, where it says which
/// one to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u64);

/// What was given is not the id of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid key id: expected 16 lower-case hex digits")]
pub struct InvalidKeyId;

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for KeyId {
    type Err = InvalidKeyId;

    fn from_str(text: &str) -> Result<Self, InvalidKeyId> {
        hex_digits(text).map(Self).ok_or(InvalidKeyId)
    }
}

/// The id of a link to the dashboard: the first 64 bits of the digest that the
/// store keeps of it, in text 16 lower-case hex digits. It is no secret: a link
/// has 256 random bits, of which this tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// What was given is not the id of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid link id: expected 16 lower-case hex digits")]
pub struct InvalidLinkId;

impl LinkId {
    /// Of the link that has this digest.
    #[must_use]
    pub const fn of(digest: [u8; 32]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = digest;
        Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
    }

    /// What its digest begins with.
    #[must_use]
    pub const fn prefix(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for LinkId {
    type Err = InvalidLinkId;

    fn from_str(text: &str) -> Result<Self, InvalidLinkId> {
        hex_digits(text).map(Self).ok_or(InvalidLinkId)
    }
}

/// Its one spelling and no other, so that two texts are never one id.
fn hex_digits(text: &str) -> Option<u64> {
    let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_id = text.len() == 16 && text.bytes().all(digit);
    is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

/// What a key may be used for. None implies another, but for [`Scopes::acting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Hand in events.
    Ingest,
    /// Create, change and delete the tenant's destinations.
    Manage,
    /// Look at the tenant's destinations, events and attempts.
    Read,
    /// Administer the installation: tenants, their keys, and tiers. Only keys
    /// of the default tenant can have it.
    Admin,
    /// Act for any tenant, which each request names: hand in its events, manage and
    /// look at its destinations ([`Scopes::acting`]). Only keys of the default tenant
    /// can have it.
    Platform,
    /// See what events carry, beside looking at them.
    ReadPayloads,
}

/// What was given is not a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a scope: expected ingest, manage, read, admin, platform or read-payloads")]
pub struct InvalidScope;

impl Scope {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Ingest,
        Self::Manage,
        Self::Read,
        Self::Admin,
        Self::Platform,
        Self::ReadPayloads,
    ];

    /// The word, as in JSON and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Manage => "manage",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Platform => "platform",
            Self::ReadPayloads => "read-payloads",
        }
    }

    /// Whether it reaches beyond a tenant, so that only keys of the default one, which
    /// is the installation's own, can have it.
    #[must_use]
    pub const fn is_the_installations(self) -> bool {
        matches!(self, Self::Admin | Self::Platform)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = InvalidScope;
    fn from_str(text: &str) -> Result<Self, InvalidScope> {
        let named = |scope: &Self| scope.as_str() == text;
        Self::ALL.into_iter().find(named).ok_or(InvalidScope)
    }
}

/// A set of scopes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u8);

impl Scopes {
    /// None of them: good for nothing.
    pub const NONE: Self = Self(0);

    /// All of them.
    pub const ALL: Self = Self(0b11_1111);

    /// What a key with these, of the scope [`Scope::Platform`], may do for the tenant
    /// that its request names: what a customer's own key may, and see payloads if it
    /// sees its own.
    #[must_use]
    pub const fn acting(self) -> Self {
        let customers = Scope::Ingest.bit() | Scope::Manage.bit() | Scope::Read.bit();
        Self(customers | self.0 & Scope::ReadPayloads.bit())
    }

    /// Those that are in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether this one is among them.
    #[must_use]
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// Without this one.
    #[must_use]
    pub const fn without(self, scope: Scope) -> Self {
        Self(self.0 & !scope.bit())
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Each of them, in the order of [`Scope::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .into_iter()
            .filter(move |scope| self.contains(*scope))
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | scope.bit()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        for wrong in [
            "",
            "1",
            "00000000000000001",
            "000000000000000G",
            "+000000000000001",
        ] {
            assert_eq!(wrong.parse::<KeyId>(), Err(InvalidKeyId), "{wrong}");
        }
        assert_eq!("ABCDEF0123456789".parse::<KeyId>(), Err(InvalidKeyId));
        assert_eq!("00000000000000ff".parse(), Ok(KeyId(255)));
    }

    proptest! {
        #[test]
        fn an_id_is_what_its_text_says(id in any::<u64>()) {
            prop_assert_eq!(KeyId(id).to_string().parse(), Ok(KeyId(id)));
        }

        #[test]
        fn a_set_holds_what_was_put_in_and_nothing_else(
            chosen in prop::collection::vec(prop::sample::select(&Scope::ALL[..]), 0..6),
        ) {
            let set: Scopes = chosen.iter().copied().collect();
            for scope in Scope::ALL {
                prop_assert_eq!(set.contains(scope), chosen.contains(&scope));
                prop_assert!(!set.without(scope).contains(scope));
                prop_assert_eq!(scope.as_str().parse(), Ok(scope));
            }
            prop_assert_eq!(set.iter().collect::<Scopes>(), set);
            prop_assert_eq!(set.is_empty(), chosen.is_empty());
        }
    }
}
