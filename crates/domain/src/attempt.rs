//! Attempts: what happens to one event at one destination, once.
//!
//! ```text
//!              admit             claim the start         record
//!   waiting ──────────► admitted ───────────────► started ──────► succeeded
//!      ▲                  │                          │            failed
//!      └──────────────────┘                          │            not_sent
//!        permit ends unused                          └──────────► unknown ──► a late
//!                                                       reap                  outcome
//!   waiting, admitted ──► cancelled (its owner)     waiting ──► expired (too old)
//! ```
//!
//! A row that has started never waits again: what follows is a new attempt,
//! a *retry*, with the next try number ([`follow_up`]). An event whose tries are
//! used up is a **dead letter**.

pub mod follow_up;
pub mod outcome;
pub mod promptness;
pub mod verdict;

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The state of an attempt's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// In the backlog.
    Waiting,
    /// It has a permit.
    Admitted,
    /// Claimed for sending; it counts in the limit for ever.
    Started,
    /// The receiver took it (2xx).
    Succeeded,
    /// The receiver refused it, or could not be reached.
    Failed,
    /// It started, and nobody knows what became of it.
    Unknown,
    /// It started, and was not sent: the worker noticed that it was late.
    NotSent,
    /// Taken back by its owner before it started.
    Cancelled,
    /// Too old to be worth sending.
    Expired,
}

impl AttemptState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Admitted,
        Self::Started,
        Self::Succeeded,
        Self::Failed,
        Self::Unknown,
        Self::NotSent,
        Self::Cancelled,
        Self::Expired,
    ];

    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Admitted => "admitted",
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::NotSent => "not_sent",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    /// Whether a worker saw what became of its request.
    #[must_use]
    pub const fn was_sent(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Whether its request may have left by now. One that has started counts once its
    /// start has passed: that is the latest that it may be sent, until it is known. So does
    /// one whose receiver was not reached: it has failed, and its error alone says how.
    #[must_use]
    pub fn may_have_left(self, started_at: Option<Timestamp>, now: Timestamp) -> bool {
        match self {
            Self::Waiting | Self::Admitted | Self::NotSent | Self::Cancelled | Self::Expired => {
                false
            }
            Self::Started => started_at.is_some_and(|at| at <= now),
            Self::Succeeded | Self::Failed | Self::Unknown => true,
        }
    }

    /// Whether its owner can still take it back. What has started never waits again.
    #[must_use]
    pub const fn can_be_cancelled(self) -> bool {
        matches!(self, Self::Waiting | Self::Admitted)
    }

    /// Whether nothing but a late outcome can change it any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        !self.can_be_cancelled() && !matches!(self, Self::Started)
    }
}

/// The text is no state of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown attempt state {0:?}")]
pub struct UnknownAttemptState(pub String);

impl FromStr for AttemptState {
    type Err = UnknownAttemptState;
    fn from_str(text: &str) -> Result<Self, UnknownAttemptState> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or_else(|| UnknownAttemptState(text.to_owned()))
    }
}

/// What became of an attempt that started, as its worker saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeKind {
    /// A 2xx.
    Succeeded,
    /// Anything else that happened on the wire.
    Failed,
    /// Claimed, and not sent for being late.
    NotSent,
}

impl OutcomeKind {
    /// The state that it puts the row in.
    #[must_use]
    pub const fn state(self) -> AttemptState {
        match self {
            Self::Succeeded => AttemptState::Succeeded,
            Self::Failed => AttemptState::Failed,
            Self::NotSent => AttemptState::NotSent,
        }
    }
}
