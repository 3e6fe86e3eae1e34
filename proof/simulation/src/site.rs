//! Where a process meets its parts.

use crate::scenario::Process;

/// A method of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// `Store::accept_events`
    AcceptEvents,
    /// `Store::admit`
    Admit,
    /// `Store::targets`
    Targets,
    /// `Store::claim_starts`
    ClaimStarts,
    /// `Store::release_permits`
    ReleasePermits,
    /// `Store::record_outcomes`
    RecordOutcomes,
    /// `Store::reap`
    Reap,
    /// `Store::sweep`
    Sweep,
    /// `Store::clear_marks`
    ClearMarks,
    /// `Store::heartbeat`
    Heartbeat,
    /// `Store::fleet`
    Fleet,
    /// `Replays::advance_replays`
    AdvanceReplays,
    /// `Schedule::take`
    Take,
    /// `Schedule::finish`
    Finish,
    /// `Schedule::wake`
    Wake,
    /// `Schedule::life`
    Life,
    /// `Schedule::rebuilt`
    Rebuilt,
    /// `DeliveryQueue::publish`
    Publish,
    /// `DeliveryQueue::subscribe`
    Subscribe,
    /// `Subscription::receive`
    Receive,
    /// `Subscription::settle`
    Settle,
    /// `Sender::prepare`
    Prepare,
    /// `Prepared::send`
    Send,
    /// `Retain::retain`
    Retain,
    /// `Backpressure::standings`
    Standings,
    /// `Backpressure::repeated`
    Repeated,
    /// `Operations::watch`
    Watch,
    /// `Operations::relay_operational_events`
    RelayNews,
    /// `Operations::trim_operational_events`
    TrimNews,
    /// `Operations::drop_notices`
    DropNotices,
    /// `Store::defer`
    Defer,
    /// `Store::report_sends`
    ReportSends,
    /// `Store::report_spreads`
    ReportSpreads,
}

/// How many sites there are.
pub(crate) const SITES: usize = Site::ReportSpreads as usize + 1;

impl Site {
    /// The calls that a process makes.
    #[must_use]
    pub const fn of(process: Process) -> &'static [Self] {
        match process {
            Process::Api => &[Self::AcceptEvents, Self::Wake],
            Process::Scheduler(_) => &[
                Self::Take,
                Self::Fleet,
                Self::Admit,
                Self::Publish,
                Self::Finish,
                Self::ReleasePermits,
                Self::Reap,
                Self::Wake,
                Self::Sweep,
                Self::ClearMarks,
                Self::AdvanceReplays,
                Self::Life,
                Self::Rebuilt,
            ],
            Process::Worker(_) => &[
                Self::Heartbeat,
                Self::Subscribe,
                Self::Receive,
                Self::Targets,
                Self::Prepare,
                Self::ClaimStarts,
                Self::Settle,
                Self::Send,
                Self::ReportSends,
                Self::ReportSpreads,
                Self::RecordOutcomes,
                Self::Wake,
                Self::Defer,
                Self::ReleasePermits,
            ],
        }
    }

    /// Which part it belongs to.
    pub(crate) const fn part(self) -> Part {
        match self {
            Self::Take | Self::Finish | Self::Wake | Self::Life | Self::Rebuilt => Part::Schedule,
            Self::Publish | Self::Subscribe | Self::Receive | Self::Settle => Part::Queue,
            Self::Prepare | Self::Send => Part::Receiver,
            _ => Part::Store,
        }
    }

    /// Made all the time, whether there is work or not.
    pub(crate) const fn is_routine(self) -> bool {
        matches!(
            self,
            Self::Reap
                | Self::Sweep
                | Self::AdvanceReplays
                | Self::Retain
                | Self::Life
                | Self::Heartbeat
                | Self::Fleet
                | Self::Standings
                | Self::Watch
                | Self::RelayNews
                | Self::TrimNews
                | Self::DropNotices
        )
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Store,
    Schedule,
    Queue,
    Receiver,
}
