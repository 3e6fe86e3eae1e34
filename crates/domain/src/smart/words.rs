//! The words of smart delivery, as in SQL and JSON.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::health::UnknownWord;

/// Whether a destination's owner has asked for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmartDelivery {
    /// The effective limit follows how the receiver answers.
    On,
    /// The configured limit is in force.
    #[default]
    Off,
}

/// Why the effective limit is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nothing lowers it.
    Configured,
    /// The receiver answered 429, or 503 too often.
    Refused,
    /// Its answers took too long.
    Slow,
    /// A clean streak raises it.
    Raising,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Configured, Self::Refused, Self::Slow, Self::Raising];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Refused => "refused",
            Self::Slow => "slow",
            Self::Raising => "raising",
        }
    }
}

impl FromStr for Reason {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or_else(|| UnknownWord(text.to_owned()))
    }
}
