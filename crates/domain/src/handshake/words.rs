//! The words of handshakes, as in SQL and JSON.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::health::UnknownWord;

/// Whether a receiver is asked before anything is sent to it, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handshake {
    /// It is not.
    #[default]
    None,
    /// By `OPTIONS`, as CloudEvents' web hooks say.
    CloudEvents,
}

impl Handshake {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::None, Self::CloudEvents];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::CloudEvents => "cloud_events",
        }
    }
}

impl FromStr for Handshake {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        (Self::ALL.into_iter())
            .find(|one| one.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

/// What a question came to, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskOutcome {
    /// It may be sent requests.
    Allowed,
    /// It may not.
    Refused,
    /// It has not said.
    Unreachable,
}

impl AskOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Allowed, Self::Refused, Self::Unreachable];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
        }
    }
}

impl FromStr for AskOutcome {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        (Self::ALL.into_iter())
            .find(|one| one.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}
