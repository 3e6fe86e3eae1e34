//! What each step does.

use super::action::{Action, Permit};
use super::state::{Ahead, Copies, Lock, Stage, State};
use super::store::Answer;
use super::{Admission, GRACE, LEAD, Mutation, PERIOD};

impl Admission {
    pub(super) fn step(&self, state: &mut State, action: Action) {
        match action {
            Action::Tick => self.tick(state),
            Action::Lock => state.lock = Lock::Locked,
            Action::Decide => {
                let picks = self.picks(state);
                let nothing = picks.iter().all(Option::is_none);
                state.lock = if nothing {
                    Lock::Free
                } else {
                    Lock::Decided(picks)
                };
            }
            Action::Commit => {
                if let Lock::Decided(picks) = state.lock {
                    self.mark_admitted(state, picks);
                }
                state.lock = Lock::Free;
                state.change_ahead();
            }
            Action::RollBack => state.lock = Lock::Free,
            Action::DecideAhead => {
                state.ahead = Some(Ahead {
                    picks: self.picks(state),
                    changed: false,
                });
            }
            Action::LockAhead => {
                let unchanged =
                    |ahead: &Ahead| !ahead.changed || self.mutated(Mutation::StaleSnapshot);
                if let Some(ahead) = state.ahead.take().filter(unchanged) {
                    state.lock = Lock::Decided(ahead.picks);
                }
            }
            Action::Skip => state.ahead = None,
            Action::Change { to } => {
                state.lock = Lock::Changing {
                    to,
                    in_force: false,
                }
            }
            Action::ChangeInForce => {
                if let Lock::Changing { to, .. } = state.lock {
                    self.change_in_force(state, to);
                }
            }
            Action::ChangeCommitted => {
                if let Lock::Changing { to, .. } = state.lock {
                    state.changes_left -= 1;
                    self.commit_change(state, to);
                    state.change_ahead();
                }
            }
            Action::Expire(row) if self.mutated(Mutation::ExpiryEndsEvent) => {
                state.rows[row].stage = Stage::Dropped;
            }
            Action::Expire(row) => self.return_row(state, row),
            Action::SenderDies(row) | Action::Succeed(row) | Action::Fail(row) => {
                self.outcome(state, row, action);
            }
            Action::GiveUp(row) => self.give_up(state, row),
            _ => self.step_permit(state, action),
        }
        let in_force = self.judged_limit(state);
        state.bounds[0] = state.bounds[0].max(in_force);
    }

    fn judged_limit(&self, state: &State) -> u8 {
        match state.lock {
            Lock::Changing { to, .. } if self.mutated(Mutation::HistoryTooEarly) => to,
            _ => state.in_force(),
        }
    }

    fn tick(&self, state: &mut State) {
        let in_force = self.judged_limit(state);
        state.starts.rotate_right(1);
        state.starts[0] = 0;
        state.bounds.rotate_right(1);
        state.bounds[0] = in_force;
        for row in &mut state.rows[..self.bounds.rows()] {
            row.started = (row.started)
                .map(|ago| ago + 1)
                .filter(|ago| i16::from(*ago) < i16::from(PERIOD));
            if let Stage::Admitted { deadline } | Stage::Claiming { deadline } = &mut row.stage {
                *deadline = nearer(*deadline);
            }
        }
        let picks = match &mut state.lock {
            Lock::Decided(picks) => Some(picks),
            _ => None,
        };
        let ahead = state.ahead.as_mut().map(|ahead| &mut ahead.picks);
        for picks in picks.into_iter().chain(ahead) {
            for (_, deadline) in picks.iter_mut().flatten() {
                *deadline = nearer(*deadline);
            }
        }
    }

    fn outcome(&self, state: &mut State, index: usize, action: Action) {
        let was_unknown = matches!(state.rows[index].stage, Stage::Unknown { .. });
        let row = &mut state.rows[index];
        match action {
            Action::Succeed(_) => {
                row.stage = Stage::Succeeded;
                if was_unknown {
                    self.cancel_retry(state, index);
                }
            }
            Action::Fail(_) => {
                row.stage = Stage::Failed;
                if !was_unknown {
                    self.retry(state, index);
                }
            }
            _ if was_unknown => row.stage = Stage::Unknown { worker: false },
            _ => row.stage = Stage::Started { worker: false },
        }
    }

    fn give_up(&self, state: &mut State, index: usize) {
        let row = &mut state.rows[index];
        let Stage::Started { worker } = row.stage else {
            return;
        };
        if self.mutated(Mutation::UnknownForgetsStart) {
            (row.stage, row.started) = (Stage::Waiting, None);
            return;
        }
        row.stage = Stage::Unknown { worker };
        if !self.mutated(Mutation::UnknownNotRetried) {
            self.retry(state, index);
        }
    }

    fn step_permit(&self, state: &mut State, action: Action) {
        match action {
            Action::Publish(permit) => {
                let copies = copies(state, permit);
                (copies.unpublished, copies.queued) = (false, copies.queued + 1);
            }
            Action::NotPublished(permit) => copies(state, permit).unpublished = false,
            Action::Republish(permit) | Action::Redeliver(permit) => {
                copies(state, permit).queued += 1;
            }
            Action::Lose(permit) => copies(state, permit).queued -= 1,
            Action::Deliver(permit) => {
                let copies = copies(state, permit);
                (copies.queued, copies.held) = (copies.queued - 1, copies.held + 1);
            }
            Action::HolderDies(permit) => back_to_queue(state, permit),
            Action::HandBack(permit) => {
                copies(state, permit).held -= 1;
                self.return_row(state, permit.row);
            }
            Action::Claim(permit) => self.step_claim(state, permit),
            Action::Start(permit) => {
                state.rows[permit.row].stage = Stage::Started { worker: true };
                copies(state, permit).held -= 1;
            }
            Action::StartUnsent(permit) => {
                state.rows[permit.row].stage = Stage::Started { worker: false };
                back_to_queue(state, permit);
            }
            _ => {}
        }
    }

    fn step_claim(&self, state: &mut State, permit: Permit) {
        match self.answer(state, permit.row, permit.number) {
            Answer::Started => self.claim(state, permit.row),
            Answer::Late => {
                copies(state, permit).held -= 1;
                self.return_row(state, permit.row);
            }
            // The store knows of it: acknowledged.
            Answer::Refused => copies(state, permit).held -= 1,
            Answer::Early | Answer::Skipped => {}
        }
    }
}

fn copies(state: &mut State, permit: Permit) -> &mut Copies {
    &mut state.rows[permit.row].messages[usize::from(permit.number) - 1]
}

fn back_to_queue(state: &mut State, permit: Permit) {
    let copies = copies(state, permit);
    (copies.held, copies.queued) = (copies.held - 1, copies.queued + 1);
}

/// A deadline a tick later. One that passed a period ago counts in no window
/// any more, and how much longer ago it was matters to nobody.
fn nearer(deadline: i8) -> i8 {
    debug_assert!(deadline <= GRACE + LEAD);
    (deadline - 1).max(-PERIOD)
}
