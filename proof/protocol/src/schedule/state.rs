//! What a state of the wake protocol holds. All times are ticks from now.

use super::job::{Job, Next, Rule};
use super::{Bounds, GRACE, MAX_SCHEDULERS};

/// The schedule, the store as far as looks depend on it, and who is about to
/// do what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The destination's job.
    pub job: Option<Job>,
    /// The jobs of this life of the schedule were rebuilt from the store.
    pub built: bool,
    /// What the store knows of the destination.
    pub store: Store,
    /// Committed, and to be followed by a wake.
    pub owed: Owed,
    /// The schedulers.
    pub schedulers: [Scheduler; MAX_SCHEDULERS],
    /// The sweep.
    pub sweep: Sweep,
    /// The observer's: whether something was lost that only a sweep repairs.
    pub loss: Loss,
    /// The observer's: the schedule was lost, and no sweep that began since has
    /// woken everything.
    pub unbuilt: bool,
    /// The observer's: the first rule that a call of the schedule has broken.
    pub broken: Option<Rule>,
    /// How much may still happen.
    pub left: Left,
}

/// What the store knows of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Store {
    /// Attempts that wait and are due.
    pub waiting: u8,
    /// A retry that is due later.
    pub retry: Option<u8>,
    /// Permits that are out.
    pub admitted: u8,
    /// Attempts in flight.
    pub in_flight: u8,
    /// When the limit's next slot opens; 0 for now.
    pub slot: u8,
    /// Paused by its owner.
    pub paused: bool,
    /// A change that the sweep has yet to follow by a wake.
    pub mark: Mark,
    /// From when on a look may help, as the last run noted it; the sweep goes
    /// by it. Negative for so long ago; `None` for never, but for a change.
    pub look_helps: Option<i8>,
}

/// A change of limits or state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// None since the last wake.
    None,
    /// One that the present sweep has not read.
    New,
    /// One that the present sweep has read.
    Read,
}

/// Wakes that are owed for what was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Owed {
    /// For new work, or a free place.
    pub plain: bool,
    /// For a permit that ended unused.
    pub freed: bool,
    /// For a retry that is due then.
    pub later: Option<u8>,
}

/// A scheduler's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheduler {
    /// None.
    Idle,
    /// It has taken the job.
    Took,
    /// The store has decided and committed; the job is to be finished so. The
    /// call may be lost, and it may be made again.
    Finishing(Next),
}

/// How far the sweep is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sweep {
    /// Between two.
    Idle,
    /// It has asked for the schedule's life.
    Asked(Life),
    /// It has read the store.
    Page {
        /// In this life.
        life: Life,
        /// For due work or a rebuild.
        wake: Option<u8>,
        /// For a change.
        mark: bool,
    },
    /// It has made its wakes.
    Woken {
        /// In this life.
        life: Life,
        /// One was for a change.
        mark: bool,
    },
}

/// What the sweep knows of the schedule's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    /// The jobs were rebuilt in it.
    Built,
    /// They were not: everything is to be woken.
    New,
    /// It is over: the schedule was lost since.
    Over {
        /// It was a new one.
        new: bool,
    },
}

/// What only a sweep repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Nothing.
    None,
    /// Something, since the present sweep has read the store.
    Open,
    /// Something, before it has.
    Seen,
}

/// How much may still happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Events.
    pub arrivals: u8,
    /// Retries.
    pub retries: u8,
    /// Pauses, resumptions, raises.
    pub changes: u8,
    /// Losses: of a wake, of the jobs; steps of the schedule's clock.
    pub losses: u8,
}

impl State {
    pub(super) fn first(bounds: &Bounds) -> Self {
        Self {
            job: None,
            built: true,
            store: Store {
                waiting: 0,
                retry: None,
                admitted: 0,
                in_flight: 0,
                slot: 0,
                paused: false,
                mark: Mark::None,
                look_helps: Some(0),
            },
            owed: Owed::default(),
            schedulers: [Scheduler::Idle; MAX_SCHEDULERS],
            sweep: Sweep::Idle,
            loss: Loss::None,
            unbuilt: false,
            broken: None,
            left: bounds.left,
        }
    }

    /// Nobody is about to wake, and nothing was lost: whatever is not
    /// scheduled now is forgotten.
    pub(super) fn is_quiet(&self) -> bool {
        self.loss == Loss::None
            && self.owed == Owed::default()
            && self.store.mark == Mark::None
            && self.built
    }
}

impl Store {
    /// Whether a job is needed.
    pub(super) fn has_work(&self) -> bool {
        !self.paused && (self.waiting > 0 || self.retry.is_some() || self.admitted > 0)
    }

    pub(super) fn used(&self) -> u8 {
        self.admitted + self.in_flight
    }

    pub(super) fn tick(&mut self) {
        self.slot = self.slot.saturating_sub(1);
        match self.retry {
            Some(0 | 1) => {
                self.retry = None;
                self.waiting += 1;
            }
            _ => self.retry = self.retry.map(|due| due - 1),
        }
        self.look_helps = self.look_helps.map(|at| (at - 1).max(-super::OVERDUE - 1));
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.look_helps.is_some_and(|at| at < -super::OVERDUE)
    }

    /// When the permits that are out have ended, at the latest.
    pub(super) fn settled(&self) -> Option<u8> {
        (self.admitted > 0).then_some(GRACE)
    }
}

impl Owed {
    pub(super) fn tick(&mut self) {
        self.later = self.later.map(|due| due.saturating_sub(1));
    }
}

impl Next {
    pub(super) fn tick(&mut self) {
        if let Self::After { delay, floor } = self {
            *delay = delay.saturating_sub(1);
            *floor = floor.map(|floor| floor - 1).filter(|floor| *floor > 0);
        }
    }
}

impl Life {
    /// Everything is to be woken.
    pub(super) fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Over { new: true })
    }

    fn end(&mut self) {
        *self = Self::Over { new: self.is_new() };
    }
}

impl Sweep {
    /// The schedule was lost.
    pub(super) fn lose(&mut self) {
        match self {
            Self::Idle => {}
            Self::Asked(life) | Self::Page { life, .. } | Self::Woken { life, .. } => life.end(),
        }
    }
}
