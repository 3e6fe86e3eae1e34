//! What receivers saw, judged by their own clock.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use domain::admission::MAX_CLAIM_TO_SEND;
use domain::compliance::{self, ArrivalVerdict, InForce, Rule, Stalls, Violation};
use domain::limit::Period;
use domain::time::Timestamp;
use engine::ports::{Store, StoreError};
use serde::{Deserialize, Serialize};

/// Whole periods, in per cent of them.
pub const WHOLE_WINDOWS: u32 = 100;

/// How much later than a change of limits what was claimed before it may arrive: what
/// a claim may take to be sent, and 50 ms on the way.
const A_CHANGE_ARRIVES_WITHIN: Duration =
    MAX_CLAIM_TO_SEND.saturating_add(Duration::from_millis(50));

/// How often the two clocks are compared: the quickest answer says it best.
const READINGS: usize = 8;

/// How far the store's clock is ahead of a receiver's, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ahead(i64);

impl Ahead {
    /// Compares the clocks.
    pub async fn measure(store: &dyn Store, receivers: impl Fn() -> i64) -> anyhow::Result<Self> {
        let mut best: Option<(i64, i64)> = None;
        for _ in 0..READINGS {
            let before = receivers();
            let store = match store.fleet().await {
                Ok(fleet) => fleet.now.as_micros(),
                // Like all that waits for a store in a trial, which may be away.
                Err(StoreError::Unavailable(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            let after = receivers();
            let reading = (after - before, store - before.midpoint(after));
            best = Some(best.map_or(reading, |best| best.min(reading)));
        }
        let (_, ahead) = best.context("the store does not say what time it is")?;
        Ok(Self(ahead))
    }

    /// The history by the receiver's clock.
    fn history(self, history: &[InForce]) -> Vec<InForce> {
        let by_receiver = |entry: &InForce| InForce {
            from: Timestamp::from_micros(entry.from.as_micros().saturating_sub(self.0)),
            policy: entry.policy.clone(),
        };
        history.iter().map(by_receiver).collect()
    }
}

/// Judges when requests had been read at one destination, in order, by what was in
/// force by the receiver's clock.
#[must_use]
pub fn judge_received(
    history: &[InForce],
    read_at: &[Timestamp],
    (stalls, window_percent): (&Stalls, u32),
) -> ArrivalVerdict {
    let arrivals: Vec<_> = read_at.iter().map(|at| stalls.arrival(*at)).collect();
    let of = compliance::AtReceiver {
        history,
        later: A_CHANGE_ARRIVES_WITHIN,
        window_percent,
    };
    of.judge(&arrivals)
}

/// The receivers of a trial, as they judge it.
#[derive(Debug, Clone, Copy)]
pub struct Receivers<'a> {
    /// When they stood still.
    pub stalls: &'a Stalls,
    /// How their clock is to be compared with the ledger's.
    pub ahead: Ahead,
    /// Which part of each period is judged, in per cent.
    pub window_percent: u32,
}

impl Receivers<'_> {
    /// Judges one destination by the history of its ledger.
    #[must_use]
    pub fn judge(self, history: &[InForce], read_at: &[Timestamp]) -> ArrivalVerdict {
        let history = self.ahead.history(history);
        judge_received(&history, read_at, (self.stalls, self.window_percent))
    }
}

/// How a destination's limits were kept at its receiver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtReceiver {
    /// Arrivals that came too early by any rule, and that no stall explains.
    pub early_arrivals: u64,
    /// Those that stalls of the receiver explain.
    pub explained: u64,
    /// Where: the first places.
    pub over: Vec<Over>,
}

/// A place where a receiver got more than was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Over {
    /// The window's length, in milliseconds; none where a bucket or a pause rules.
    pub window_ms: Option<u64>,
    /// Arrivals in it.
    pub arrivals: u64,
    /// How many were allowed.
    pub allowed: u64,
    /// When the last of them was read, by the receiver's clock, in milliseconds.
    pub until_ms: i64,
}

/// How many places are named for each destination.
const NAMED: usize = 3;

