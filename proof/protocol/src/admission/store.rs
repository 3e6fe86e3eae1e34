//! What the store does in one statement or transaction: usage, admission,
//! claims, outcomes, reaping.

use domain::admission::{Backlog, Decision, Outstanding, Slot, Usage, admit};
use domain::policy::{LimitSettings, Policy};

use super::state::{Lock, Picks, Row, Stage, State};
use super::{Admission, GRACE, Mutation, TICKS};
use crate::ticks::NOW;

/// What a claim is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Started.
    Started,
    /// Its slot is still to come: the worker asks again.
    Early,
    /// Somebody holds the row: the worker asks again.
    Skipped,
    /// Past its deadline: the row waits again.
    Late,
    /// The row does not carry this permit any more.
    Refused,
}

impl Admission {
    /// What the destination uses, read in one statement.
    pub(super) fn usage(&self, state: &State) -> Usage {
        let mut starts: Vec<_> = (self.rows(state))
            .filter_map(Row::recorded_start)
            .filter(|_| !self.mutated(Mutation::StartsIgnored))
            .collect();
        starts.sort_unstable();
        let outstanding = (self.rows(state))
            .filter(|row| !(self.mutated(Mutation::LateRecord) && row.is_claiming()))
            .filter_map(Row::deadline)
            .filter(|_| !self.mutated(Mutation::OutstandingIgnored))
            .filter(|deadline| !(self.mutated(Mutation::ForgottenByTime) && *deadline < 0))
            .map(|deadline| Outstanding {
                not_before: TICKS.at(deadline - GRACE),
                deadline: match self.mutation {
                    Some(Mutation::CountedAtSlot) => TICKS.at(deadline - GRACE),
                    Some(Mutation::CountedTooLong) => TICKS.at(deadline + 1),
                    _ => TICKS.at(deadline),
                },
            })
            .collect();
        Usage {
            outstanding,
            starts: (starts.into_iter())
                .map(|ago| TICKS.at(-i8::try_from(ago).expect("within a period")))
                .collect(),
            ..Usage::default()
        }
    }

    /// What the shipped function decides for this state.
    pub(super) fn decision(&self, state: &State) -> Decision {
        let backlog = Backlog {
            due: u32::try_from(self.eligible(state).count()).expect("a few rows"),
            urgent: 0,
            next_due: None,
        };
        admit(
            &policy(state.limit),
            &self.usage(state),
            &backlog,
            1_000,
            NOW,
        )
    }

    /// Which rows a run would give permits to, and with what deadlines.
    pub(super) fn picks(&self, state: &State) -> Picks {
        let mut picks = Picks::default();
        let slots = self.decision(state).slots;
        let given = self.eligible(state).zip(slots);
        for (pick, (row, slot)) in picks.iter_mut().zip(given) {
            *pick = Some((
                u8::try_from(row).expect("a few rows"),
                TICKS.until(slot.deadline),
            ));
        }
        picks
    }

