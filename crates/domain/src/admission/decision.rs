//! What a run decides.

use super::crowd::Crowd;
use super::meter::Meter;
use super::{LOOK_WHEN_CROWDED, Usage};
use crate::ids::PermitNumber;
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
    /// Outcomes of these attempts make room that somebody waits for: some of
    /// them wake the destination.
    pub crowd: Option<Crowd>,
}

impl Decision {
    /// Whether the outcome of the attempt with this permit wakes the destination.
    #[must_use]
    pub fn wakes(&self, permit: PermitNumber) -> bool {
        self.crowd.is_some_and(|crowd| crowd.wakes(permit))
    }

    /// From when on a look may help whatever waits by then: what came after
    /// this run, and what waits again because its permit ended unused. The
    /// sweep goes by it, for the wakes of both may be lost; the planned look
    /// may be for a retry or a slot that is hours away.
    ///
    /// `None` for at once; the end of time where only a change can help, which
    /// wakes by itself.
    #[must_use]
    pub fn looks_help_from(&self, usage: &Usage, now: Timestamp) -> Option<Timestamp> {
        let Look::At { at, floor } = self.look else {
            return (self.blocked == Some(Blocked::Paused)).then_some(Timestamp::MAX);
        };
        let deadlines = (usage.outstanding.iter())
            .map(|outstanding| outstanding.deadline)
            .chain(self.slots.iter().map(|slot| slot.deadline));
        // By then each of these permits has started or ended; one that is past
        // it is the reaper's.
        let settled = deadlines.max().map(|last| match last > now {
            true => last,
            false => now + LOOK_WHEN_CROWDED,
        });
        let from = floor.unwrap_or(now).min(at);
        Some(settled.map_or(from, |settled| from.min(settled)))
    }
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
        /// Nothing can be admitted before that, whatever arrives; or what arrives can wait for
        /// what comes after it ([`BUSY_FLOOR`](super::BUSY_FLOOR)).
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
    /// A hold: the receiver asked for it, or its breaker is open.
    Hold,
    /// A limit, until its next slot.
    Limit,
    /// The limit of its group, until that has a slot for it.
    Group,
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
            Self::Group => "group",
            Self::Concurrency => "concurrency",
            Self::Places => "places",
            Self::Counting => "counting",
        }
    }
}
