//! A destination's own state.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::policy::{Policy, Rate};
use crate::smart::Effective;

/// What admission plans by: what is configured, slowed to what smart delivery has
/// found, and nothing unless the destination is active.
#[must_use]
pub fn in_force(configured: Policy, smart: Effective, state: DestinationState) -> Policy {
    let slowed = configured.slowed(smart);
    match state {
        DestinationState::Active => slowed,
        DestinationState::Paused | DestinationState::Disabled => Policy {
            rate: Rate::Paused,
            ..slowed
        },
    }
}

/// Whether a destination's attempts may be admitted and started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DestinationState {
    /// They may, within the limit.
    #[default]
    Active,
    /// Its owner holds the backlog; events are still accepted.
    Paused,
    /// It is given up for now; events for it are refused.
    Disabled,
}

impl DestinationState {
    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Disabled => "disabled",
        }
    }
}

/// The text is no state of a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown state {0:?}: expected active, paused or disabled")]
pub struct UnknownDestinationState(pub String);

impl FromStr for DestinationState {
    type Err = UnknownDestinationState;
    fn from_str(text: &str) -> Result<Self, UnknownDestinationState> {
        match text {
            "active" => Ok(Self::Active),
            "paused" => Ok(Self::Paused),
            "disabled" => Ok(Self::Disabled),
            _ => Err(UnknownDestinationState(text.to_owned())),
        }
    }
}
