//! What can happen next, and what it does.

use super::job::{self, Job, Wake};
use super::state::{Life, Loss, Mark, Scheduler, State, Sweep};
use super::{CLOCK_STEP, FAR, Mutation, PLACES, RETRY, WakeProtocol};

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
            }
            _ => self.step_sweep(state, action),
        }
    }

    fn step_sweep(&self, state: &mut State, action: Action) {
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

    fn take(&self, state: &mut State, index: usize) {
        let Some(mut before) = state.job else {
            return;
        };
        // Whoever held it has lost it.
        before.lease = before.lease.filter(|lease| lease.woken.is_none());
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

    fn wake(&self, state: &mut State, wake: Wake) {
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

fn note(state: &mut State, broken: Option<super::job::Rule>) {
    state.broken = state.broken.or(broken);
}
