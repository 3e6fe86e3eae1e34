//! Whether something is so, and the one word why.

use crate::destinations::Refusal;

/// Why a condition is as it is: one word for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Synced,
    Delivering,
    Paused,
    /// A limit is 0, which pauses it.
    LimitIsZero,
    NotStopped,
    /// The receiver is gone, or its breaker was open for too long.
    Disabled,
    CircuitOpen,
    /// The receiver asked to be left alone.
    Held,
    /// Work waits for its limits.
    Limited,
    NotThrottled,
    Conflict,
    NoConflict,
    Invalid,
    SecretMissing,
    NotFound,
    StoreAway,
}

impl Reason {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "Synced",
            Self::Delivering => "Delivering",
            Self::Paused => "Paused",
            Self::LimitIsZero => "LimitIsZero",
            Self::NotStopped => "NotStopped",
            Self::Disabled => "Disabled",
            Self::CircuitOpen => "CircuitOpen",
            Self::Held => "Held",
            Self::Limited => "Limited",
            Self::NotThrottled => "NotThrottled",
            Self::Conflict => "Conflict",
            Self::NoConflict => "NoConflict",
            Self::Invalid => "Invalid",
            Self::SecretMissing => "SecretMissing",
            Self::NotFound => "NotFound",
            Self::StoreAway => "StoreAway",
        }
    }

    /// Why a step was refused.
    #[must_use]
    pub const fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Invalid(_) => Self::Invalid,
            Refusal::Conflict(_) => Self::Conflict,
            Refusal::NotFound(_) => Self::NotFound,
            Refusal::Unavailable(_) => Self::StoreAway,
        }
    }
}

/// Whether something is so, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub holds: bool,
    pub reason: Reason,
    pub message: String,
}

impl Verdict {
    #[must_use]
    pub fn yes(reason: Reason, message: &str) -> Self {
        Self {
            holds: true,
            reason,
            message: message.to_owned(),
        }
    }

    #[must_use]
    pub fn no(reason: Reason, message: &str) -> Self {
        Self {
            holds: false,
            ..Self::yes(reason, message)
        }
    }
}
