//! Whether a destination fails: what came of its latest requests.

use std::time::Duration;

use super::Tally;
use crate::attempt::AttemptState;
use crate::time::Timestamp;

/// How far back the latest requests go.
pub const LATELY: Duration = Duration::from_secs(300);

/// A destination fails if so many of a hundred answers were failures, unless set.
pub const FAILING_PERCENT: u32 = 50;

/// What came of the requests of the last minutes. A 429 is no failure: its receiver
/// works. What was never sent tells nothing of the receiver, nor does what nobody knows
/// the end of: neither is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lately {
    /// Those that succeeded or failed.
    pub answered: u32,
    /// Of these, the ones that failed.
    pub failed: u32,
    /// When the last of them started, and the status that it got, if any.
    pub last_failure: Option<(Timestamp, Option<u16>)>,
}

impl Lately {
    /// Of outcomes, by when they started, as what they ended, and with which status.
    #[must_use]
    pub fn of(outcomes: impl Iterator<Item = (Timestamp, AttemptState, Option<u16>)>) -> Self {
        let mut lately = Self::default();
        for (at, state, status) in outcomes {
            if !matches!(state, AttemptState::Succeeded | AttemptState::Failed) {
                continue;
            }
            lately.answered = lately.answered.saturating_add(1);
            if Tally::is_failure(state, status) {
                lately.failed = lately.failed.saturating_add(1);
                lately.last_failure = lately.last_failure.max(Some((at, status)));
            }
        }
        lately
    }

    /// Whether it fails: at least so many percent did; 0 for never. Where nothing was sent lately,
    /// `in_a_row` says what came of the last ones.
    ///
    /// ```
    /// use domain::health::{FAILING_PERCENT, Lately};
    ///
    /// let failing = |failed, answered| {
    ///     Lately { answered, failed, last_failure: None }.is_failing(0, FAILING_PERCENT)
    /// };
    /// assert!(failing(13, 13) && failing(1, 2));
    /// assert!(!failing(3, 10));
    /// assert!(Lately::default().is_failing(4, FAILING_PERCENT), "the last four failed, an hour ago");
    /// ```
    #[must_use]
    pub fn is_failing(&self, in_a_row: u32, percent: u32) -> bool {
        match self.answered {
            0 => percent > 0 && in_a_row > 0,
            answered => {
                percent > 0
                    && u64::from(self.failed) * 100 >= u64::from(answered) * u64::from(percent)
            }
        }
    }

    /// Which part of them failed, in percent; `None` of none.
    #[must_use]
    pub fn failed_percent(&self) -> Option<f64> {
        (self.answered > 0).then(|| f64::from(self.failed) * 100.0 / f64::from(self.answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that was late for its own start has sent nothing.
    #[test]
    fn what_was_not_sent_is_no_answer() {
        let at = Timestamp::from_millis;
        let outcomes = [
            (at(1), AttemptState::Failed, Some(500)),
            (at(2), AttemptState::NotSent, None),
            (at(3), AttemptState::Unknown, None),
            (at(4), AttemptState::Succeeded, Some(204)),
        ];
        let lately = Lately::of(outcomes.into_iter());
        assert_eq!((lately.failed, lately.answered), (1, 2));
        assert_eq!(lately.last_failure, Some((at(1), Some(500))));
    }
}
