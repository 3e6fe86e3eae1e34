//! The admission protocol: from the backlog to an outcome, for one
//! destination, with every fault of the queue and of the processes.
//!
//! | in the program | in the model |
//! |---|---|
//! | `domain::admission::admit` | the same function, called with times that are whole ticks |
//! | P, `GRACE`, the lead | the shipped constants, in ticks of 200 ms: 5, 10 and 1 |
//! | `Store::admit`: lock the destination's row, then read, then mark and commit | [`Action::Lock`], [`Action::Decide`], [`Action::Commit`]; time, claims and the reaper may come between any two |
//! | the same on Postgres of a destination that has run before: read, then lock it and mark, if no run and no change has been committed since | [`Action::DecideAhead`], [`Action::LockAhead`], [`Action::Commit`]; anything may come between any two |
//! | several schedulers | whoever holds the lock, and whoever has committed and not published yet |
//! | the queue | a bag: every copy may be lost, doubled, and overtaken for ever |
//! | several workers | each copy that is out of the queue is in the hands of one, which may die at any step |
//! | `claim_starts`: a compare-and-set that skips locked rows and reads the clock once | [`Action::Claim`] judges and locks, [`Action::Start`] commits, any time later |
//! | a change of limits by trigger | [`Action::Change`] locks the destination, [`Action::ChangeInForce`] locks the admitted rows and reads the clock, [`Action::ChangeCommitted`] |
//! | the reaper | [`Action::Expire`], [`Action::GiveUp`]; it may come at once or never |
//! | `record_outcomes`, late ones too | [`Action::Succeed`], [`Action::Fail`] |
//!
//! Schedulers run whenever they like, and need no wake: that protocol is
//! [`crate::schedule`]. An observer keeps, beside the store, when what
//! started and which limit was in force; [`WINDOWS_KEPT`] is judged by it
//! alone, at every instant, for windows that end then.
//!
//! Times are kept relative to now, and forgotten where nobody can tell them
//! apart, so that time runs on without end in finitely many states.

mod action;
mod mutation;
mod properties;
mod state;
mod step;
mod store;

use std::time::Duration;

use stateright::{Model, Property};

use crate::ticks::Ticks;

pub use action::{Action, Permit};
pub use mutation::Mutation;
pub use state::State;

/// What a tick stands for: the longest lead, which divides the period and the
/// grace, so that every slot and every deadline falls on a tick.
pub const TICK: Duration = domain::admission::MAX_LEAD;

const TICKS: Ticks = Ticks(TICK);

/// P: a second.
pub const PERIOD: i8 = TICKS.of(Duration::from_secs(1));

/// From a slot to its deadline.
pub const GRACE: i8 = TICKS.of(domain::admission::GRACE);

/// How far ahead slots are planned.
pub const LEAD: i8 = TICKS.of(domain::admission::MAX_LEAD);

/// The theorem.
pub const WINDOWS_KEPT: &str = "no window holds more starts than its limit";

/// What `admit` may give.
pub const RULE_OBEYED: &str = "a run admits nothing that the rule forbids";

/// What `admit` has to give.
pub const RULE_USED_UP: &str = "a run admits all that the rule allows";

/// No event is lost.
pub const NOTHING_LOST: &str =
    "every event waits, is admitted, has started, is delivered or has used up its tries";

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Events.
    pub events: usize,
    /// Tries of each.
    pub tries: usize,
    /// Permits of each try, one after the other.
    pub permits: usize,
    /// Copies of each permit's message at a time.
    pub copies: u8,
    /// The limit at the beginning, and those that it may be changed to.
    pub limits: &'static [u8],
    /// How often it may be changed.
    pub changes: u8,
    /// A scheduler may read and decide without a lock.
    pub unlocked: bool,
}

impl Bounds {
    fn rows(&self) -> usize {
        self.events * self.tries
    }
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// How much there is of everything.
    pub bounds: Bounds,
    /// The assumption that is dropped, if any.
    pub mutation: Option<Mutation>,
}

impl Admission {
    /// The protocol as it is.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            mutation: None,
        }
    }
}

impl Model for Admission {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::first(&self.bounds)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.enabled(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.step(&mut next, action);
        // What changes nothing is no step.
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
