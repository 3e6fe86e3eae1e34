//! Starts that are dated a little ahead, to their slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use domain::time::Timestamp;

/// How far ahead, and the latest of them; see
/// [`engine::ports::Store::head_start`]. A file has none: its worker is in the
/// same process, and claims when the slot is there.
#[derive(Debug, Clone, Default)]
pub(super) struct HeadStart {
    most: Duration,
    latest: Arc<AtomicI64>,
}

impl HeadStart {
    pub(super) fn of(most: Duration) -> Self {
        Self {
            most,
            latest: Arc::default(),
        }
    }

    pub(super) fn most(&self) -> Duration {
        self.most
    }

    /// The same instant: something starts then.
    pub(super) fn noting(&self, start: Timestamp) -> Timestamp {
        self.latest.fetch_max(start.as_micros(), Ordering::Relaxed);
        start
    }

    /// `now`, or the latest start: a change that revokes is dated after every
    /// start before it. More than a head start is a clock that was set back.
    pub(super) fn passed(&self, now: Timestamp) -> Timestamp {
        let latest = Timestamp::from_micros(self.latest.load(Ordering::Relaxed));
        now.max(latest.min(now + self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn changes_come_after_starts_that_are_dated_ahead() {
        let head_start = HeadStart::of(Duration::from_micros(10));
        assert_eq!(head_start.noting(at(110)), at(110));
        assert_eq!(head_start.passed(at(100)), at(110));
        assert_eq!(head_start.passed(at(111)), at(111));
        // The clock was set back.
        assert_eq!(head_start.passed(at(50)), at(60));
    }

    #[test]
    fn a_file_dates_nothing_ahead() {
        let none = HeadStart::default();
        assert_eq!(none.passed(none.noting(at(100))), at(100));
        assert_eq!(none.passed(at(90)), at(90));
    }
}
