//! The wake protocol: when to look at one destination, and how that is never
//! forgotten.
//!
//! | in the program | in the model |
//! |---|---|
//! | `take.lua`, `finish.lua`, `wake.lua`; `in_process/schedule.rs` | [`Job`], by the same rules; each is one step, judged by what it must do, whatever it does inside |
//! | a token | who still knows it ([`Holder`]) |
//! | the generation | what a wake has asked for since the take ([`Woken`]) |
//! | `Scheduler::tick`: take, admit, finish | [`Action::Take`], [`Action::Run`] or [`Action::Skip`], [`Action::Finish`], [`Action::End`]; a finish may be lost, late, and made again |
//! | `admit`, as far as looks depend on it | a limit of one in P, two places, a pause; where to look next and from when a look helps, as in `domain::admission` |
//! | commit, then wake | what is committed leaves a wake owed; it may be made late, twice, or never |
//! | the sweep | [`Action::SweepBegin`] asks for the life, [`Action::SweepRead`] reads the store, [`Action::SweepWake`], [`Action::SweepSettle`]; it may die between any two |
//! | Redis wiped, failed over to an old copy, its clock stepped back | [`Action::Wipe`], [`Action::FailOver`], [`Action::ClockBack`] |
//!
//! An observer notes whether anything was lost that only a sweep repairs.
//! While nothing was, and no wake is owed, work must have a job that is due in
//! time: that is an invariant, so it also says that a sweep repairs what was
//! lost. That the sweep comes to look, whatever was lost, is another: work
//! that may start is never noted as not worth a look.

mod action;
mod job;
mod mutation;
mod properties;
mod state;
mod step;
mod store;
mod sweeping;

use stateright::{Model, Property};

pub use action::{Action, Reason};
pub use job::{Holder, Job, Lease, Next, Rule, Wake, Woken};
pub use mutation::Mutation;
pub use state::{Left, State};

/// The lease of a take.
pub const LEASE: u8 = 1;
/// P of the limit, which is one.
pub const PERIOD: u8 = 2;
/// From admission to a permit's deadline.
pub const GRACE: u8 = 2;
/// From a failure to its retry.
pub const RETRY: u8 = 3;
/// When a destination without places is looked at again.
pub const CROWDED: u8 = 1;
/// How long past its planned look the sweep wakes a destination.
pub const OVERDUE: i8 = 2;
/// How far the schedule's clock steps back.
pub const CLOCK_STEP: u8 = 2;
/// What an old copy of the schedule says of the job: longer than anything
/// that is planned now.
pub const FAR: u8 = 3;
/// Attempts queued and in flight at once.
pub const PLACES: u8 = 2;
/// The most schedulers.
pub const MAX_SCHEDULERS: usize = 2;

/// How much there is of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Schedulers, at most [`MAX_SCHEDULERS`].
    pub schedulers: usize,
    /// What may happen.
    pub left: Left,
}

/// The model.
#[derive(Debug, Clone, Copy)]
pub struct WakeProtocol {
    /// How much there is of everything.
    pub bounds: Bounds,
    /// The mistake, if any.
    pub mutation: Option<Mutation>,
}

impl WakeProtocol {
    /// The protocol as it is.
    #[must_use]
    pub const fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            mutation: None,
        }
    }
}

impl Model for WakeProtocol {
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
