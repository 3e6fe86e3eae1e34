//! What can happen next.

use super::WakeProtocol;
use super::state::{Scheduler, State, Sweep};

/// One step of somebody, or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// An event is accepted; a wake is owed.
    Ingest,
    /// A scheduler takes the job, which is due.
    Take(usize),
    /// The store admits what it may, and says when to look next.
    Run(usize),
    /// The destination's row is locked: look again soon.
    Skip(usize),
    /// The scheduler finishes the job; perhaps not for the first time.
    Finish(usize),
    /// The scheduler ends its run, whether or not it has finished; or it dies.
    End(usize),
    /// A wake that is owed is made.
    Wake(Reason),
    /// The same, but its answer is lost: it will be made again.
    WakeAgain(Reason),
    /// Whoever owes it dies.
    LoseWake(Reason),
    /// A worker claims a start.
    Start,
    /// A permit ends unused; a wake is owed.
    Free,
    /// An attempt succeeds; a wake is owed where places were short.
    Succeed,
    /// An attempt fails; a wake is owed for its retry.
    Fail,
    /// The owner pauses the destination.
    Pause,
    /// The owner resumes it.
    Resume,
    /// The owner raises the limit: a slot opens.
    Raise,
    /// The schedule loses its jobs, and begins another life.
    Wipe,
    /// The schedule fails over to an old copy, and begins another life.
    FailOver,
    /// The schedule's clock steps back.
    ClockBack,
    /// The sweep asks for the schedule's life.
    SweepBegin,
    /// It reads the store.
    SweepRead,
    /// It makes its wakes.
    SweepWake,
    /// It notes the rebuild, and clears the marks that it has read.
    SweepSettle,
    /// It dies.
    SweepDies,
}

/// What a wake is owed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// New work, or a free place.
    Work,
    /// A permit that ended unused.
    Freed,
    /// A retry.
    Retry,
}

impl WakeProtocol {
    pub(super) fn enabled(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        let (store, left) = (&state.store, &state.left);
        let mut may = |allowed: bool, action| {
            if allowed {
                actions.push(action);
            }
        };
        may(left.arrivals > 0, Action::Ingest);
        may(store.admitted > 0, Action::Start);
        may(store.admitted > 0, Action::Free);
        may(store.in_flight > 0, Action::Succeed);
        let retry = left.retries > 0 && store.retry.is_none();
        may(store.in_flight > 0 && retry, Action::Fail);
        let change = left.changes > 0;
        may(change && !store.paused, Action::Pause);
        may(change && store.paused, Action::Resume);
        may(change && !store.paused && store.slot > 0, Action::Raise);
        may(left.losses > 0, Action::Wipe);
        may(left.losses > 0, Action::FailOver);
        may(left.losses > 0 && state.job.is_some(), Action::ClockBack);
        for reason in [Reason::Work, Reason::Freed, Reason::Retry] {
            let owed = self.owed(state, reason).is_some();
            may(owed, Action::Wake(reason));
            may(owed, Action::WakeAgain(reason));
            may(owed && left.losses > 0, Action::LoseWake(reason));
        }
        self.enabled_for_schedulers(state, actions);
        match state.sweep {
            Sweep::Idle => actions.push(Action::SweepBegin),
            Sweep::Asked(_) => actions.push(Action::SweepRead),
            Sweep::Page { .. } => actions.extend([Action::SweepWake, Action::SweepDies]),
            Sweep::Woken { .. } => actions.extend([Action::SweepSettle, Action::SweepDies]),
        }
    }

    fn enabled_for_schedulers(&self, state: &State, actions: &mut Vec<Action>) {
        let due = state.job.is_some_and(|job| job.due == 0);
        for (index, scheduler) in state.schedulers[..self.bounds.schedulers]
            .iter()
            .enumerate()
        {
            match scheduler {
                Scheduler::Idle if due => actions.push(Action::Take(index)),
                Scheduler::Idle => {}
                Scheduler::Took => {
                    actions.extend([Action::Run(index), Action::Skip(index), Action::End(index)]);
                }
                Scheduler::Finishing(_) => {
                    actions.extend([Action::Finish(index), Action::End(index)]);
                }
            }
        }
    }
}
