//! Whom the fleet's places have stopped.
//!
//! A run of these that comes before the next count can be given nothing: so their jobs wait
//! for it, together, and share what has come free by then. Nobody else waits. Who comes new,
//! above all of a tenant that has less than its share, is given it although the room is used
//! up, so its run goes on with the count that there is.

use std::collections::HashSet;

use domain::admission::Blocked;
use domain::ids::DestinationId;
use tokio::time::Instant;

use crate::ports::{Run, RunResult, TakenJob};

/// Destinations that are remembered; beyond it all begin anew.
const MAX_STOPPED: usize = 100_000;

/// Destinations that the fleet's places, or their tenant's, stopped at their last run here.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    destinations: HashSet<DestinationId>,
}

impl Stopped {
    /// Remembers who is.
    pub(super) fn note(&mut self, runs: &[Run], results: &[RunResult]) {
        for (run, result) in runs.iter().zip(results) {
            match result {
                RunResult::Decided {
                    blocked: Some(Blocked::Places),
                    ..
                } => {
                    if self.destinations.len() >= MAX_STOPPED {
                        self.destinations.clear();
                    }
                    self.destinations.insert(run.destination);
                }
                _ => _ = self.destinations.remove(&run.destination),
            }
        }
    }

    /// Whether this job's destination is, by a count that does not know what it came for.
    pub(super) fn comes_too_soon(&self, job: &TakenJob, by: Knows) -> bool {
        by.is_older_than(job) && self.destinations.contains(&job.destination)
    }
}

/// What a tick knows of the fleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Knows {
    /// When it asked for jobs.
    pub(super) began: Instant,
    /// When the count was asked for that it goes by.
    pub(super) counted: Option<Instant>,
}

impl Knows {
    fn is_older_than(self, job: &TakenJob) -> bool {
        let due = self.began.checked_sub(job.overdue);
        (self.counted.zip(due)).is_some_and(|(counted, due)| counted < due)
    }
}
