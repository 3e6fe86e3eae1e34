//! The sweep: asks for the schedule's life, reads the store, wakes, settles.

use super::action::Action;
use super::job::{Job, Wake};
use super::state::{Life, Loss, Mark, State, Sweep};
use super::{Mutation, WakeProtocol};

impl WakeProtocol {
    pub(super) fn step_sweep(&self, state: &mut State, action: Action) {
        match (action, state.sweep) {
            (Action::SweepBegin, _) => {
                let life = if state.built { Life::Built } else { Life::New };
                state.sweep = Sweep::Asked(life);
                if state.left.losses == 0 {
                    // No other life can come between the two.
                    self.sweep_read(state, life);
                }
            }
            (Action::SweepRead, Sweep::Asked(life)) => self.sweep_read(state, life),
            (Action::SweepWake, Sweep::Page { life, wake, mark }) => {
                self.sweep_wake(state, wake, mark);
                if life == Life::New {
                    state.unbuilt = false;
                }
                state.sweep = Sweep::Woken { life, mark };
            }
            (Action::SweepSettle, Sweep::Woken { life, .. }) => {
                let old = life == Life::Over { new: true };
                if life == Life::New || old && self.mutated(Mutation::RebuiltOldLife) {
                    state.built = true;
                }
                self.clear_mark(state);
                state.sweep = Sweep::Idle;
            }
            (Action::SweepDies, _) => {
                if state.store.mark == Mark::Read {
                    state.store.mark = Mark::New;
                }
                if state.loss == Loss::Seen {
                    state.loss = Loss::Open;
                }
                state.sweep = Sweep::Idle;
            }
            _ => {}
        }
    }

    fn sweep_read(&self, state: &mut State, life: Life) {
        let mark = state.store.mark != Mark::None;
        if mark {
            state.store.mark = Mark::Read;
        }
        let wake = state.store.swept(life.is_new());
        if state.loss == Loss::Open {
            state.loss = Loss::Seen;
        }
        state.sweep = Sweep::Page { life, wake, mark };
        if wake.is_none() && !mark && !life.is_new() && state.loss == Loss::None {
            state.sweep = Sweep::Idle;
            return;
        }
        if self.mutated(Mutation::RebuiltBeforeWakes) && life == Life::New {
            state.built = true;
        }
        if self.mutated(Mutation::MarkClearedBeforeWake) {
            self.clear_mark(state);
        }
    }

    fn sweep_wake(&self, state: &mut State, wake: Option<u8>, mark: bool) {
        let found = wake == Some(0) || mark;
        let left_out = self.mutated(Mutation::SweepGoesByJobs) && state.job.is_some();
        if let Some(after) = wake.filter(|_| !mark && !left_out) {
            // What is woken for now is past the look that was planned, or in
            // a new life: no floor can be trusted.
            let clear_floor = after == 0 && !self.mutated(Mutation::SweepKeepsFloor);
            self.wake(state, Wake { after, clear_floor });
        }
        if mark {
            let clear = Wake {
                after: 0,
                clear_floor: true,
            };
            self.wake(state, clear);
        }
        if state.loss == Loss::Seen {
            let repaired = found || state.store.paused || nothing_left(state);
            state.loss = if repaired { Loss::None } else { Loss::Open };
        }
    }

    fn clear_mark(&self, state: &mut State) {
        let unread = self.mutated(Mutation::MarkClearedUnread);
        if state.store.mark == Mark::Read || unread {
            state.store.mark = Mark::None;
        }
    }
}

/// Whether nothing is scheduled by what was lost: no lease, no floor, and a
/// job exactly if there is work.
fn nothing_left(state: &State) -> bool {
    let fresh = |job: Job| job.floor.is_none() && job.lease.is_none();
    match state.job {
        Some(job) => {
            fresh(job)
                && state
                    .store
                    .needed_in()
                    .is_none_or(|needed| job.due <= needed)
        }
        None => !state.store.has_work(),
    }
}
