//! What runs come to, for metrics: how each ended, and which permits a limit
//! has delayed.

use std::collections::HashSet;

use domain::admission::Blocked;
use domain::ids::DestinationId;

use crate::ports::{Admitted, Run, RunResult};

/// Destinations that are remembered; beyond it all begin anew, and what they
/// are given next counts as not delayed.
const MAX_LIMITED: usize = 100_000;

/// Destinations whose limit was used up at their last run here.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    limited: HashSet<DestinationId>,
}

impl Delayed {
    /// Counts what these runs came to.
    pub(super) fn note(&mut self, runs: &[Run], admitted: &Admitted) {
        for result in &admitted.results {
            metrics::counter!("paceline_job_runs_total", "result" => word(result)).increment(1);
        }
        let delayed = self.delayed(runs, admitted);
        metrics::counter!("paceline_permits_delayed_total").increment(delayed);
    }

    /// How many of these permits a limit has delayed: their slots are later
    /// than the run that gave them, or the run before left them for the limit.
    fn delayed(&mut self, runs: &[Run], admitted: &Admitted) -> u64 {
        let mut delayed = 0;
        for (run, result) in runs.iter().zip(&admitted.results) {
            let RunResult::Decided {
                permits, blocked, ..
            } = result
            else {
                continue;
            };
            let was_limited = self.limited.remove(&run.destination);
            let late = |slot| was_limited || slot > admitted.now;
            let late = permits.iter().filter(|permit| late(permit.not_before));
            delayed += late.count() as u64;
            if matches!(blocked, Some(Blocked::Limit | Blocked::Group)) {
                if self.limited.len() >= MAX_LIMITED {
                    self.limited.clear();
                }
                self.limited.insert(run.destination);
            }
        }
        delayed
    }
}

fn word(result: &RunResult) -> &'static str {
    match result {
        RunResult::Skipped => "skipped",
        RunResult::Gone => "gone",
        RunResult::Decided { blocked, .. } => blocked.map_or("done", Blocked::as_str),
    }
}

#[cfg(test)]
mod tests {
    use domain::admission::Look;
    use domain::ids::{AttemptId, Epoch, PermitNumber};
    use domain::permit::Permit;
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn admitted(slots: &[i64], blocked: Option<Blocked>) -> Admitted {
        let permit = |ms: &i64| Permit {
            destination: DestinationId(Uuid::nil()),
            attempt: AttemptId(*ms),
            number: PermitNumber(*ms),
            epoch: Epoch(1),
            not_before: Timestamp::from_millis(*ms),
            deadline: Timestamp::from_millis(9_000),
        };
        Admitted {
            now: NOW,
            results: vec![RunResult::Decided {
                permits: slots.iter().map(permit).collect(),
                look: Look::Idle,
                blocked,
                failing: false,
            }],
            given: Vec::new(),
        }
    }

    #[test]
    fn what_waits_for_its_slot_or_was_left_for_the_limit_is_delayed() {
        let runs = [Run {
            destination: DestinationId(Uuid::nil()),
            republish: false,
        }];
        let mut noted = Delayed::default();
        let mut run = |slots: &[i64], blocked| noted.delayed(&runs, &admitted(slots, blocked));
        assert_eq!(run(&[1_000, 1_000], None), 0, "at once");
        assert_eq!(
            run(&[1_000, 1_001], Some(Blocked::Limit)),
            1,
            "one in a moment"
        );
        assert_eq!(run(&[1_000], None), 1, "it was left for the limit");
        assert_eq!(run(&[1_000], Some(Blocked::Concurrency)), 0);
        assert_eq!(run(&[1_000], None), 0, "that was no limit");
    }
}