impl AtReceiver {
    /// In numbers.
    #[must_use]
    pub fn new(verdict: &ArrivalVerdict, read_at: &[Timestamp], window_percent: u32) -> Self {
        let places = verdict.unexplained.violations().take(NAMED);
        Self {
            early_arrivals: verdict.unexplained.early_starts(),
            explained: verdict.explained(),
            over: places
                .map(|place| Over::new(place, read_at, window_percent))
                .collect(),
        }
    }
}

impl Over {
    fn new(place: &Violation, read_at: &[Timestamp], window_percent: u32) -> Self {
        let part = |period: Period| period.duration() * window_percent / WHOLE_WINDOWS;
        let window = match place.rule {
            Rule::Window(period) => Some(part(period)),
            Rule::Bucket | Rule::Pause => None,
        };
        let last = place.attempts.last().map(|last| last.0);
        let last = last.and_then(|last| read_at.get(usize::try_from(last).ok()?));
        Self {
            window_ms: window.map(|window| window.as_millis() as u64),
            arrivals: place.starts,
            allowed: place.bound,
            until_ms: last.map_or(0, |last| last.as_micros() / 1_000),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} arrivals", self.arrivals)?;
        match self.window_ms {
            Some(window_ms) => write!(f, " within {} s", window_ms as f64 / 1_000.0)?,
            None => f.write_str(" in a row")?,
        }
        let until = self.until_ms as f64 / 1_000.0;
        write!(f, ", {} allowed, until {until} s", self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use domain::compliance::Stall;
    use domain::destination::DestinationState;

    use super::*;
    use crate::trial::per_second;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_change_is_where_it_was_by_the_receivers_clock() {
        // The store began 100 s before the receiver; the cut is at 5 s here.
        let history = [(0, 3), (105_000, 1)].map(|(from, limit)| {
            InForce::new(at(from), &per_second(limit), DestinationState::Active)
        });
        let receivers = Receivers {
            stalls: &Stalls::default(),
            ahead: Ahead(100_000_000),
            window_percent: WHOLE_WINDOWS,
        };
        let kept = |read: &[i64]| {
            let read: Vec<_> = read.iter().map(|read| at(*read)).collect();
            receivers.judge(&history, &read).is_kept()
        };
        assert!(kept(&[4_900, 4_900, 4_900]));
        assert!(
            kept(&[5_500, 5_500, 5_500]),
            "claimed before, and on the way"
        );
        assert!(!kept(&[6_600, 6_600]));
        assert!(kept(&[6_600, 7_600]));
    }

    #[test]
    fn it_says_what_was_over_and_what_a_stall_explains() {
        let history = [InForce::new(
            at(0),
            &per_second(2),
            DestinationState::Active,
        )];
        let stall = Stall {
            from: at(0),
            until: at(40),
        };
        let stalls = Stalls::longer_than(Duration::from_millis(2), [stall]);
        let judged = |read: &[i64], percent| {
            let read: Vec<_> = read.iter().map(|read| at(*read)).collect();
            let verdict = judge_received(&history, &read, (&stalls, percent));
            AtReceiver::new(&verdict, &read, percent)
        };
        let explained = judged(&[40, 40, 1_000, 1_000], WHOLE_WINDOWS);
        assert_eq!((explained.early_arrivals, explained.explained), (0, 2));
        assert_eq!(explained.over, []);
        let over = judged(&[40, 40, 990, 2_000, 2_000, 2_900], WHOLE_WINDOWS);
        assert_eq!((over.early_arrivals, over.explained), (2, 0));
        let words: Vec<_> = over.over.iter().map(Over::to_string).collect();
        let first = "3 arrivals within 1 s, 2 allowed, until 0.99 s";
        assert_eq!(
            words,
            [first, "3 arrivals within 1 s, 2 allowed, until 2.9 s"]
        );
        let parts = judged(&[40, 40, 990, 2_000, 2_000, 2_900], 97);
        assert_eq!(
            parts.over.iter().map(Over::to_string).collect::<Vec<_>>(),
            ["3 arrivals within 0.97 s, 2 allowed, until 2.9 s"]
        );
    }
}
