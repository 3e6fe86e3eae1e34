//! The words of health, as in SQL and JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What the breaker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// It lets everything through.
    Closed,
    /// It holds the backlog.
    Open,
    /// It lets one attempt through at a time.
    HalfOpen,
}

/// Why nothing starts for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldReason {
    /// The receiver named a time.
    Asked,
    /// It answered 429 and named none.
    Refused,
    /// The breaker is open.
    Breaker,
}

/// Why we have disabled a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisableReason {
    /// It answered 410, or `webhook-delivery: disable`.
    Gone,
    /// The breaker was open for too long.
    Failing,
}

impl HoldReason {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Refused => "refused",
            Self::Breaker => "breaker",
        }
    }
}

impl DisableReason {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Failing => "failing",
        }
    }
}

impl Breaker {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl fmt::Display for DisableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is none of these words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown reason {0:?}")]
pub struct UnknownWord(pub String);

impl FromStr for HoldReason {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Asked, Self::Refused, Self::Breaker]
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}

impl FromStr for DisableReason {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        [Self::Gone, Self::Failing]
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}
