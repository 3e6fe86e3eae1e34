//! What each step does.

use super::action::{Action, Reason};
use super::job::{self, Job, Wake};
use super::state::{Loss, Mark, Scheduler, State, Sweep};
use super::{CLOCK_STEP, FAR, Mutation, PLACES, RETRY, WakeProtocol};

impl WakeProtocol {
    /// The wake that is owed for this.
    pub(super) fn owed(&self, state: &State, reason: Reason) -> Option<Wake> {
        let plain = |after| Wake {
            after,
            clear_floor: false,
        };
        match reason {
            Reason::Work => state.owed.plain.then_some(plain(0)),
            Reason::Freed => state.owed.freed.then_some(Wake {
                after: 0,
                clear_floor: !self.mutated(Mutation::FreedWakesPlainly),
            }),
            Reason::Retry => state.owed.later.map(plain),
        }
    }

    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => tick(state),
            Action::Take(index) => self.take(state, index),
            Action::Run(index) => {
                let next = state.store.run(self.mutation);
                state.schedulers[index] = Scheduler::Finishing(next);
            }
            Action::Skip(index) => {
                let next = match self.mutated(Mutation::SkippedIsEmpty) {
                    true => job::Next::Remove,
                    // Less than a tick.
                    false => job::Next::After {
                        delay: 0,
                        floor: None,
                    },
                };
                state.schedulers[index] = Scheduler::Finishing(next);
            }
            Action::Finish(index) => self.finish(state, index),
            Action::End(index) => {
                state.schedulers[index] = Scheduler::Idle;
                if let Some(job) = &mut state.job {
                    job.forget(index);
                }
            }
            Action::Wake(reason) | Action::WakeAgain(reason) => {
                if let Some(wake) = self.owed(state, reason) {
                    self.wake(state, wake);
                }
                if action == Action::Wake(reason) {
                    settle(state, reason);
                }
            }
            Action::LoseWake(reason) => {
                settle(state, reason);
                lose(state);
            }
            Action::Wipe | Action::FailOver | Action::ClockBack => self.lose_jobs(state, action),
            _ => self.step_store(state, action),
        }
    }

    fn step_store(&self, state: &mut State, action: Action) {
        let store = &mut state.store;
        match action {
            Action::Ingest => {
                store.waiting += 1;
                state.left.arrivals -= 1;
                state.owed.plain |= !self.mutated(Mutation::WakeBeforeCommit);
            }
            Action::Start => {
                (store.admitted, store.in_flight) = (store.admitted - 1, store.in_flight + 1);
            }
            Action::Free => {
                store.free_permit();
                state.owed.freed = true;
            }
            Action::Succeed | Action::Fail => {
                let crowded = store.used() == PLACES;
                store.in_flight -= 1;
                state.owed.plain |= crowded && !self.mutated(Mutation::OutcomeNotWoken);
                if action == Action::Fail {
                    store.retry = Some(RETRY);
                    state.left.retries -= 1;
                    if !self.mutated(Mutation::RetryNotWoken) {
                        state.owed.later = Some(RETRY);
                    }
                }
            }
            Action::Pause | Action::Resume | Action::Raise => {
                state.left.changes -= 1;
                match action {
                    Action::Pause => store.pause(),
                    Action::Resume => store.paused = false,
                    _ => store.slot = 0,
                }
                store.mark = Mark::New;
                // The trigger sets it back: whatever the last run waited for.
                store.look_helps = Some(0);
            }
            _ => self.step_sweep(state, action),
        }
    }

    fn take(&self, state: &mut State, index: usize) {
        let Some(before) = state.job else {
            return;
        };
        let after = job::take(before, index, self.mutation);
        note(state, job::judge_take(before, after));
        state.job = after;
        state.schedulers[index] = Scheduler::Took;
    }

    fn finish(&self, state: &mut State, index: usize) {
        let Scheduler::Finishing(next) = state.schedulers[index] else {
            return;
        };
        let after = job::finish(state.job, index, next, self.mutation);
        note(state, job::judge_finish(state.job, after, index, next));
        state.job = after;
    }

    pub(super) fn wake(&self, state: &mut State, wake: Wake) {
        let after = job::wake(state.job, wake, self.mutation);
        note(state, job::judge_wake(state.job, after, wake));
        state.job = Some(after);
    }

    fn lose_jobs(&self, state: &mut State, action: Action) {
        state.left.losses -= 1;
        state.loss = Loss::Open;
        if action == Action::ClockBack {
            if let Some(job) = &mut state.job {
                job.due += CLOCK_STEP;
                job.floor = job.floor.map(|floor| floor + CLOCK_STEP);
            }
            return;
        }
        let old_copy = Job {
            due: FAR,
            floor: Some(FAR),
            lease: None,
        };
        state.job = (action == Action::FailOver).then_some(old_copy);
        (state.built, state.unbuilt) = (false, true);
        state.sweep.lose();
    }

    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

fn tick(state: &mut State) {
    state.store.tick();
    state.owed.tick();
    if let Some(job) = &mut state.job {
        job.tick();
    }
    for scheduler in &mut state.schedulers {
        if let Scheduler::Finishing(next) = scheduler {
            next.tick();
        }
    }
    if let Sweep::Page {
        wake: Some(after), ..
    } = &mut state.sweep
    {
        *after = after.saturating_sub(1);
    }
}

/// A wake is made, or will never be.
fn settle(state: &mut State, reason: Reason) {
    match reason {
        Reason::Work => state.owed.plain = false,
        Reason::Freed => state.owed.freed = false,
        Reason::Retry => state.owed.later = None,
    }
}

fn lose(state: &mut State) {
    state.left.losses -= 1;
    state.loss = Loss::Open;
}

fn note(state: &mut State, broken: Option<super::job::Rule>) {
    state.broken = state.broken.or(broken);
}