    /// The slots in whole ticks from now.
    pub(super) fn slots(decision: &Decision) -> impl Iterator<Item = (i8, i8)> + '_ {
        let of = |slot: &Slot| (TICKS.until(slot.not_before), TICKS.until(slot.deadline));
        decision.slots.iter().map(of)
    }

    /// Marks what was picked and still waits.
    pub(super) fn mark_admitted(&self, state: &mut State, picks: Picks) {
        for (index, deadline) in picks.into_iter().flatten() {
            let row = &mut state.rows[usize::from(index)];
            if row.stage == Stage::Waiting {
                row.stage = Stage::Admitted { deadline };
                row.messages[usize::from(row.issued)].unpublished = true;
                row.issued += 1;
            }
        }
    }

    /// Rows that wait and may get another permit within the bounds.
    pub(super) fn eligible<'a>(&'a self, state: &'a State) -> impl Iterator<Item = usize> + 'a {
        (0..self.bounds.rows()).filter(move |index| {
            let row = &state.rows[*index];
            row.stage == Stage::Waiting && usize::from(row.issued) < self.bounds.permits
        })
    }

    /// The compare-and-set of a claim.
    pub(super) fn answer(&self, state: &State, index: usize, number: u8) -> Answer {
        let row = &state.rows[index];
        if !row.carries(number) {
            return Answer::Refused;
        }
        let deadline = match row.stage {
            Stage::Admitted { deadline } => deadline,
            Stage::Claiming { .. } => return Answer::Skipped,
            Stage::Started { .. } if self.mutated(Mutation::DuplicateStarts) => {
                return Answer::Started;
            }
            _ => return Answer::Refused,
        };
        if state.rows_are_held() {
            return Answer::Skipped;
        }
        let wrong_by = i8::from(self.mutated(Mutation::WorkersClocks));
        if deadline < -wrong_by && !self.mutated(Mutation::NoDeadline) {
            Answer::Late
        } else if deadline - GRACE > wrong_by && !self.mutated(Mutation::EarlyStart) {
            Answer::Early
        } else {
            Answer::Started
        }
    }

    /// A claim that was answered *started*, up to its commit.
    pub(super) fn claim(&self, state: &mut State, index: usize) {
        let row = &mut state.rows[index];
        match row.stage {
            Stage::Admitted { deadline } => row.stage = Stage::Claiming { deadline },
            _ => state.started_twice = true,
        }
        row.started = Some(0);
        state.starts[0] += 1;
    }

    /// Moves an admitted row back to waiting.
    pub(super) fn return_row(&self, state: &mut State, index: usize) {
        state.rows[index].stage = Stage::Waiting;
    }

    /// Inserts the next try, if there is one; nothing for the last.
    pub(super) fn retry(&self, state: &mut State, index: usize) {
        let last = index % self.bounds.tries + 1 == self.bounds.tries;
        if !last && state.rows[index + 1].stage == Stage::Absent {
            state.rows[index + 1].stage = Stage::Waiting;
        }
    }

    /// Cancels the retry of a success that came late, unless it has started
    /// or somebody holds its row.
    pub(super) fn cancel_retry(&self, state: &mut State, index: usize) {
        let last = index % self.bounds.tries + 1 == self.bounds.tries;
        if last {
            return;
        }
        let held = state.rows_are_held();
        let row = &mut state.rows[index + 1];
        match row.stage {
            Stage::Waiting => row.stage = Stage::Cancelled,
            Stage::Admitted { .. } if !held => row.stage = Stage::Cancelled,
            _ => {}
        }
    }

    /// The change has the destination's row, has locked the admitted rows, and
    /// reads the clock.
    pub(super) fn change_in_force(&self, state: &mut State, to: u8) {
        state.lock = Lock::Changing { to, in_force: true };
    }

    /// The change commits: all but a raise takes the permits back.
    pub(super) fn commit_change(&self, state: &mut State, to: u8) {
        let raise = is_raise(state.limit, to);
        if !raise && !self.mutated(Mutation::NoRevocation) {
            for row in &mut state.rows {
                if let Stage::Admitted { .. } = row.stage {
                    row.stage = Stage::Waiting;
                }
            }
        }
        state.limit = to;
        state.lock = Lock::Free;
    }

    pub(super) fn rows<'a>(&self, state: &'a State) -> impl Iterator<Item = &'a Row> + use<'a> {
        state.rows[..self.bounds.rows()].iter()
    }

    pub(super) fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }
}

impl Row {
    pub(super) fn is_claiming(&self) -> bool {
        matches!(self.stage, Stage::Claiming { .. })
    }
}

/// Whether a change leaves permits alone.
pub(super) fn is_raise(from: u8, to: u8) -> bool {
    from > 0 && to > from
}

/// L per second as a sliding window; 0 pauses.
fn policy(limit: u8) -> Policy {
    LimitSettings {
        per_second: Some(limit.into()),
        ..LimitSettings::EXACT
    }
    .policy()
}
