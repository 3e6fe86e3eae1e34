//! Smart delivery: an effective limit at or below the configured one, and an
//! effective `max_in_flight`, found from how the receiver answers.
//!
//! The law is multiplicative decrease and additive increase, with a memory. A
//! 429 says that the rate was too much, and so do 503s that are more than the
//! noise of a receiver that fails now and then: the rate is cut at once, and
//! what was too much is remembered. Every clean second raises it: quickly while
//! it is far from what was too much, by a thousandth of that near to it, so that
//! the receiver is seldom asked for more than it takes, and is soon asked for
//! more once it takes more. Answers that take three times as long as the
//! receiver's best say that requests queue there: what is in flight is cut to a
//! part of what was, and the rate to a little less than what was answered.
//!
//! Only what started under the present limit counts: the rest of the burst that
//! brought a cut says nothing new.
//!
//! Pure. Nothing here raises a limit: what comes out is at most what is
//! configured ([`Policy::slowed`]).

mod noise;
mod pace;
mod watch;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use pace::{Effective, Pace};
pub use watch::{Answer, Sample};
pub use words::{Reason, SmartDelivery};

use noise::Noise;
use watch::Watch;

use crate::policy::{Policy, Rate};
use crate::time::Timestamp;

/// No rate is cut below that: somebody has to ask whether it is over.
pub const SLOWEST: f64 = 0.1;

/// What stands for the configured rate where there is none.
pub const UNLIMITED: f64 = 10_000.0;

/// For so long it watches before it raises, unless it sees fewer than `ENOUGH`
/// answers by then; at most `LONGEST_WATCH`.
pub const WATCH: Duration = Duration::from_secs(1);
const LONGEST_WATCH: Duration = Duration::from_secs(10);
const ENOUGH: u32 = 5;

/// After a cut, what was on its way: longer than the longest lead.
const SETTLE: Duration = Duration::from_millis(250);

/// What is left of the rate after a cut that follows another within [`QUICK`],
/// which says that it was far too much; and after any other.
const CUT_FAR: f64 = 0.7;
const CUT_NEAR: f64 = 0.92;
const QUICK: Duration = Duration::from_secs(3);

/// What is left of the rate that was answered, when answers are slow.
const CUT_ANSWERED: f64 = 0.9;

/// By which part of itself a second raises the rate while it is far from what
/// was too much: below or above these parts of it.
const RAISE_FAR: f64 = 0.10;
const NEAR: f64 = 0.95;
const BEYOND: f64 = 1.05;

/// By which part of what was too much a second raises it otherwise.
const RAISE_NEAR: f64 = 0.001;

/// A clean streak counts for so much at once.
const LONGEST_RAISE: f64 = 5.0;

/// Less than this part of the rate was asked for: the rate was not what held
/// the backlog, so this says nothing about more.
const USED: f64 = 0.8;

/// After so long, what was too much is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// So many times the best latency is slow, if it is longer than [`PROMPT`].
const SLOW: f64 = 3.0;
const PROMPT: Duration = Duration::from_millis(100);

/// What is left of what was in flight, when that is slow.
const CUT_IN_FLIGHT: f64 = 0.6;

/// A cut that leaves more than this part of the latency was of no use: the
/// receiver does not queue, it has become slower.
const NO_USE: f64 = 0.85;

/// By how much the best latency grows in a second, so that it is found anew.
const BEST_GROWS: f64 = 1.01;

/// A change by less than this part is not written into history.
const NOTED: f64 = 0.1;

/// What is configured: the law stays at or below it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Starts per second, in the long run.
    pub per_second: f64,
    /// Queued and in flight.
    pub max_in_flight: u32,
}

impl Ceiling {
    /// Of this policy; `None` if it is paused.
    #[must_use]
    pub fn of(policy: &Policy) -> Option<Self> {
        let per_second = match &policy.rate {
            Rate::Paused => return None,
            Rate::Unlimited => UNLIMITED,
            Rate::Limited(limited) => limited.per_second(),
        };
        Some(Self {
            per_second,
            max_in_flight: policy.max_in_flight,
        })
    }
}

