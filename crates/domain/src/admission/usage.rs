//! What a run is decided from: what a destination uses, and what waits.

use std::sync::Arc;

use super::LOOK_AFTER_EXPIRED;
use super::group::Group;
use super::meter::Meter;
use crate::limit::{Count, Period};
use crate::policy::Policy;
use crate::time::Timestamp;

/// What a destination uses of its limits, as the store's rows say, all read
/// in one statement, so that no permit slips from one list to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Permits that may still start.
    pub outstanding: Vec<Outstanding>,
    /// Attempts started and not yet finished.
    pub in_flight: u32,
    /// The outcome of some of these, queued or in flight, wakes the destination
    /// ([`super::Crowd`]).
    pub wakes: bool,
    /// The newest starts, the newest first: at least as many as the largest
    /// limit that is not coarse, or all in the longest of their periods. One that
    /// is not known yet is where it may be at the latest. Where answers count, these are
    /// the ends of those that have ended, and [`Usage::in_flight`] says the others.
    pub starts: Vec<Timestamp>,
    /// When the newest of them were claimed, the newest first: those that
    /// [`super::newest_claims`] names. What plans each slot by the one before
    /// counts these, and would lose the time until a start is known each time.
    pub claims: Vec<Timestamp>,
    /// The starts that coarse limits count, by period. Absent where no limit
    /// of that period is coarse.
    pub coarse: Vec<CoarseStarts>,
    /// Some starts of a coarse limit have not been counted yet (the limit has
    /// just become coarse): admit nothing until they are.
    pub incomplete: bool,
    /// The bucket's level as of the last permit planned.
    pub meter: Meter,
    /// No run has been decided since the epoch changed, so the limits may have:
    /// `meter` is the level of another bucket, or of none. What was claimed
    /// before the change is counted too, and `claims` has to hold it.
    pub recount: bool,
    /// No start before then: the receiver asked for it, or does not answer.
    pub held_until: Option<Timestamp>,
    /// Nothing is admitted before then: a worker had no place for what was, and
    /// whoever has a permit may start.
    pub deferred_until: Option<Timestamp>,
    /// The breaker is open: one attempt at a time, the probe, once the hold is
    /// over.
    pub probing: bool,
    /// Of a member of a limit group: what all of its members use of it.
    pub group: Option<Arc<Group>>,
}

impl Usage {
    /// How many requests count in every window, because nobody knows yet when their
    /// answers end.
    #[must_use]
    pub fn unanswered(&self, policy: &Policy) -> u32 {
        match policy.count {
            Count::Start => 0,
            Count::Response => self.in_flight,
        }
    }

    /// Nothing is admitted for a time before this: it is held, or deferred.
    #[must_use]
    pub fn admits_from(&self) -> Option<Timestamp> {
        self.held_until.max(self.deferred_until)
    }
}

/// A permit that may still start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outstanding {
    /// Its slot.
    pub not_before: Timestamp,
    /// Its last chance; it is counted there.
    pub deadline: Timestamp,
}

/// Starts counted for one coarse limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoarseStarts {
    /// Which limit's.
    pub period: Period,
    /// Folded starts, in any order.
    pub buckets: Vec<Bucket>,
    /// Starts in the period that are in no bucket yet, in any order.
    pub unfolded: Vec<Timestamp>,
}

/// Starts that fell into one bucket, all counted at its end: later than they
/// were, which is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its end, exclusive.
    pub ends_at: Timestamp,
    /// How many starts.
    pub starts: u32,
}

/// When the earliest of what is not due yet is: of these times, or soon where some
/// that are due are too old. They wait for the reaper, and others may wait behind
/// them.
#[must_use]
pub fn next_due(
    times: impl IntoIterator<Item = Timestamp>,
    some_are_too_old: bool,
    now: Timestamp,
) -> Option<Timestamp> {
    let reaped_by = some_are_too_old.then(|| now + LOOK_AFTER_EXPIRED);
    times.into_iter().chain(reaped_by).min()
}

/// What waits at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Attempts due now, counted up to [`super::read_ahead`] and no further.
    pub due: u32,
    /// How many wait in the urgent lane, counted as far.
    pub urgent: u32,
    /// When the earliest of the others is due.
    pub next_due: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_the_reaper_brings_a_look() {
        let now = Timestamp::from_millis(1_000);
        let later = Timestamp::from_millis(9_000);
        let soon = Timestamp::from_millis(1_050);
        assert_eq!(next_due([], false, now), None);
        assert_eq!(next_due([later], false, now), Some(later));
        let reaped = Some(now + LOOK_AFTER_EXPIRED);
        assert_eq!(next_due([later], true, now), reaped);
        assert_eq!(next_due([later, soon], true, now), Some(soon));
    }
}
