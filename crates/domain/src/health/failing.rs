//! That a destination fails is told to its owner, once when it begins and once when
//! it is over.

use std::time::Duration;

use super::Lately;
use crate::operations::{OperationalType, rfc3339};
use crate::time::Timestamp;
use crate::watch::News;

/// Each look has found it failing for so long before its owner is told, unless set: a receiver
/// that restarts, or one bad answer, wakes nobody.
pub const TOLD_AFTER: Duration = Duration::from_secs(60);

/// So many answers say something, though the last one was good.
const FEW: u32 = 10;

/// A destination that fails, from look to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing {
    /// When a look found it first.
    pub since: Timestamp,
    /// Its owner knows.
    pub told: bool,
}

impl Failing {
    /// What a look at `now` makes of what is remembered: what to remember, and what is
    /// to be told, if it has failed for `told_after`. `in_a_row` are the failures since
    /// the last success.
    ///
    /// ```
    /// use domain::health::{Failing, Lately, TOLD_AFTER};
    /// use domain::time::Timestamp;
    ///
    /// let failing = Lately { answered: 3, failed: 3, last_failure: None };
    /// let at = Timestamp::from_millis;
    /// let (first, nothing) = Failing::look(None, &failing, (3, 50), (TOLD_AFTER, at(0)));
    /// assert!(first.is_some() && nothing.is_none());
    /// let (_, news) = Failing::look(first, &failing, (9, 50), (TOLD_AFTER, at(60_000)));
    /// assert_eq!(news.unwrap().event_type.as_str(), "destination_failing");
    /// ```
    #[must_use]
    pub fn look(
        before: Option<Self>,
        lately: &Lately,
        (in_a_row, percent): (u32, u32),
        (told_after, now): (Duration, Timestamp),
    ) -> (Option<Self>, Option<News>) {
        // What is told fails until it fails half as much: one that hovers about its
        // threshold is no news again and again.
        let known = before.is_some_and(|failing| failing.told);
        let threshold = if known { percent.div_ceil(2) } else { percent };
        if !lately.is_failing(in_a_row, threshold) {
            let told = before.filter(|failing| failing.told && percent > 0);
            let news = told.map(|failing| News {
                event_type: OperationalType::DestinationRecovered,
                details: format!(r#"{{"since":"{}"}}"#, rfc3339(failing.since)),
            });
            return (None, news);
        }
        let since = before.map_or(now, |failing| failing.since);
        // One bad answer, and a good one after it, wake nobody.
        let enough = in_a_row > 0 || lately.answered >= FEW;
        let told = known || (enough && now.since(since) >= told_after);
        let news = (told && !known).then(|| News {
            event_type: OperationalType::DestinationFailing,
            details: details(lately, in_a_row, since),
        });
        (Some(Self { since, told }), news)
    }
}

fn details(lately: &Lately, in_a_row: u32, since: Timestamp) -> String {
    let Lately {
        answered, failed, ..
    } = lately;
    let (at, status) = lately.last_failure.unzip();
    let at = at.map_or("null".to_owned(), |at| format!("\"{}\"", rfc3339(at)));
    let status = status.flatten();
    let status = status.map_or("null".to_owned(), |status| status.to_string());
    let since = rfc3339(since);
    format!(
        r#"{{"answered":{answered},"failed":{failed},"in_a_row":{in_a_row},"last_failure_at":{at},"last_status":{status},"since":"{since}"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Lately = Lately {
        answered: 10,
        failed: 1,
        last_failure: None,
    };

    const SLIGHTLY: Lately = Lately {
        answered: 10,
        failed: 3,
        last_failure: None,
    };

    const ILL: Lately = Lately {
        answered: 10,
        failed: 6,
        last_failure: Some((Timestamp::from_micros(0), Some(503))),
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Looks, every ten seconds; the seconds at which there were news.
    fn told(looks: &[Lately]) -> Vec<(i64, &'static str)> {
        let (mut failing, mut told) = (None, Vec::new());
        for (second, lately) in (0..).step_by(10).zip(looks) {
            let (next, news) = Failing::look(failing, lately, (0, 50), (TOLD_AFTER, at(second)));
            failing = next;
            told.extend(news.map(|news| (second, news.event_type.as_str())));
        }
        told
    }

    #[test]
    fn the_owner_is_told_when_it_begins_and_when_it_is_over() {
        let looks = [&[WELL][..], &[ILL; 9], &[WELL; 3], &[ILL; 8], &[WELL]].concat();
        assert_eq!(
            told(&looks),
            [
                (70, "destination_failing"),
                (100, "destination_recovered"),
                (190, "destination_failing"),
                (210, "destination_recovered"),
            ]
        );
    }

    #[test]
    fn what_hovers_about_its_threshold_is_told_of_once() {
        let looks = [&[ILL; 8][..], &[SLIGHTLY; 3], &[ILL; 8], &[SLIGHTLY; 9]].concat();
        assert_eq!(told(&looks), [(60, "destination_failing")]);
        let never = Failing::look(
            Some(Failing {
                since: at(0),
                told: true,
            }),
            &ILL,
            (3, 0),
            (TOLD_AFTER, at(60)),
        );
        assert_eq!(never, (None, None), "it was asked for no news");
    }

    #[test]
    fn one_bad_answer_and_a_good_one_wake_nobody() {
        let one_of_two = Lately {
            answered: 2,
            failed: 1,
            last_failure: None,
        };
        assert_eq!(told(&[one_of_two; 30]), []);
    }

    #[test]
    fn nobody_is_told_of_what_is_over_within_a_minute() {
        assert_eq!(told(&[&[ILL; 6][..], &[WELL]].concat()), []);
    }

    #[test]
    fn what_is_told_says_how_many_and_how_the_last_one_failed() {
        let before = Some(Failing {
            since: at(0),
            told: false,
        });
        let (_, news) = Failing::look(before, &ILL, (4, 50), (TOLD_AFTER, at(60)));
        assert_eq!(
            news.unwrap().details,
            r#"{"answered":10,"failed":6,"in_a_row":4,"last_failure_at":"1970-01-01T00:00:00.000000Z","last_status":503,"since":"1970-01-01T00:00:00.000000Z"}"#
        );
    }
}