/// What is in force, and what is remembered to judge the next answers by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Smart {
    /// Starts per second, from [`SLOWEST`] to the ceiling's.
    pub per_second: f64,
    /// Queued and in flight, from 1 to the ceiling's.
    pub in_flight: f64,
    /// Why they are what they are.
    pub reason: Reason,
    /// What was configured when they were found.
    ceiling: Ceiling,
    /// What started before is of the burst that the last cut ended, or of the
    /// time before it began.
    fresh_from: Timestamp,
    watch: Watch,
    /// What 503s are judged by.
    #[serde(default)]
    noise: Noise,
    /// The rate at which it was too much, and when.
    too_much: Option<(f64, Timestamp)>,
    /// The best latency, in microseconds.
    best: Option<f64>,
    /// The latency at which what is in flight was cut last.
    was_slow: Option<f64>,
    /// What history says.
    noted: Option<(f64, f64, Reason)>,
}

/// What answers come to.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Verdict {
    /// What to remember now.
    pub smart: Smart,
    /// It belongs into history.
    pub is_news: bool,
}

impl Smart {
    /// At the beginning: what is configured. What started before says nothing:
    /// it may have been another receiver.
    #[must_use]
    pub fn new(ceiling: &Ceiling, begun_at: Timestamp) -> Self {
        Self {
            per_second: ceiling.per_second,
            in_flight: f64::from(ceiling.max_in_flight),
            reason: Reason::Configured,
            ceiling: *ceiling,
            fresh_from: begun_at,
            watch: Watch::from(begun_at),
            noise: Noise::default(),
            too_much: None,
            best: None,
            was_slow: None,
            noted: None,
        }
    }

    /// What admission obeys beside what is configured.
    #[must_use]
    pub fn effective(&self, ceiling: &Ceiling) -> Effective {
        let max_in_flight = self.in_flight as u32;
        Effective {
            per_second: (self.per_second < ceiling.per_second).then_some(self.per_second),
            max_in_flight: (max_in_flight < ceiling.max_in_flight).then_some(max_in_flight),
        }
    }

    /// What these answers, recorded at `now`, come to. Nothing starts before
    /// `held_until`.
    pub fn observe(
        mut self,
        ceiling: &Ceiling,
        samples: &[Sample],
        (now, held_until): (Timestamp, Option<Timestamp>),
    ) -> Verdict {
        self.follow(ceiling, now);
        self.bound(ceiling);
        let fresh = |one: &&Sample| one.claimed_at >= self.fresh_from;
        let fresh: Vec<Sample> = samples.iter().filter(fresh).copied().collect();
        let idle = WATCH + Duration::from_secs_f64(2.0 / self.per_second.max(SLOWEST));
        self.watch.count(&fresh, idle);
        self.noise.count(&fresh, now);
        let is_refused = fresh.iter().any(|one| one.answer == Answer::Refused);
        if is_refused || self.watch.is_overloaded() || self.noise.is_overload() {
            self.refused(ceiling, now);
            self.settle(now, held_until);
        } else if self.has_watched(now) {
            self.judge(ceiling, now);
        }
        self.bound(ceiling);
        let is_news = self.is_news();
        if is_news {
            self.noted = Some((self.per_second, self.in_flight, self.reason));
        }
        let smart = self;
        Verdict { smart, is_news }
    }

    /// What was as configured still is, where something else is configured now;
    /// but not beyond what is known to be too much.
    fn follow(&mut self, ceiling: &Ceiling, now: Timestamp) {
        if self.per_second >= self.ceiling.per_second {
            let known = (self.too_much_at(now)).map_or(f64::INFINITY, |rate| rate * NEAR);
            self.per_second = ceiling.per_second.min(known.max(self.per_second));
        }
        if self.in_flight >= f64::from(self.ceiling.max_in_flight) {
            self.in_flight = f64::from(ceiling.max_in_flight);
        }
        self.ceiling = *ceiling;
    }

    fn bound(&mut self, ceiling: &Ceiling) {
        let most = f64::from(ceiling.max_in_flight);
        self.per_second = bounded(self.per_second, SLOWEST, ceiling.per_second);
        self.in_flight = bounded(self.in_flight, 1.0, most);
        if self.per_second >= ceiling.per_second && self.in_flight >= most {
            self.reason = Reason::Configured;
        } else if self.reason == Reason::Configured {
            self.reason = Reason::Raising;
        }
    }

    fn settle(&mut self, now: Timestamp, held_until: Option<Timestamp>) {
        let settled = now + SETTLE;
        self.fresh_from = held_until.map_or(settled, |until| until.max(settled));
        self.watch = Watch::from(self.fresh_from);
        self.noise = Noise::default();
    }

