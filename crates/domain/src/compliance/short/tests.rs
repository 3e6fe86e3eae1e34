use super::*;
use crate::destination::DestinationState;
use crate::policy::LimitSettings;
use crate::series::{Passage, Series};

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn settings(per_second: u32) -> LimitSettings {
    LimitSettings {
        per_second: Some(per_second),
        max_in_flight: Some(4),
        ..LimitSettings::EXACT
    }
}

/// A minute: so many are due at its beginning, and start at these times, each
/// for so long.
struct Minute {
    starts: Vec<i64>,
    lasts: i64,
    refused: bool,
    waiting: usize,
}

impl Minute {
    fn curve(&self) -> Curve {
        let mut series = Series::new(at(0), at(60_000), 60);
        for start in &self.starts {
            series.add(&Passage {
                due_at: at(0),
                started_at: Some(at(*start)),
                finished_at: Some(at(start + self.lasts)),
                refused: self.refused,
            });
        }
        let waits = Passage {
            due_at: at(0),
            started_at: None,
            finished_at: None,
            refused: false,
        };
        (0..self.waiting).for_each(|_| series.add(&waits));
        series.finish()
    }
}

fn evenly(every: i64) -> Vec<i64> {
    (0..60_000 / every).map(|number| number * every).collect()
}

fn found(curve: &Curve, evidence: &Evidence<'_>) -> Vec<(i64, i64, Shortfall)> {
    let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
    (under_delivery(curve, evidence).iter())
        .map(|one| (seconds(one.from), seconds(one.until), one.reason))
        .collect()
}

#[test]
fn a_limit_that_is_used_is_no_under_delivery_and_neither_is_an_empty_backlog() {
    let history = [InForce::new(at(0), &settings(10), DestinationState::Active)];
    let evidence = Evidence {
        history: &history,
        ..Evidence::default()
    };
    let mut minute = Minute {
        starts: evenly(100),
        lasts: 20,
        refused: false,
        waiting: 50,
    };
    assert_eq!(found(&minute.curve(), &evidence), []);
    // Half of it, but nothing else is there.
    minute.starts = Vec::new();
    minute.waiting = 0;
    assert_eq!(found(&minute.curve(), &evidence), []);
}

#[test]
fn the_reason_is_what_was_written_down_or_what_shows() {
    let history = [InForce::new(at(0), &settings(10), DestinationState::Active)];
    let slow = Minute {
        starts: evenly(1_000),
        lasts: 4_000,
        refused: false,
        waiting: 50,
    };
    let plain = Evidence {
        history: &history,
        ..Evidence::default()
    };
    let reason = |minute: &Minute, evidence: &Evidence<'_>| {
        let found = found(&minute.curve(), evidence);
        found.last().map(|(_, until, reason)| (*until, *reason))
    };
    assert_eq!(reason(&slow, &plain), Some((60, Shortfall::Concurrency)));

    let quick = Minute { lasts: 20, ..slow };
    assert_eq!(reason(&quick, &plain), Some((60, Shortfall::Places)));

    let refused = Minute {
        refused: true,
        ..quick
    };
    assert_eq!(reason(&refused, &plain), Some((60, Shortfall::Refused)));

    let lowered = Effective {
        per_second: Some(1.0),
        max_in_flight: None,
    };
    let smart = Evidence {
        smart: &[(at(-1), lowered)],
        ..plain
    };
    assert_eq!(reason(&refused, &smart), Some((60, Shortfall::Smart)));

    let noted = Evidence {
        noted: &[Noted {
            from: at(0),
            until: at(99_000),
            reason: Shortfall::Breaker,
        }],
        ..smart
    };
    assert_eq!(reason(&refused, &noted), Some((60, Shortfall::Breaker)));
}

#[test]
fn it_is_found_where_it_was() {
    let history = [InForce::new(at(0), &settings(10), DestinationState::Active)];
    let evidence = Evidence {
        history: &history,
        ..Evidence::default()
    };
    let gap = Minute {
        starts: (evenly(100).into_iter())
            .filter(|start| !(20_000..35_000).contains(start))
            .collect(),
        lasts: 20,
        refused: false,
        waiting: 500,
    };
    let found = under_delivery(&gap.curve(), &evidence);
    assert_eq!(found.len(), 1, "{found:?}");
    let stretch = found[0];
    assert!(
        stretch.from <= at(21_000) && stretch.until == at(35_000),
        "{stretch:?}"
    );
    assert_eq!((stretch.starts, stretch.backlog), (0, 500 + 250));
}

#[test]
fn nothing_is_said_of_a_pause_nor_of_what_cannot_be_known() {
    let hour = LimitSettings {
        per_hour: Some(100),
        ..LimitSettings::EXACT
    };
    let minute = Minute {
        starts: Vec::new(),
        lasts: 20,
        refused: false,
        waiting: 50,
    };
    let silent = |settings, state| {
        let history = [InForce::new(at(0), &settings, state)];
        let evidence = Evidence {
            history: &history,
            ..Evidence::default()
        };
        found(&minute.curve(), &evidence).is_empty()
    };
    // A hundred may have started before.
    assert!(silent(hour, DestinationState::Active));
    assert!(silent(settings(10), DestinationState::Paused));
    assert!(!silent(settings(10), DestinationState::Active));
    let unlimited = LimitSettings {
        unlimited: true,
        ..LimitSettings::EXACT
    };
    assert!(!silent(unlimited, DestinationState::Active));
}

#[test]
fn an_entry_that_changes_no_rate_hides_nothing() {
    let stalled = Minute {
        starts: Vec::new(),
        lasts: 0,
        refused: false,
        waiting: 900,
    };
    let entry = |from, max_in_flight| {
        let settings = LimitSettings {
            max_in_flight: Some(max_in_flight),
            ..settings(10)
        };
        InForce::new(at(from), &settings, DestinationState::Active)
    };
    // A new URL, a new secret, another number of places: each writes an entry.
    let history: Vec<_> = (0..12)
        .map(|number| entry(number * 5_000, 4 + (number / 6) as u32))
        .collect();
    let found = |history: &[InForce]| {
        let evidence = Evidence {
            history,
            ..Evidence::default()
        };
        found(&stalled.curve(), &evidence)
    };
    assert_eq!(found(&history), found(&history[..1]));
    assert_eq!(found(&history).len(), 1);
    // Another rate does: what it was judged by changes.
    let other = InForce::new(at(30_000), &settings(5), DestinationState::Active);
    assert_eq!(found(&[history[0].clone(), other]).len(), 2);
}
