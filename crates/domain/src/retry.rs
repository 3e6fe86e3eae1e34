//! What is tried again, when, and how often.
//!
//! A failure that may pass is tried again: no answer (a timeout, no
//! connection, no TLS), and every status that is neither a success nor
//! *final*. By default 400, 410, 413 and 422 are final: the receiver has
//! understood the event and will not take it. Redirects and other 4xx are
//! tried again, for a receiver in the middle of a deploy answers 404.
//!
//! Delays grow exponentially, with full jitter: the delay is drawn between
//! nothing and a bound that grows with every try, so that what failed together
//! does not come back together. A list of delays is taken as it is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::MAX_REQUEST_TIMEOUT;
use crate::policy::InvalidSettings;

/// Tries of one event at one destination, the first included.
pub const DEFAULT_MAX_TRIES: u32 = 8;

/// The most tries that can be set.
pub const MAX_TRIES: u32 = 100;

/// The upper bound of the first retry's delay; each further one is
/// [`RETRY_FACTOR`] times longer, so that eight tries span 27 hours at most and half of that on average.
pub const RETRY_BASE: Duration = Duration::from_secs(5);

/// How much longer each retry's bound is than the one before.
pub const RETRY_FACTOR: f64 = 5.0;

/// No retry waits longer than this.
pub const RETRY_CAP: Duration = Duration::from_secs(24 * 3_600);

/// The longest delay that can be set, and the longest age: 30 days.
pub const MAX_DELAY: Duration = Duration::from_secs(30 * 86_400);

/// The shortest time-out that can be set, in milliseconds.
pub const MIN_TIMEOUT_MS: u64 = 100;

/// The statuses that are not tried again, unless a list is set.
pub const FINAL_STATUSES: [u16; 4] = [400, 410, 413, 422];

/// The retry policy of one destination, as its owner has set it: what is
/// `None` is the default. The store keeps it as JSON of this form.
///
/// ```
/// use domain::retry::{AfterFailure, RetrySettings, Why};
/// use std::time::Duration;
/// let settings = RetrySettings { delays_ms: Some(vec![1_000, 60_000]), ..Default::default() };
/// let settings = settings.completed();
/// assert_eq!(settings.max_tries(), 3);
/// let after = |tries, status| settings.after_failure(tries, status, 0.5);
/// assert_eq!(after(2, Some(503)), AfterFailure::RetryAfter(Duration::from_secs(60)));
/// assert_eq!(after(3, None), AfterFailure::DeadLetter(Why::UsedUp));
/// assert_eq!(after(1, Some(422)), AfterFailure::DeadLetter(Why::Final));
/// ```
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetrySettings {
    /// Tries, the first included; default [`DEFAULT_MAX_TRIES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tries: Option<u32>,
    /// The delays before the retries, in milliseconds; the last one repeats.
    /// Excludes the three below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delays_ms: Option<Vec<u64>>,
    /// The bound of the first retry's delay, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_ms: Option<u64>,
    /// How much longer each bound is than the one before; 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// No bound is longer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// The statuses that are not tried again; all others that are no success
    /// are. Default [`FINAL_STATUSES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_statuses: Option<Vec<u16>>,
    /// How long a request may take to the end of its answer, in milliseconds; no longer
    /// than whoever sends it allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

// A factor that is not a number is refused by `validate`, and by JSON.
impl Eq for RetrySettings {}

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// A new attempt, due this long after the failed one finished.
    RetryAfter(Duration),
    /// None: the event is a dead letter.
    DeadLetter(Why),
}

/// Why a failed try is the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The tries are used up.
    UsedUp,
    /// The status is final.
    Final,
}

