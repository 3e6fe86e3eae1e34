//! What keeps work from being forgotten, each piece left out.

use super::properties;

/// One mistake. Only tests switch one on; the checker has to find what it
/// breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// Taking removes the job instead of pushing it forward.
    TakeRemoves,
    /// A finish does not compare the token.
    FinishWithoutToken,
    /// A finish does not ask whether there was a wake since the take: the
    /// generation.
    FinishIgnoresWakes,
    /// A finish sets its floor although a wake has cleared it.
    FinishKeepsFloor,
    /// A plain wake goes below the floor.
    WakeIgnoresFloor,
    /// A plain wake moves a job under lease.
    WakeIgnoresLease,
    /// A wake sets the time that it asks for, earlier or later.
    WakeMovesLater,
    /// A wake that should forget the floor does not.
    ClearKeepsFloor,
    /// New work is woken before it is committed.
    WakeBeforeCommit,
    /// A retry that is due later wakes nobody.
    RetryNotWoken,
    /// An outcome that frees a place wakes nobody.
    OutcomeNotWoken,
    /// A permit that ended unused wakes plainly, above a floor that counted it.
    FreedWakesPlainly,
    /// A destination whose row was locked is taken for empty.
    SkippedIsEmpty,
    /// A job is removed while permits are out.
    RemovedWhileAdmitted,
    /// The store notes the next run, instead of when a look may help.
    LookNotedAsPlanned,
    /// The sweep wakes plainly, above a floor that may be of another life or
    /// count a permit that has ended.
    SweepKeepsFloor,
    /// The sweep goes by whether a job exists.
    SweepGoesByJobs,
    /// The schedule is taken for rebuilt before the wakes.
    RebuiltBeforeWakes,
    /// A rebuild is noted although the schedule was lost again since it began.
    RebuiltOldLife,
    /// A change's mark is cleared before the wake.
    MarkClearedBeforeWake,
    /// A mark that was made again since it was read is cleared.
    MarkClearedUnread,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::TakeRemoves,
        Self::FinishWithoutToken,
        Self::FinishIgnoresWakes,
        Self::FinishKeepsFloor,
        Self::WakeIgnoresFloor,
        Self::WakeIgnoresLease,
        Self::WakeMovesLater,
        Self::ClearKeepsFloor,
        Self::WakeBeforeCommit,
        Self::RetryNotWoken,
        Self::OutcomeNotWoken,
        Self::FreedWakesPlainly,
        Self::SkippedIsEmpty,
        Self::RemovedWhileAdmitted,
        Self::LookNotedAsPlanned,
        Self::SweepKeepsFloor,
        Self::SweepGoesByJobs,
        Self::RebuiltBeforeWakes,
        Self::RebuiltOldLife,
        Self::MarkClearedBeforeWake,
        Self::MarkClearedUnread,
    ];

    /// The property that it has to break.
    #[must_use]
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::FinishWithoutToken => properties::STALE_FINISH,
            Self::WakeIgnoresFloor => properties::WAKE_KEEPS_FLOOR,
            Self::WakeIgnoresLease => properties::WAKE_UNDER_LEASE,
            Self::TakeRemoves
            | Self::FinishIgnoresWakes
            | Self::WakeBeforeCommit
            | Self::RetryNotWoken
            | Self::SkippedIsEmpty
            | Self::RemovedWhileAdmitted => properties::NEVER_FORGOTTEN,
            Self::RebuiltBeforeWakes | Self::RebuiltOldLife => properties::REBUILT,
            Self::LookNotedAsPlanned => properties::SWEEP_IN_TIME,
            Self::FinishKeepsFloor
            | Self::WakeMovesLater
            | Self::ClearKeepsFloor
            | Self::OutcomeNotWoken
            | Self::FreedWakesPlainly
            | Self::SweepKeepsFloor
            | Self::SweepGoesByJobs
            | Self::MarkClearedBeforeWake
            | Self::MarkClearedUnread => properties::IN_TIME,
        }
    }
}
