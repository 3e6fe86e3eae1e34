//! A destination over a day and a month, in words.

use super::words::{self, NONE};
use crate::service::statistics::{Counted, Statistics};

/// A line of the table.
pub(super) struct Line {
    pub(super) span: &'static str,
    pub(super) requests: String,
    pub(super) succeeded: String,
    pub(super) median: String,
    pub(super) slow: String,
}

pub(super) fn lines(found: &Statistics) -> [Line; 2] {
    [
        line("24 h", &found.day),
        line("30 d, by days of UTC", &found.month),
    ]
}

fn line(span: &'static str, Counted { tally, took }: &Counted) -> Line {
    let latency = |part| took.quantile(part).map_or(NONE.to_owned(), words::latency);
    Line {
        span,
        requests: words::large(tally.requests()),
        succeeded: (tally.succeeded_percent()).map_or(NONE.to_owned(), words::success),
        median: latency(0.5),
        slow: latency(0.99),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::health::{Tally, Took};
    use domain::time::Timestamp;

    use super::*;

    #[test]
    fn what_was_sent_is_told_and_nothing_is_no_rate() {
        let tally = Tally {
            succeeded: 12_344,
            failed: 1,
            refused: 55,
            unknown: 0,
        };
        let mut took = Took::default();
        took.add(Duration::from_millis(40));
        let found = Statistics {
            now: Timestamp::from_micros(0),
            day: Counted::default(),
            month: Counted { tally, took },
        };
        let [day, month] = lines(&found);
        assert_eq!((&*day.requests, &*day.succeeded), ("0", NONE));
        assert_eq!((&*day.median, &*day.slow), (NONE, NONE));
        assert_eq!((&*month.requests, &*month.succeeded), ("12,400", "99.99 %"));
        assert!(month.median.ends_with(" ms"), "{}", month.median);
    }
}
