//! The highest rate that is sustained, found by short runs.
//!
//! The rate is doubled until a run does not keep up, and then halved in between
//! until the two are close. The report is of a run of the whole length at the
//! rate that was found.

use anyhow::ensure;
use tokio_util::sync::CancellationToken;

use super::measuring::{Wishes, measure};
use super::report::{Ended, Report, Second, number};
use super::settings::{Rate, Settings};
use super::system::System;

/// How long each short run lasts.
const TRIAL_SECONDS: u32 = 10;

/// How close the lowest that failed may be to the highest that did not.
const CLOSE: f64 = 1.08;

/// No machine does more, and none is asked for less.
const MOST: f64 = 1_000_000.0;
const LEAST: f64 = 1.0;

/// Deliveries that must have kept up, of all that were due.
const KEPT_UP: f64 = 0.97;

/// Finds the rate, and runs at it for as long as the settings say.
pub(crate) async fn find(
    system: &mut System,
    settings: &Settings,
    wishes: &Wishes,
    shutdown: &CancellationToken,
) -> anyhow::Result<Report> {
    let mut search = Search::from(settings.rate.0);
    let mut notes = Vec::new();
    while let Some(rate) = search.next() {
        let trial = Settings {
            rate: Rate(rate),
            seconds: TRIAL_SECONDS.min(settings.seconds),
            ..settings.clone()
        };
        let report = measure(system, &trial, wishes, shutdown).await?;
        if shutdown.is_cancelled() {
            return Ok(report);
        }
        // What is left would be in the way of the next.
        let drained = report.ended == Ended::Drained;
        ensure!(
            drained,
            "a backlog did not drain: give it more --drain-seconds"
        );
        let kept_up = keeps_up(&report);
        let verdict = if kept_up {
            "sustained"
        } else {
            "not sustained"
        };
        notes.push(format!("{}/s was {verdict}", number(rate)));
        search.note(kept_up);
    }
    ensure!(search.sustained > 0.0, "not even {LEAST}/s is sustained");
    let found = Settings {
        rate: Rate(search.sustained),
        ..settings.clone()
    };
    let mut report = measure(system, &found, wishes, shutdown).await?;
    if !keeps_up(&report) {
        let seconds = settings.seconds;
        notes.push(format!(
            "the rate that was found was not sustained for {seconds} s"
        ));
    }
    report.notes.extend(notes);
    Ok(report)
}

/// Whether deliveries kept up with what was due.
fn keeps_up(report: &Report) -> bool {
    let metric = |name| report.metric(name).unwrap_or(0.0);
    // In the second half of the load: what is under way all the time does not
    // matter, what grows does.
    let length = report.settings.seconds as usize;
    let half = || report.seconds.iter().take(length).skip(length / 2);
    let sum = |count: fn(&Second) -> u64| half().map(count).sum::<u64>() as f64;
    let wanted = sum(|second| second.offered) * KEPT_UP;
    let kept_up = sum(|second| second.delivered) >= wanted;
    kept_up && metric("refused") < 1.0 && metric("unanswered") < 1.0
}

/// What is known so far.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Search {
    /// The highest that was; zero if none.
    sustained: f64,
    /// The lowest that was not.
    failed: Option<f64>,
    tried: f64,
    first: f64,
}

impl Search {
    fn from(first: f64) -> Self {
        Self {
            sustained: 0.0,
            failed: None,
            tried: 0.0,
            first: first.clamp(LEAST, MOST),
        }
    }

    /// The next to try, if there is one.
    fn next(&mut self) -> Option<f64> {
        let next = match self.failed {
            None if self.sustained <= 0.0 => self.first,
            None => (self.sustained * 2.0).min(MOST),
            Some(failed) if self.sustained <= 0.0 => failed / 2.0,
            Some(failed) => (self.sustained * failed).sqrt(),
        };
        let close = self
            .failed
            .is_some_and(|failed| failed <= self.sustained * CLOSE);
        let ended = close || next < LEAST || self.sustained >= MOST;
        // Whole numbers are easier to repeat.
        self.tried = next.round();
        (!ended).then_some(self.tried)
    }

    fn note(&mut self, sustained: bool) {
        if sustained {
            self.sustained = self.sustained.max(self.tried);
        } else {
            let lowest = self.failed.unwrap_or(f64::INFINITY);
            self.failed = Some(lowest.min(self.tried));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::gathering;
    use super::super::gathering::tests::evidence;
    use super::*;

    /// What is found where so much is sustained, and in how many tries.
    fn found(first: f64, capacity: f64) -> (f64, usize) {
        let mut search = Search::from(first);
        let mut tries = 0;
        while let Some(rate) = search.next() {
            search.note(rate <= capacity);
            tries += 1;
            assert!(tries < 60, "it ends");
        }
        (search.sustained, tries)
    }

    #[test]
    fn it_finds_the_highest_rate_that_is_sustained() {
        for first in [1.0, 100.0, 5_000.0, 900_000.0] {
            for capacity in [17.0, 1_234.0, 15_000.0, 400_000.0] {
                let (rate, tries) = found(first, capacity);
                assert!(
                    rate <= capacity && rate * CLOSE * 1.06 >= capacity,
                    "{rate} {capacity}"
                );
                assert!(tries <= 25, "{tries}");
            }
        }
    }

    #[test]
    fn it_ends_where_everything_or_nothing_is_sustained() {
        assert_eq!(found(1_000.0, f64::INFINITY).0, MOST);
        assert_eq!(found(1_000.0, 0.0).0, 0.0);
    }

    #[test]
    fn a_run_keeps_up_if_its_backlog_does_not_grow() {
        let mut report = gathering::report(evidence());
        report.metrics.insert("refused".to_owned(), 0.0);
        report.settings.seconds = 4;
        let mut delivers = |counts: [u64; 5]| {
            let second = |delivered| Second {
                offered: 100,
                delivered,
                ..Second::default()
            };
            report.seconds = counts.map(second).to_vec();
            keeps_up(&report)
        };
        assert!(delivers([10, 100, 100, 100, 90]), "always a second behind");
        assert!(!delivers([90, 90, 90, 90, 40]), "further and further");
        report.metrics.insert("refused".to_owned(), 1.0);
        report.seconds = vec![Second::default(); 4];
        assert!(!keeps_up(&report), "not all was taken");
    }
}
