//! What a run decides.

use super::meter::Meter;
use crate::time::Timestamp;

/// What one run decides. Execution makes no choices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// The slots to give, in order, never more than `backlog.due`.
    pub slots: Vec<Slot>,
    /// When to look again.
    pub look: Look,
    /// What stops the rest of the backlog, if anything does.
    pub blocked: Option<Blocked>,
    /// The bucket's level after the slots.
    pub meter: Meter,
    /// Outcomes of these attempts make room that somebody waits for: they
    /// wake the destination.
    pub crowded: bool,
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The earliest start.
    pub not_before: Timestamp,
    /// The latest start.
    pub deadline: Timestamp,
}

/// When to look at a destination again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// At `at`; and no wake for new work need come before `floor`.
    At {
        /// The next run.
        at: Timestamp,
        /// Nothing can be admitted before that, whatever arrives.
        floor: Option<Timestamp>,
    },
    /// Not at all, until something wakes it.
    Idle,
}

/// Why a destination's next attempt is not admitted now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// A limit of zero.
    Paused,
    /// The receiver asked for a hold.
    Hold,
    /// A limit, until its next slot.
    Limit,
    /// `max_in_flight`.
    Concurrency,
    /// The workers' places, all destinations together.
    Places,
    /// Starts that a newly coarse limit has yet to count.
    Counting,
}

impl Blocked {
    /// The word, for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Hold => "hold",
            Self::Limit => "limit",
            Self::Concurrency => "concurrency",
            Self::Places => "places",
            Self::Counting => "counting",
        }
    }
}
