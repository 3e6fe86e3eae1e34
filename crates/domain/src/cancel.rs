//! Cancelling a backlog, step by step.

use crate::ids::AttemptId;
use crate::time::Timestamp;

/// Where cancelling goes on: first attempts, then what is admitted, then all
/// that was admitted before, in this order, so that what gets a permit, or
/// loses it, meanwhile is still met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelFrom {
    /// First attempts after this one.
    First(AttemptId),
    /// Admitted attempts after this one.
    Admitted(AttemptId),
    /// The others after this one.
    Due(Timestamp, AttemptId),
}

impl CancelFrom {
    /// The first step.
    pub const BEGIN: Self = Self::First(AttemptId(0));

    /// The same part, after this row.
    #[must_use]
    pub const fn at(self, at: Timestamp, id: AttemptId) -> Self {
        match self {
            Self::First(_) => Self::First(id),
            Self::Admitted(_) => Self::Admitted(id),
            Self::Due(..) => Self::Due(at, id),
        }
    }

    /// The part after this one.
    #[must_use]
    pub const fn next_part(self) -> Option<Self> {
        match self {
            Self::First(_) => Some(Self::Admitted(AttemptId(0))),
            Self::Admitted(_) => Some(Self::Due(Timestamp::MIN, AttemptId(0))),
            Self::Due(..) => None,
        }
    }
}
