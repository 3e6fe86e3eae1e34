//! Assumptions of the proof, each dropped.

/// One assumption dropped. Only tests switch one on; the checker has to find
/// what it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// A scheduler that has read without a lock marks what it has decided although something
    /// has changed since.
    StaleSnapshot,
    /// A permit counts at its slot and not at its deadline.
    CountedAtSlot,
    /// A permit counts for a tick longer than it can start: safe, and slow.
    CountedTooLong,
    /// Permits that are out do not count.
    OutstandingIgnored,
    /// A permit is forgotten by time, not by its row: one whose claim commits
    /// late is not seen.
    ForgottenByTime,
    /// A claim does not look at the deadline.
    NoDeadline,
    /// Claims go by the workers' own clocks, each up to a tick fast or slow.
    WorkersClocks,
    /// A claim does not wait for the slot.
    EarlyStart,
    /// The start is recorded after the send: until then no admission counts it.
    LateRecord,
    /// A second message of a permit starts it again.
    DuplicateStarts,
    /// Limit minus queue alone: starts do not count.
    StartsIgnored,
    /// An attempt whose start is unknown waits again in its own row, which
    /// forgets the start.
    UnknownForgetsStart,
    /// A lower limit leaves the permits that are out.
    NoRevocation,
    /// A new limit is taken to be in force before its revocation is.
    HistoryTooEarly,
    /// A permit that expires ends its event.
    ExpiryEndsEvent,
    /// An unknown outcome has no retry.
    UnknownNotRetried,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::StaleSnapshot,
        Self::CountedAtSlot,
        Self::CountedTooLong,
        Self::OutstandingIgnored,
        Self::ForgottenByTime,
        Self::NoDeadline,
        Self::WorkersClocks,
        Self::EarlyStart,
        Self::LateRecord,
        Self::DuplicateStarts,
        Self::StartsIgnored,
        Self::UnknownForgetsStart,
        Self::NoRevocation,
        Self::HistoryTooEarly,
        Self::ExpiryEndsEvent,
        Self::UnknownNotRetried,
    ];

    /// The property that it has to break.
    #[must_use]
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::ExpiryEndsEvent | Self::UnknownNotRetried => super::NOTHING_LOST,
            Self::CountedTooLong => super::RULE_USED_UP,
            _ => super::WINDOWS_KEPT,
        }
    }
}
