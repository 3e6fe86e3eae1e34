//! What a run finds in the store, and what the sweep reads there.

use super::job::Next;
use super::state::{Mark, Store};
use super::{CROWDED, GRACE, Mutation, PERIOD, PLACES};

impl Store {
    /// One run: admits what it may, and says when to look again. A sketch of
    /// `domain::admission::admit` with a limit of one in P, and of
    /// `Decision::looks_help_from`.
    pub(super) fn run(&mut self, mutation: Option<Mutation>) -> Next {
        if self.paused {
            self.look_helps = None;
            return Next::Remove;
        }
        if self.waiting > 0 && self.slot == 0 && self.used() < PLACES {
            (self.waiting, self.admitted, self.slot) =
                (self.waiting - 1, self.admitted + 1, PERIOD);
        }
        let next = self.next(mutation);
        self.look_helps = Some(match next {
            Next::Remove => 0,
            Next::After { delay, .. } if mutation == Some(Mutation::LookNotedAsPlanned) => {
                signed(delay)
            }
            Next::After { delay, floor } => {
                let from = floor.unwrap_or(0).min(delay);
                signed(self.settled().map_or(from, |settled| from.min(settled)))
            }
        });
        next
    }

    fn next(&self, mutation: Option<Mutation>) -> Next {
        let floor = Some(self.slot).filter(|slot| *slot > 0);
        if self.waiting > 0 && self.used() == PLACES {
            // The floor of a crowded destination is less than a tick.
            let (delay, floor) = (CROWDED, None);
            return Next::After { delay, floor };
        }
        if self.waiting > 0 {
            let delay = self.slot;
            return Next::After { delay, floor };
        }
        let last_deadline =
            (self.settled()).filter(|_| mutation != Some(Mutation::RemovedWhileAdmitted));
        let earliest = last_deadline.into_iter().chain(self.retry).min();
        earliest.map_or(Next::Remove, |delay| Next::After { delay, floor })
    }

    /// A permit ends unused: its place in the limit is free again.
    pub(super) fn free_permit(&mut self) {
        (self.admitted, self.waiting, self.slot) = (self.admitted - 1, self.waiting + 1, 0);
    }

    /// A pause: the same transaction takes the permits back.
    pub(super) fn pause(&mut self) {
        self.paused = true;
        self.waiting += self.admitted;
        self.admitted = 0;
        self.mark = Mark::New;
    }

    /// When the sweep wants it woken.
    pub(super) fn swept(&self, everything: bool) -> Option<u8> {
        if self.paused {
            None
        } else if self.waiting > 0 {
            (everything || self.is_overdue()).then_some(0)
        } else if !everything {
            None
        } else if let Some(due) = self.retry {
            Some(due)
        } else {
            (self.admitted > 0).then_some(0)
        }
    }

    /// By when a job has to be due so that no work waits for longer than what
    /// blocks it.
    pub(super) fn needed_in(&self) -> Option<u8> {
        if self.paused {
            return None;
        }
        let crowded = self.used() == PLACES;
        let waiting = (self.waiting > 0).then_some(if crowded {
            CROWDED.max(self.slot)
        } else {
            self.slot
        });
        let retry = self.retry.map(|due| due.max(self.slot));
        let permits = (self.admitted > 0).then_some(GRACE.max(self.slot));
        waiting.into_iter().chain(retry).chain(permits).min()
    }

    /// Whether an attempt could be admitted right now.
    pub(super) fn could_start(&self) -> bool {
        !self.paused && self.waiting > 0 && self.slot == 0 && self.used() < PLACES
    }
}

fn signed(ticks: u8) -> i8 {
    i8::try_from(ticks).expect("a few ticks")
}
