//! Jobs of destinations whose last tries failed run in company: pure.
//!
//! A job that runs alone costs a transaction, a message and two statements of its
//! own; a hundred that run together cost little more than one. Thousands of
//! receivers that are down or hang would each come alone, and those that answer
//! would pay for it. So a job of a failing destination waits for the next round,
//! at most [`ROUND`] away, and what follows from it (claims, outcomes) comes
//! together as well. Rounds are by the store's clock: all schedulers agree.
//!
//! Who waits for a limit is not kept waiting: its runs are where its slots are.

use std::collections::HashMap;
use std::time::Duration;

use domain::ids::DestinationId;
use domain::time::Timestamp;

use crate::ports::{Run, RunResult, TakenJob};

/// Between two rounds: the longest that a failing destination waits for others.
const ROUND: Duration = Duration::from_millis(250);

/// How long after its beginning a round is open.
const OPEN: Duration = Duration::from_millis(25);

/// Destinations that are remembered; beyond it all begin anew.
const MAX_FAILING: usize = 100_000;

/// Destinations whose last tries had failed when they ran here, with all that was
/// due admitted; of each, whether its job waits for a round already.
#[derive(Debug, Default)]
pub(super) struct Company {
    failing: HashMap<DestinationId, bool>,
}

impl Company {
    /// Remembers who is failing.
    pub(super) fn note(&mut self, runs: &[Run], results: &[RunResult]) {
        for (run, result) in runs.iter().zip(results) {
            match result {
                RunResult::Decided {
                    blocked: None,
                    failing: true,
                    ..
                } => {
                    if self.failing.len() >= MAX_FAILING {
                        self.failing.clear();
                    }
                    self.failing.insert(run.destination, false);
                }
                _ => _ = self.failing.remove(&run.destination),
            }
        }
    }

    /// When the next round begins, if this job is to wait for it. None waits twice,
    /// whatever the clock does, and none whose permits may have to be published.
    pub(super) fn round(&mut self, job: &TakenJob, now: Timestamp) -> Option<Timestamp> {
        let waits = self.failing.get_mut(&job.destination)?;
        // A round is open as long as a moment ago was before it.
        let is_open = (now - OPEN).rounded_up(ROUND) <= now;
        *waits = !(*waits || job.lapsed || is_open);
        waits.then(|| now.rounded_up(ROUND))
    }
}

#[cfg(test)]
mod tests {
    use domain::admission::{Blocked, Look};
    use uuid::Uuid;

    use super::*;

    const ONE: DestinationId = DestinationId(Uuid::nil());

    fn noted(blocked: Option<Blocked>, failing: bool) -> Company {
        let mut company = Company::default();
        company.note(
            &[Run {
                destination: ONE,
                republish: false,
            }],
            &[decided(blocked, failing)],
        );
        company
    }

    fn decided(blocked: Option<Blocked>, failing: bool) -> RunResult {
        RunResult::Decided {
            permits: Vec::new(),
            look: Look::Idle,
            blocked,
            failing,
        }
    }

    fn job(lapsed: bool) -> TakenJob {
        TakenJob {
            destination: ONE,
            token: String::new(),
            lapsed,
            overdue: Duration::ZERO,
        }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_failing_one_waits_for_the_next_round_and_never_twice() {
        let mut company = noted(None, true);
        assert_eq!(company.round(&job(false), at(1_100)), Some(at(1_250)));
        assert_eq!(company.round(&job(false), at(1_240)), None, "it has waited");
        assert_eq!(company.round(&job(false), at(1_300)), Some(at(1_500)));
    }

    #[test]
    fn a_round_is_open_for_a_moment() {
        let mut company = noted(None, true);
        assert_eq!(company.round(&job(false), at(1_500)), None);
        assert_eq!(company.round(&job(false), at(1_525)), None);
        assert_eq!(company.round(&job(false), at(1_526)), Some(at(1_750)));
    }

    #[test]
    fn nobody_else_waits() {
        for mut company in [
            noted(None, false),
            noted(Some(Blocked::Limit), true),
            Company::default(),
        ] {
            assert_eq!(company.round(&job(false), at(1_100)), None);
        }
        assert_eq!(noted(None, true).round(&job(true), at(1_100)), None);
    }

    #[test]
    fn one_that_succeeded_waits_no_more() {
        let mut company = noted(None, true);
        company.note(
            &[Run {
                destination: ONE,
                republish: false,
            }],
            &[decided(None, false)],
        );
        assert_eq!(company.round(&job(false), at(1_100)), None);
    }
}
