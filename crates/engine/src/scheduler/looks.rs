//! When this scheduler knows that something is due.

use std::time::Duration;

use tokio::time::Instant;

use crate::ports::{Finish, NextRun, Taken};

/// The first job to run, by what a take answered and by what was finished
/// since. What others finish is theirs to look at; what is woken meanwhile is
/// told by the schedule.
pub(super) struct Looks {
    first: Option<Instant>,
}

impl Looks {
    /// By a take that has just answered.
    pub(super) fn after(taken: &Taken) -> Self {
        let now = Instant::now();
        Self {
            first: taken.next_due.and_then(|due| now.checked_add(due)),
        }
    }

    /// These next runs count from now.
    pub(super) fn finish(&mut self, finishes: &[Finish]) {
        let now = Instant::now();
        let runs = finishes.iter().filter_map(|finish| match finish.next {
            NextRun::After { delay, .. } => now.checked_add(delay),
            NextRun::Remove => None,
        });
        self.first = self.first.into_iter().chain(runs).min();
    }

    /// How long to wait, at most `idle`.
    pub(super) fn pause(&self, idle: Duration) -> Duration {
        let until = |due: Instant| due.saturating_duration_since(Instant::now());
        self.first.map_or(idle, |due| until(due).min(idle))
    }
}
