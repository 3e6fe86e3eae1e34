//! Many seeds on a few threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::counts::Counts;
use crate::scenario::{Mood, Scenario};
use crate::shrink::{Shrunk, shrink};
use crate::world::{Report, run};

/// Failures that are remembered.
pub const MOST_FAILURES: usize = 100;

/// How much to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// So much virtual time, all seeds together.
    Simulated(Duration),
    /// For so long, by the clock on the wall.
    Wall(Duration),
}

/// Seeds from `first` on, until the budget is used up.
#[derive(Debug, Clone, Copy)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How much.
    pub budget: Budget,
    /// Threads.
    pub jobs: usize,
    /// Whether the first failure ends it.
    pub after_failure: AfterFailure,
}

/// What a seed that broke a promise means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// No other seed is begun.
    Stop,
    /// The others are played, too.
    GoOn,
}

/// What all runs of a campaign came to.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Scenarios that were played.
    pub scenarios: u64,
    /// Their virtual time.
    pub simulated: Duration,
    /// The part of it in which nothing failed any more.
    pub draining: Duration,
    /// The part of it in calm scenarios, where use is judged.
    pub calm: Duration,
    /// The part of it in long ones.
    pub long: Duration,
    /// Starts.
    pub starts: u64,
    /// What happened how often.
    pub counts: Counts,
    /// Seeds that broke a promise, the first [`MOST_FAILURES`] of them; the
    /// first is shrunk.
    pub failures: Vec<Failure>,
}

/// A seed that broke a promise.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which.
    pub seed: u64,
    /// How its run went.
    pub report: Report,
    /// What is left of it.
    pub shrunk: Option<Shrunk>,
}

impl Campaign {
    /// Plays seed after seed, and shrinks the first that breaks a promise. `told` hears of every scenario that ended.
    pub fn run(&self, told: impl Fn(&Summary) + Sync) -> Summary {
        let began = Instant::now();
        let next = AtomicU64::new(self.first);
        let stop = AtomicBool::new(false);
        let summary = Mutex::new(Summary::default());
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        let summary = self.play(seed, &summary);
                        let is_over = match self.budget {
                            Budget::Simulated(budget) => summary.simulated >= budget,
                            Budget::Wall(budget) => began.elapsed() >= budget,
                        };
                        let failed = !summary.failures.is_empty();
                        if is_over || (failed && self.after_failure == AfterFailure::Stop) {
                            stop.store(true, Ordering::Relaxed);
                        }
                        told(&summary);
                    }
                });
            }
        });
        let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = summary.failures.first_mut() {
            failure.shrunk = shrink(&Scenario::from_seed(failure.seed));
        }
        summary
    }

    fn play<'a>(
        &self,
        seed: u64,
        summary: &'a Mutex<Summary>,
    ) -> std::sync::MutexGuard<'a, Summary> {
        let scenario = Scenario::from_seed(seed);
        let counts = Counts::default();
        let report = run(&scenario, None, &counts);
        let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
        summary.add(&scenario, report, &counts);
        summary
    }
}

impl Summary {
    fn add(&mut self, scenario: &Scenario, report: Report, counts: &Counts) {
        self.scenarios += 1;
        self.simulated += report.simulated;
        self.draining += report.draining;
        self.starts += report.starts;
        match scenario.mood {
            Mood::Calm => self.calm += report.simulated,
            Mood::Long => self.long += report.simulated,
            Mood::Stormy => {}
        }
        for (what, times) in counts.all() {
            self.counts.add(what, times);
        }
        if !report.broken.is_empty() && self.failures.len() < MOST_FAILURES {
            self.failures.push(Failure {
                seed: scenario.seed,
                report,
                shrunk: None,
            });
        }
    }
}