    /// It was too much.
    fn refused(&mut self, ceiling: &Ceiling, now: Timestamp) {
        let rate = self.per_second;
        let is_quick = now.since(self.fresh_from) < QUICK;
        let is_first = self.too_much.is_none() && self.per_second >= ceiling.per_second;
        let left = if is_quick || is_first {
            CUT_FAR
        } else {
            CUT_NEAR
        };
        self.too_much = Some((rate, now));
        self.per_second = rate * left;
        self.reason = Reason::Refused;
    }

    fn has_watched(&self, now: Timestamp) -> bool {
        let watched = now.since(self.watch.since);
        let enough = self.watch.taken >= ENOUGH || watched >= LONGEST_WATCH;
        watched >= WATCH && self.watch.taken > 0 && enough
    }

    /// A clean streak, unless the answers took too long.
    fn judge(&mut self, ceiling: &Ceiling, now: Timestamp) {
        let seconds = self.watch.seconds(now);
        let latency = self.watch.latency();
        let best = (self.best).map_or(latency, |best| {
            (best * BEST_GROWS.powf(seconds.min(60.0))).min(latency)
        });
        self.best = Some(best);
        let is_slow = latency > PROMPT.as_secs_f64() * 1e6 && latency > best * SLOW;
        if is_slow && self.watch.taken >= ENOUGH {
            if self.was_slow.is_some_and(|was| latency > was * NO_USE) {
                self.best = Some(latency);
                self.was_slow = None;
                self.watch = Watch::from(now);
            } else {
                self.slow(latency, now);
                self.settle(now, None);
            }
            return;
        }
        self.was_slow = None;
        self.raise(ceiling, latency, now);
        self.watch = Watch::from(now);
    }

    /// Requests queue there.
    fn slow(&mut self, latency: f64, now: Timestamp) {
        let answered = self.watch.rate(now);
        let in_flight = answered * latency / 1e6;
        self.in_flight = self.in_flight.min(in_flight) * CUT_IN_FLIGHT;
        let rate = self.per_second * CUT_IN_FLIGHT;
        self.per_second = self.per_second.min((answered * CUT_ANSWERED).max(rate));
        self.too_much = Some((self.per_second / CUT_ANSWERED, now));
        self.was_slow = Some(latency);
        self.reason = Reason::Slow;
    }

    fn raise(&mut self, ceiling: &Ceiling, latency: f64, now: Timestamp) {
        let seconds = self.watch.seconds(now).min(LONGEST_RAISE);
        let asked = self.watch.rate(now);
        if asked >= self.per_second * USED && !self.noise.is_suspicious() {
            self.raise_rate(seconds, now);
            self.reason = Reason::Raising;
        }
        if asked * latency / 1e6 >= self.in_flight / 2.0 {
            self.in_flight += seconds * (self.in_flight / 50.0).max(1.0);
            self.reason = Reason::Raising;
        }
        if asked < self.per_second * USED && self.in_flight < 2.0 {
            // One at a time asks for little, whatever the rate.
            self.in_flight += seconds.min(f64::from(ceiling.max_in_flight) - 1.0);
        }
    }

    fn raise_rate(&mut self, seconds: f64, now: Timestamp) {
        let far = self.per_second * (1.0 + RAISE_FAR).powf(seconds);
        let too_much = self.too_much_at(now);
        if too_much.is_none() {
            self.too_much = None;
        }
        self.per_second = match too_much {
            None => far,
            Some(rate) if self.per_second < rate * NEAR => far.min(rate * NEAR),
            Some(rate) => self.per_second + rate * RAISE_NEAR * seconds,
        };
    }

    /// The rate that was too much, unless it has been shown not to be, or is
    /// long ago.
    fn too_much_at(&self, now: Timestamp) -> Option<f64> {
        let (rate, at) = self.too_much?;
        let holds = now.since(at) < FORGET_AFTER && self.per_second < rate * BEYOND;
        holds.then_some(rate)
    }

    fn is_news(&self) -> bool {
        let Some((per_second, in_flight, reason)) = self.noted else {
            return self.reason != Reason::Configured;
        };
        let moved = |from: f64, to: f64| (to - from).abs() >= from * NOTED;
        let cut = matches!(self.reason, Reason::Refused | Reason::Slow);
        reason != self.reason
            || cut && (self.per_second, self.in_flight) != (per_second, in_flight)
            || moved(per_second, self.per_second)
            || moved(in_flight, self.in_flight)
    }
}

fn bounded(value: f64, least: f64, most: f64) -> f64 {
    value.min(most).max(least.min(most))
}

#[cfg(test)]
mod tests;