impl RetrySettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// The same with as many tries as the list of delays stands for, if there
    /// is one and the tries are not set.
    #[must_use]
    pub fn completed(mut self) -> Self {
        if let (None, Some(delays)) = (self.max_tries, &self.delays_ms) {
            self.max_tries = u32::try_from(delays.len() + 1).ok();
        }
        self
    }

    /// Refuses nonsense by the name of its field.
    pub fn validate(&self) -> Result<(), InvalidSettings> {
        let refuse = |field, problem: &str| {
            Err(InvalidSettings {
                field,
                problem: problem.to_owned(),
            })
        };
        let longest = u64::try_from(MAX_DELAY.as_millis()).unwrap_or(u64::MAX);
        if !(1..=MAX_TRIES).contains(&self.max_tries()) {
            return refuse("max_tries", "must be between 1 and 100");
        }
        if let Some(delays) = &self.delays_ms {
            if delays.is_empty() || delays.len() >= MAX_TRIES as usize {
                return refuse("delays_ms", "must have 1 to 99 delays");
            }
            if delays.iter().any(|delay| *delay > longest) {
                return refuse("delays_ms", "none may be longer than 30 days");
            }
            if self.base_ms.is_some() || self.factor.is_some() || self.cap_ms.is_some() {
                return refuse("delays_ms", "excludes base_ms, factor and cap_ms");
            }
        }
        for (field, value) in [("base_ms", self.base_ms), ("cap_ms", self.cap_ms)] {
            if value.is_some_and(|value| value == 0 || value > longest) {
                return refuse(field, "must be between 1 and 30 days of milliseconds");
            }
        }
        if (self.factor).is_some_and(|factor| !(1.0..=100.0).contains(&factor)) {
            return refuse("factor", "must be between 1 and 100");
        }
        let longest = u64::try_from(MAX_REQUEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        if (self.timeout_ms).is_some_and(|timeout| !(MIN_TIMEOUT_MS..=longest).contains(&timeout)) {
            return refuse("timeout_ms", "must be between 100 and 30000 milliseconds");
        }
        let statuses = self.final_statuses.iter().flatten();
        if statuses.clone().any(|status| !(300..=599).contains(status)) {
            return refuse("final_statuses", "each must be between 300 and 599");
        }
        if statuses.count() > 300 {
            return refuse("final_statuses", "must be at most 300");
        }
        Ok(())
    }

    /// Tries of one event, the first included.
    #[must_use]
    pub fn max_tries(&self) -> u32 {
        self.max_tries.unwrap_or(DEFAULT_MAX_TRIES)
    }

    /// How long a request may take, where `usual` is what whoever sends it allows.
    #[must_use]
    pub fn timeout(&self, usual: Duration) -> Duration {
        self.timeout_ms
            .map_or(usual, |set| Duration::from_millis(set).min(usual))
    }

    /// What follows when `tries` tries (this one included, and counted from
    /// the last replay) have failed, this one with this status, or without an
    /// answer. `jitter` is between 0 and 1, drawn by the caller.
    #[must_use]
    pub fn after_failure(&self, tries: u32, status: Option<u16>, jitter: f64) -> AfterFailure {
        if status.is_some_and(|status| self.is_final(status)) {
            return AfterFailure::DeadLetter(Why::Final);
        }
        if tries >= self.max_tries() {
            return AfterFailure::DeadLetter(Why::UsedUp);
        }
        AfterFailure::RetryAfter(self.delay(tries, jitter.clamp(0.0, 1.0)))
    }

    /// The delay of the last retry, for what is tried once more after all.
    #[must_use]
    pub fn last_delay(&self, jitter: f64) -> Duration {
        let last = self.max_tries().saturating_sub(1).max(1);
        self.delay(last, jitter.clamp(0.0, 1.0))
    }

    fn is_final(&self, status: u16) -> bool {
        let listed = self.final_statuses.as_deref();
        listed.unwrap_or(&FINAL_STATUSES).contains(&status)
    }

    /// How long after the end of try `tries` the next one is due.
    fn delay(&self, tries: u32, jitter: f64) -> Duration {
        let earlier = tries.saturating_sub(1);
        if let Some(delays) = &self.delays_ms {
            let listed = delays.get(earlier as usize).or(delays.last());
            return listed.map_or(RETRY_BASE, |delay| Duration::from_millis(*delay));
        }
        let base = self.base_ms.map_or(RETRY_BASE, Duration::from_millis);
        let cap = self.cap_ms.map_or(RETRY_CAP, Duration::from_millis);
        let factor = self.factor.unwrap_or(RETRY_FACTOR).max(1.0);
        let grown = base.as_secs_f64() * factor.powi(i32::try_from(earlier).unwrap_or(i32::MAX));
        // Infinity, and whatever is no duration, is cut to the cap.
        let bound = Duration::try_from_secs_f64(grown).map_or(cap, |grown| grown.min(cap));
        bound.mul_f64(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> impl Strategy<Value = RetrySettings> {
        let list = prop::collection::vec(0..=2_592_000_000_u64, 1..20);
        (
            prop::option::of(1..=MAX_TRIES),
            prop::option::of(list),
            prop::option::of(1..=2_592_000_000_u64),
            prop::option::of(1.0..=100.0_f64),
            prop::option::of(1..=2_592_000_000_u64),
            prop::option::of(prop::collection::vec(300..=599_u16, 0..10)),
            prop::option::of(MIN_TIMEOUT_MS..=30_000),
        )
            .prop_map(
                |(max_tries, delays_ms, base_ms, factor, cap_ms, final_statuses, timeout_ms)| {
                    let listed = delays_ms.is_some();
                    RetrySettings {
                        max_tries,
                        delays_ms,
                        base_ms: base_ms.filter(|_| !listed),
                        factor: factor.filter(|_| !listed),
                        cap_ms: cap_ms.filter(|_| !listed),
                        final_statuses,
                        timeout_ms,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn it_ends_and_no_delay_is_longer_than_allowed(
            settings in settings(),
            tries in 1..200_u32,
            status in prop::option::of(300..=599_u16),
            jitter in 0.0..=1.0_f64,
        ) {
            prop_assert_eq!(settings.validate(), Ok(()));
            match settings.after_failure(tries, status, jitter) {
                AfterFailure::RetryAfter(delay) => {
                    prop_assert!(tries < settings.max_tries());
                    let cap = match (&settings.delays_ms, settings.cap_ms) {
                        (Some(_), _) => MAX_DELAY,
                        (None, cap) => cap.map_or(RETRY_CAP, Duration::from_millis),
                    };
                    prop_assert!(delay <= cap);
                }
                AfterFailure::DeadLetter(Why::UsedUp) => {
                    prop_assert!(tries >= settings.max_tries());
                }
                AfterFailure::DeadLetter(Why::Final) => prop_assert!(status.is_some()),
            }
        }

        /// Full jitter: the bound grows, and the draw is a part of it.
        #[test]
        fn delays_are_a_drawn_part_of_a_growing_bound(
            settings in settings().prop_filter("exponential", |one| one.delays_ms.is_none()),
            tries in 1..99_u32,
            jitter in 0.0..=1.0_f64,
        ) {
            let bound = |tries| settings.delay(tries, 1.0);
            prop_assert!(bound(tries) <= bound(tries + 1));
            let drawn = settings.delay(tries, jitter).as_secs_f64();
            prop_assert!((drawn - bound(tries).as_secs_f64() * jitter).abs() < 1e-6);
        }
    }

    #[test]
    fn by_default_what_can_succeed_later_is_tried_again_eight_times_within_27_hours() {
        let settings = RetrySettings::default();
        for status in [
            None,
            Some(302),
            Some(404),
            Some(408),
            Some(425),
            Some(429),
            Some(503),
        ] {
            let after = settings.after_failure(1, status, 1.0);
            assert_eq!(after, AfterFailure::RetryAfter(RETRY_BASE), "{status:?}");
        }
        for status in FINAL_STATUSES {
            let after = settings.after_failure(1, Some(status), 1.0);
            assert_eq!(after, AfterFailure::DeadLetter(Why::Final), "{status}");
        }
        let mut spent = Duration::ZERO;
        let mut tries = 1;
        while let AfterFailure::RetryAfter(delay) = settings.after_failure(tries, None, 1.0) {
            spent += delay;
            tries += 1;
        }
        assert_eq!(tries, DEFAULT_MAX_TRIES);
        assert_eq!(spent, Duration::from_secs(97_655));
    }

    #[test]
    fn nonsense_is_refused_by_its_field() {
        let refused = |settings: RetrySettings| settings.validate().map_err(|error| error.field);
        let default = RetrySettings::default;
        let with = |field: &str, value: &str| -> RetrySettings {
            let none = default();
            match (field, value) {
                ("max_tries", n) => RetrySettings {
                    max_tries: n.parse().ok(),
                    ..none
                },
                ("factor", n) => RetrySettings {
                    factor: n.parse().ok(),
                    ..none
                },
                ("base_ms", n) => RetrySettings {
                    base_ms: n.parse().ok(),
                    ..none
                },
                (_, n) => RetrySettings {
                    cap_ms: n.parse().ok(),
                    ..none
                },
            }
        };
        for (field, value) in [
            ("max_tries", "0"),
            ("max_tries", "101"),
            ("factor", "0.9"),
            ("factor", "NaN"),
            ("factor", "inf"),
            ("base_ms", "0"),
            ("cap_ms", "2592000001"),
        ] {
            assert_eq!(refused(with(field, value)), Err(field), "{field} {value}");
        }
        for delays in [vec![], vec![1; 100], vec![2_592_000_001]] {
            let listed = RetrySettings {
                delays_ms: Some(delays),
                ..default()
            };
            assert_eq!(refused(listed), Err("delays_ms"));
        }
        let both = RetrySettings {
            delays_ms: Some(vec![1]),
            base_ms: Some(1),
            ..default()
        };
        assert_eq!(refused(both), Err("delays_ms"));
        let success = RetrySettings {
            final_statuses: Some(vec![200]),
            ..default()
        };
        assert_eq!(refused(success), Err("final_statuses"));
    }
}
