//! What a state of the admission protocol holds. All times are ticks from
//! now, so that time can pass for ever in a finite number of states.

use super::{Bounds, PERIOD};

/// The most rows: events times tries.
pub(super) const MAX_ROWS: usize = 4;
/// The most permits of one row, one after the other.
pub(super) const MAX_PERMITS: usize = 2;
/// The largest limit.
pub(super) const MAX_LIMIT: usize = 2;

/// The store, the queue, the workers, and what an observer has seen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The attempts, the tries of one event side by side.
    pub rows: [Row; MAX_ROWS],
    /// The limit as committed; 0 pauses.
    pub limit: u8,
    /// Who holds the destination's row.
    pub lock: Lock,
    /// A scheduler that has read and decided without a lock.
    pub ahead: Option<Ahead>,
    /// How often limits may still change.
    pub changes_left: u8,
    /// The observer's: starts in each of the last P ticks, this one first.
    pub starts: [u8; PERIOD as usize],
    /// The observer's: the largest limit in force at each of the last P ticks,
    /// this one first.
    pub bounds: [u8; PERIOD as usize],
    /// The observer's: a permit has started twice.
    pub started_twice: bool,
}

/// An attempt, and the messages that carry its permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its state.
    pub stage: Stage,
    /// Permits given to it so far; the last one's number.
    pub issued: u8,
    /// How many ticks ago it started; `None` if not, or a period ago or more.
    pub started: Option<u8>,
    /// The messages of each of its permits, by number.
    pub messages: [Copies; MAX_PERMITS],
}

/// The states of `domain::attempt`, and what is open between two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not inserted yet: the try before it is still under way.
    Absent,
    /// In the backlog.
    Waiting,
    /// It has a permit; its slot is `GRACE` before the deadline.
    Admitted {
        /// In ticks from now; −P for any that passed longer ago.
        deadline: i8,
    },
    /// A claim has locked the row, read the clock, found that it may start,
    /// and not committed. Everybody else sees `Admitted`.
    Claiming {
        /// As before.
        deadline: i8,
    },
    /// Its start is recorded.
    Started {
        /// Its worker is alive.
        worker: bool,
    },
    /// A 2xx.
    Succeeded,
    /// No 2xx; a retry followed if there was a try left.
    Failed,
    /// Nobody knows; a retry followed if there was a try left.
    Unknown {
        /// Its worker is alive and may still say.
        worker: bool,
    },
    /// A retry that the late success of the try before it made needless.
    Cancelled,
    /// Ended by a mutation although it has never started.
    Dropped,
}

/// Where the copies of one permit's message are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Copies {
    /// Its scheduler has committed, and not published yet.
    pub unpublished: bool,
    /// In the queue.
    pub queued: u8,
    /// In the hands of so many workers, unacknowledged.
    pub held: u8,
}

/// Who holds the destination's row, and how far the transaction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lock {
    /// Nobody.
    Free,
    /// A scheduler that has not read yet.
    Locked,
    /// A scheduler that has read and decided.
    Decided(Picks),
    /// A change of the limit.
    Changing {
        /// The limit to be.
        to: u8,
        /// It has locked the admitted rows and then read the clock: the new
        /// limit is in force.
        in_force: bool,
    },
}

/// What a scheduler without a lock has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ahead {
    pub(super) picks: Picks,
    /// Somebody has committed a run or a change since it has read.
    pub(super) changed: bool,
}

/// What a run has decided: which row gets which deadline.
pub(super) type Picks = [Option<(u8, i8)>; MAX_LIMIT];

impl State {
    /// Every event waits at its first try; nothing has started.
    pub(super) fn first(bounds: &Bounds) -> Self {
        let mut rows = [Row::ABSENT; MAX_ROWS];
        for event in 0..bounds.events {
            rows[event * bounds.tries].stage = Stage::Waiting;
        }
        let limit = bounds.limits[0];
        Self {
            rows,
            limit,
            lock: Lock::Free,
            ahead: None,
            changes_left: bounds.changes,
            starts: [0; PERIOD as usize],
            bounds: [limit; PERIOD as usize],
            started_twice: false,
        }
    }

    /// The limit that starts are judged by from now on.
    pub(super) fn in_force(&self) -> u8 {
        match self.lock {
            Lock::Changing { to, in_force: true } => to,
            _ => self.limit,
        }
    }

    /// Whether a change holds the admitted rows: claims and the reaper skip
    /// them.
    pub(super) fn rows_are_held(&self) -> bool {
        matches!(self.lock, Lock::Changing { in_force: true, .. })
    }

    /// Whoever has read without a lock is told so when it comes to mark.
    pub(super) fn change_ahead(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            ahead.changed = true;
        }
    }

    /// Starts in the window that ends now.
    pub(super) fn in_window(&self) -> u8 {
        self.starts.iter().sum()
    }

    /// The largest limit in force within the window that ends now.
    pub(super) fn bound(&self) -> u8 {
        self.bounds.iter().copied().max().unwrap_or(0)
    }
}

impl Row {
    const ABSENT: Self = Self {
        stage: Stage::Absent,
        issued: 0,
        started: None,
        messages: [Copies {
            unpublished: false,
            queued: 0,
            held: 0,
        }; MAX_PERMITS],
    };

    /// The deadline of its permit, as everybody but its claim sees it.
    pub(super) fn deadline(&self) -> Option<i8> {
        match self.stage {
            Stage::Admitted { deadline } | Stage::Claiming { deadline } => Some(deadline),
            _ => None,
        }
    }

    /// Whether its permit's deadline has passed.
    pub(super) fn is_past_deadline(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline < 0)
    }

    /// The start that is recorded and still counts.
    pub(super) fn recorded_start(&self) -> Option<u8> {
        match self.stage {
            Stage::Claiming { .. } => None,
            _ => self.started,
        }
    }

    /// Whether this number is that of its latest permit.
    pub(super) fn carries(&self, number: u8) -> bool {
        self.issued == number
    }
}

impl Copies {
    pub(super) fn count(self) -> u8 {
        self.queued + self.held
    }
}
