//! What can happen next.

use super::Admission;
use super::state::{Lock, Stage, State};
use super::store::{Answer, is_raise};

/// One step of somebody, or of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// A scheduler locks the destination's row.
    Lock,
    /// It reads limits and usage, and decides.
    Decide,
    /// It marks what it picked, and commits.
    Commit,
    /// It dies, or its transaction ends without effect.
    RollBack,
    /// A scheduler reads limits and usage and decides, without a lock.
    DecideAhead,
    /// It locks the destination's row and sees whether anything has changed since: what it
    /// has decided is left alone then.
    LockAhead,
    /// Somebody else has the lock, or it dies.
    Skip,
    /// A permit's message is published.
    Publish(Permit),
    /// Its scheduler dies before publishing it.
    NotPublished(Permit),
    /// A run after a lapsed lease publishes it again.
    Republish(Permit),
    /// The queue loses a copy.
    Lose(Permit),
    /// A worker takes a copy from the queue.
    Deliver(Permit),
    /// The queue delivers it once more while a worker still has it.
    Redeliver(Permit),
    /// The worker that has it dies: the copy is in the queue again.
    HolderDies(Permit),
    /// The worker claims the start: the row is locked and judged.
    Claim(Permit),
    /// The claim commits and the worker sends; the message is acknowledged.
    Start(Permit),
    /// The claim commits, but its worker has died: the message comes again.
    StartUnsent(Permit),
    /// The worker hands the permit back, or is refused because its heartbeat
    /// has lapsed.
    HandBack(Permit),
    /// The reaper moves a row whose permit has expired back to waiting.
    Expire(usize),
    /// The sender of a start dies.
    SenderDies(usize),
    /// The outcome is recorded.
    Succeed(usize),
    /// The outcome is recorded; a retry follows if a try is left.
    Fail(usize),
    /// The reaper gives a start up; a retry follows if a try is left.
    GiveUp(usize),
    /// Somebody begins to change the limit: the destination's row is locked.
    Change {
        /// To this.
        to: u8,
    },
    /// The change has locked the admitted rows, and reads the clock.
    ChangeInForce,
    /// The change commits.
    ChangeCommitted,
}

/// A row and the number of one of its permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// Which row.
    pub row: usize,
    /// Which of its permits, from 1.
    pub number: u8,
}

impl Admission {
    pub(super) fn enabled(&self, state: &State, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        self.enabled_for_schedulers(state, actions);
        self.enabled_for_changes(state, actions);
        for index in 0..self.bounds.rows() {
            self.enabled_for_row(state, index, actions);
            for number in 1..=state.rows[index].issued {
                let permit = Permit { row: index, number };
                self.enabled_for_permit(state, permit, actions);
            }
        }
    }

    fn enabled_for_schedulers(&self, state: &State, actions: &mut Vec<Action>) {
        let work = self.eligible(state).next().is_some();
        match state.lock {
            Lock::Free if work && state.limit > 0 => actions.push(Action::Lock),
            Lock::Locked => actions.extend([Action::Decide, Action::RollBack]),
            Lock::Decided(_) => actions.extend([Action::Commit, Action::RollBack]),
            Lock::Free | Lock::Changing { .. } => {}
        }
        match state.ahead {
            None if self.bounds.unlocked && work && state.limit > 0 => {
                actions.push(Action::DecideAhead);
            }
            Some(_) if state.lock == Lock::Free => {
                actions.extend([Action::LockAhead, Action::Skip]);
            }
            Some(_) => actions.push(Action::Skip),
            None => {}
        }
    }

    fn enabled_for_changes(&self, state: &State, actions: &mut Vec<Action>) {
        match state.lock {
            Lock::Free if state.changes_left > 0 => {
                let others = self.bounds.limits.iter().filter(|to| **to != state.limit);
                actions.extend(others.map(|to| Action::Change { to: *to }));
            }
            Lock::Changing {
                to,
                in_force: false,
            } => {
                // Taking the rows back waits for the claims that hold some.
                let open_claim = self.rows(state).any(|row| row.is_claiming());
                if is_raise(state.limit, to) || !open_claim {
                    actions.push(Action::ChangeInForce);
                }
            }
            Lock::Changing { in_force: true, .. } => actions.push(Action::ChangeCommitted),
            _ => {}
        }
    }

    fn enabled_for_row(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        match state.rows[index].stage {
            Stage::Admitted { deadline } if deadline < 0 && !state.rows_are_held() => {
                actions.push(Action::Expire(index));
            }
            Stage::Started { worker } => {
                actions.push(Action::GiveUp(index));
                if worker {
                    actions.extend([Action::Succeed(index), Action::Fail(index)]);
                    actions.push(Action::SenderDies(index));
                }
            }
            Stage::Unknown { worker: true } => {
                actions.extend([Action::Succeed(index), Action::Fail(index)]);
                actions.push(Action::SenderDies(index));
            }
            _ => {}
        }
    }

    fn enabled_for_permit(&self, state: &State, permit: Permit, actions: &mut Vec<Action>) {
        let row = &state.rows[permit.row];
        let copies = row.messages[usize::from(permit.number) - 1];
        let admitted = matches!(row.stage, Stage::Admitted { .. }) && row.carries(permit.number);
        let room = copies.count() < self.bounds.copies;
        if copies.unpublished {
            actions.push(Action::NotPublished(permit));
            if room {
                actions.push(Action::Publish(permit));
            }
        } else if room && admitted && row.deadline() >= Some(0) {
            actions.push(Action::Republish(permit));
        }
        if copies.queued > 0 {
            actions.extend([Action::Lose(permit), Action::Deliver(permit)]);
        }
        if copies.held == 0 {
            return;
        }
        actions.push(Action::HolderDies(permit));
        if room {
            actions.push(Action::Redeliver(permit));
        }
        if admitted && !state.rows_are_held() {
            actions.push(Action::HandBack(permit));
        }
        match self.answer(state, permit.row, permit.number) {
            Answer::Started | Answer::Late | Answer::Refused => actions.push(Action::Claim(permit)),
            Answer::Early | Answer::Skipped => {}
        }
        if row.is_claiming() && row.carries(permit.number) {
            actions.extend([Action::Start(permit), Action::StartUnsent(permit)]);
        }
    }
}
