//! The ids that callers bring for what they create.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The longest, in bytes.
pub const MAX_EXTERNAL_ID_BYTES: usize = 200;

/// What a platform calls a tenant or a destination of ours in its own books: unique
/// among the tenants, and among one tenant's destinations. Never a UUID, so that a path
/// holds either ours or theirs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExternalId(String);

/// What was given is no such id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an external id: expected 1 to 200 letters, digits and - . _ ~ : @ +, and not a UUID")]
pub struct InvalidExternalId;

impl ExternalId {
    /// What a store keeps: its own constraints hold, and a user's SQL may have put in
    /// what looks like one of our ids, which then no path reaches.
    #[must_use]
    pub const fn kept(text: String) -> Self {
        Self(text)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether it can be a part of a path as it is: letters and digits of ASCII and a few signs,
/// at most so many of them, and not what a path takes for itself.
pub(crate) fn stands_in_paths(text: &str, most: usize) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@+".contains(&byte);
    (1..=most).contains(&text.len()) && text.bytes().all(letter) && !matches!(text, "." | "..")
}

impl FromStr for ExternalId {
    type Err = InvalidExternalId;

    fn from_str(text: &str) -> Result<Self, InvalidExternalId> {
        match stands_in_paths(text, MAX_EXTERNAL_ID_BYTES) && Uuid::parse_str(text).is_err() {
            true => Ok(Self(text.to_owned())),
            false => Err(InvalidExternalId),
        }
    }
}

impl TryFrom<String> for ExternalId {
    type Error = InvalidExternalId;

    fn try_from(text: String) -> Result<Self, InvalidExternalId> {
        text.parse()
    }
}

impl From<ExternalId> for String {
    fn from(id: ExternalId) -> Self {
        id.0
    }
}

impl fmt::Display for ExternalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_in_a_path_as_it_is_and_is_never_one_of_our_ids() {
        for good in ["7", "acme", "cust:12@eu-1", "a.b_c~d+e", &"x".repeat(200)] {
            assert_eq!(good.parse::<ExternalId>().unwrap().as_str(), good);
        }
        let long = "x".repeat(201);
        let ours = Uuid::from_u128(7);
        for bad in [
            "",
            "a b",
            "a/b",
            "a%20b",
            "ä",
            "a?b",
            ".",
            "..",
            &long,
            &ours.to_string(),
            &ours.simple().to_string(),
            &ours.urn().to_string(),
        ] {
            assert_eq!(bad.parse::<ExternalId>(), Err(InvalidExternalId), "{bad}");
        }
    }
}
