//! Smart delivery: an effective limit at or below the configured one, and an
//! effective `max_in_flight`, found from how the receiver answers.
//!
//! The law is additive increase, multiplicative decrease, with a memory. A 429
//! or a 503 says that the rate was too much: it is cut to what the receiver
//! took, less a little, and where that happened is remembered. A clean second
//! raises it: quickly while it is far from what was last refused, slowly near
//! to it, so that the receiver is seldom asked for more than it can take, and
//! is soon asked for more once it can. An answer that takes much longer than
//! the receiver's best cuts what is in flight in the same way.
//!
//! Pure: judged once a [`SECOND`], from the counts of that second. Nothing here
//! raises a limit: what comes out is never above what is configured.

use std::time::Duration;

use crate::time::Timestamp;

/// How long the law watches before it judges.
pub const SECOND: Duration = Duration::from_secs(1);

/// No rate is cut below that: somebody has to ask whether it is over.
pub const SLOWEST: f64 = 0.1;

/// What is left of what the receiver took, when it refused more.
const CUT: f64 = 0.97;

/// Who takes more than this part refuses only what was just too much.
const MOST: f64 = 0.9;

/// What is left of the rate when nothing at all was taken.
const CUT_BLINDLY: f64 = 0.5;

/// Up to this part of what was last refused, a clean second raises quickly.
const NEAR: f64 = 0.95;

/// By which part a clean second raises, far from what was refused, and near.
const RAISE_FAR: f64 = 0.10;
const RAISE_NEAR: f64 = 0.001;

/// After so long without a refusal, what was refused is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(120);

/// So many times the best latency is slow.
const SLOW: f64 = 3.0;

/// Latencies below that are never slow: there is nothing to win.
const QUICK: Duration = Duration::from_millis(50);

/// What is configured: the law stays at or below it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Starts per second.
    pub per_second: f64,
    /// Queued and in flight.
    pub max_in_flight: u32,
}

/// What is in force, and what is remembered to judge the next second by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smart {
    /// Starts per second, from [`SLOWEST`] to the ceiling's.
    pub per_second: f64,
    /// Queued and in flight, from 1 to the ceiling's.
    pub in_flight: f64,
    /// Why it is what it is.
    pub reason: Reason,
    /// The rate at which the receiver last refused, and when.
    refused: Option<(f64, Timestamp)>,
    /// The best latency so far, growing slowly, so that a receiver that has
    /// become slower for good is not cut for ever.
    best: Option<Duration>,
}

/// Why the effective limit is what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Nothing has been seen that would lower it.
    Configured,
    /// The receiver answered 429 or 503.
    Refused,
    /// Its answers took too long.
    Slow,
    /// A clean streak raises it.
    Raising,
}

impl Reason {
    /// The word, as in SQL and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Refused => "refused",
            Self::Slow => "slow",
            Self::Raising => "raising",
        }
    }
}

/// One second of answers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// Requests that the receiver took.
    pub taken: u32,
    /// 429 and 503.
    pub refused: u32,
    /// The median latency of those that were taken.
    pub latency: Option<Duration>,
    /// The limit was what held the backlog: else a clean second says nothing
    /// about more.
    pub was_limited: bool,
}

impl Smart {
    /// At the beginning: what is configured.
    #[must_use]
    pub fn new(ceiling: &Ceiling) -> Self {
        Self {
            per_second: ceiling.per_second,
            in_flight: f64::from(ceiling.max_in_flight),
            reason: Reason::Configured,
            refused: None,
            best: None,
        }
    }

    /// After one more second, which ended at `now`.
    #[must_use]
    pub fn judged(mut self, ceiling: &Ceiling, seen: &Seen, now: Timestamp) -> Self {
        if let Some((_, at)) = self.refused
            && now.since(at) >= FORGET_AFTER
        {
            self.refused = None;
        }
        let slow = self.is_slow(seen);
        if seen.refused > 0 {
            self.cut(seen, now);
        } else if slow {
            self.in_flight *= CUT_BLINDLY;
            self.reason = Reason::Slow;
        } else if seen.taken > 0 {
            self.raise(seen, ceiling);
        }
        self.per_second = bounded(self.per_second, SLOWEST, ceiling.per_second);
        self.in_flight = bounded(self.in_flight, 1.0, f64::from(ceiling.max_in_flight));
        self
    }

    fn cut(&mut self, seen: &Seen, now: Timestamp) {
        let taken = f64::from(seen.taken);
        let asked = taken + f64::from(seen.refused);
        let before = self.per_second;
        let share = taken / asked;
        self.per_second = if seen.taken == 0 {
            before * CUT_BLINDLY
        } else if share > MOST {
            before * CUT
        } else {
            before.min(asked) * share * CUT
        };
        let just_too_much = (self.per_second / CUT).min(before);
        self.refused = Some((just_too_much, now));
        self.reason = Reason::Refused;
    }

    fn raise(&mut self, seen: &Seen, ceiling: &Ceiling) {
        if !seen.was_limited {
            return;
        }
        let before = (self.per_second, self.in_flight);
        let far = (self.refused).is_none_or(|(rate, _)| self.per_second < rate * NEAR);
        let part = if far { RAISE_FAR } else { RAISE_NEAR };
        self.per_second += (self.per_second * part).max(ceiling.per_second * 1e-6);
        self.in_flight += 1.0;
        if before.0 < ceiling.per_second || before.1 < f64::from(ceiling.max_in_flight) {
            self.reason = Reason::Raising;
        } else {
            self.reason = Reason::Configured;
        }
    }

    fn is_slow(&mut self, seen: &Seen) -> bool {
        let Some(latency) = seen.latency else {
            return false;
        };
        let best = self
            .best
            .map_or(latency, |best| best.mul_f64(1.01).min(latency));
        self.best = Some(best);
        latency > QUICK && latency > best.mul_f64(SLOW)
    }
}

fn bounded(value: f64, least: f64, most: f64) -> f64 {
    value.min(most).max(least.min(most))
}

#[cfg(test)]
mod tests;
