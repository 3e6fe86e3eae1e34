//! What came of a destination's requests, counted.

use std::ops::AddAssign;
use std::time::Duration;

use crate::attempt::AttemptState;
use crate::time::{Timestamp, micros};

const TOO_MANY_REQUESTS: u16 = 429;

/// How long a slot is in which requests are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// Five minutes, for an hour and a day.
    Minutes,
    /// An hour, for a week.
    Hour,
    /// A day of UTC, for thirty of them.
    Day,
}

impl Slot {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Minutes, Self::Hour, Self::Day];

    /// How long it is.
    #[must_use]
    pub const fn length(self) -> Duration {
        match self {
            Self::Minutes => Duration::from_secs(300),
            Self::Hour => Duration::from_secs(3_600),
            Self::Day => Duration::from_secs(86_400),
        }
    }

    /// For how long its counts are kept: what is asked for, and a slot to spare.
    #[must_use]
    pub const fn kept(self) -> Duration {
        match self {
            Self::Minutes => Duration::from_secs(86_400 + 2 * 300),
            Self::Hour => Duration::from_secs(7 * 86_400 + 2 * 3_600),
            Self::Day => Duration::from_secs(32 * 86_400),
        }
    }

    /// The word, as in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// The end, exclusive, of the one that holds this.
    #[must_use]
    pub fn end_of(self, at: Timestamp) -> Timestamp {
        let length = micros(self.length());
        Timestamp::from_micros((at.as_micros().div_euclid(length) + 1) * length)
    }
}

/// The last day, from as few slots as it can be: about 36, not 288. Five minutes at its
/// edge, whole hours from there on: each request is in just one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastDay {
    /// Slots of [`Slot::Minutes`] that end after this are of the day.
    pub since: Timestamp,
    /// Of these, the ones that end by then are read; and slots of [`Slot::Hour`] that
    /// end later.
    pub hours_from: Timestamp,
}

impl LastDay {
    /// The day that ends now.
    #[must_use]
    pub fn before(now: Timestamp) -> Self {
        let since = now - Duration::from_secs(86_400);
        let begins = Slot::Minutes.end_of(since) - Slot::Minutes.length();
        Self {
            since,
            hours_from: Slot::Hour.end_of(begins - Duration::from_micros(1)),
        }
    }
}

/// How many requests ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// With a 2xx.
    pub succeeded: u64,
    /// With anything else but a 429, or no answer.
    pub failed: u64,
    /// With a 429.
    pub refused: u64,
    /// Nobody knows: their worker ended, or never sent them.
    pub unknown: u64,
}

impl Tally {
    /// Whether a request that ended so has failed.
    #[must_use]
    pub fn is_failure(state: AttemptState, status: Option<u16>) -> bool {
        state == AttemptState::Failed && status != Some(TOO_MANY_REQUESTS)
    }

    /// Whether a request that ended so was answered. Of what was not, nobody knows how
    /// long it would have taken; and a connection that was refused took no time at all.
    #[must_use]
    pub const fn is_answered(state: AttemptState, status: Option<u16>) -> bool {
        matches!(state, AttemptState::Succeeded | AttemptState::Failed) && status.is_some()
    }

    /// Counts a request that ended so.
    pub fn count(&mut self, state: AttemptState, status: Option<u16>) {
        match (state, status) {
            (AttemptState::Succeeded, _) => self.succeeded += 1,
            _ if Self::is_failure(state, status) => self.failed += 1,
            (AttemptState::Failed, _) => self.refused += 1,
            _ => self.unknown += 1,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.succeeded + self.failed + self.refused + self.unknown
    }

    /// Which part of those that succeeded or failed did fail, in percent; `None` of
    /// none. A 429 is neither: its receiver works.
    #[must_use]
    pub fn failed_percent(&self) -> Option<f64> {
        let known = self.succeeded + self.failed;
        (known > 0).then(|| self.failed as f64 * 100.0 / known as f64)
    }

    /// And which part succeeded.
    #[must_use]
    pub fn succeeded_percent(&self) -> Option<f64> {
        self.failed_percent().map(|failed| 100.0 - failed)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.refused += other.refused;
        self.unknown += other.unknown;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_429_is_no_failure_and_what_nobody_knows_is_neither() {
        let mut tally = Tally::default();
        tally.count(AttemptState::Succeeded, Some(204));
        tally.count(AttemptState::Failed, Some(500));
        tally.count(AttemptState::Failed, None);
        tally.count(AttemptState::Failed, Some(429));
        tally.count(AttemptState::Unknown, None);
        assert_eq!((tally.succeeded, tally.failed), (1, 2));
        assert_eq!((tally.refused, tally.unknown, tally.requests()), (1, 1, 5));
        let percent = tally.failed_percent().unwrap();
        assert!((percent - 200.0 / 3.0).abs() < 1e-9);
        assert_eq!(tally.succeeded_percent(), Some(100.0 - percent));
        assert_eq!(Tally::default().failed_percent(), None);
    }

    proptest! {
        /// All that slots of five minutes hold, each once, whatever the time is.
        #[test]
        fn a_day_is_read_whole_and_once(
            now in (0_i64..3_600).prop_map(|second| 1_900_000_000_000_000 + second * 1_000_000),
            micros in -1_i64..=1,
        ) {
            let now = Timestamp::from_micros(now + micros);
            let day = LastDay::before(now);
            let mut end = Slot::Minutes.end_of(now - Duration::from_secs(2 * 86_400));
            let mut read = 0;
            let mut hours = std::collections::BTreeSet::new();
            while end <= Slot::Minutes.end_of(now) {
                let hour = Slot::Hour.end_of(end - Duration::from_micros(1));
                let by_minutes = end > day.since && end <= day.hours_from;
                let by_hour = hour > day.hours_from;
                let times = u32::from(by_minutes) + u32::from(by_hour);
                prop_assert_eq!(times, u32::from(end > day.since), "{:?} of {:?}", end, now);
                read += u32::from(by_minutes);
                hours.extend(by_hour.then_some(hour));
                end = end + Slot::Minutes.length();
            }
            prop_assert!(read as usize + hours.len() <= 37, "{read} and {}", hours.len());
        }
    }

    #[test]
    fn a_slot_ends_after_all_that_is_in_it() {
        let at = Timestamp::from_millis;
        assert_eq!(Slot::Minutes.end_of(at(0)), at(300_000));
        assert_eq!(Slot::Minutes.end_of(at(299_999)), at(300_000));
        assert_eq!(Slot::Hour.end_of(at(300_000)), at(3_600_000));
        assert_eq!(Slot::Hour.end_of(at(3_600_000)), at(7_200_000));
        assert_eq!(Slot::Day.end_of(at(86_399_999)), at(86_400_000));
    }
}
