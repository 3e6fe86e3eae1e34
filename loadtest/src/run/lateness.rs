//! How late starts were, by the ledger: later than they were due, and later than their
//! limit allowed them, whichever came last.
//!
//! Nothing is said where nobody here knows when that was: of a limit that changes, of one
//! whose margin is measured, for that changes too, and of one whose starts are counted in
//! coarse buckets.

use std::time::Duration;

use domain::limit::EXACT_MAX;
use domain::margin::Margin;
use domain::time::Timestamp;
use engine::ports::LedgerRow;

use super::settings::{Limit, Settings, Shape};

/// What holds a start that is due.
enum Held {
    ByNothing,
    /// At most `max` starts in each window of this length.
    ByWindows {
        max: usize,
        length: Duration,
    },
}

impl Held {
    /// `None` where that is not known exactly.
    fn of(settings: &Settings) -> Option<Self> {
        if settings.limit_then.is_some() || settings.shape == Shape::LimitChange {
            return None;
        }
        let Limit::Per(max, period) = settings.limit else {
            return Some(Self::ByNothing);
        };
        let period = period.duration();
        let margin = Margin::Set(settings.safety_margin?).of(period);
        (max <= EXACT_MAX).then(|| Self::ByWindows {
            max: max as usize,
            length: period + margin,
        })
    }
}

/// How long before a start others may hold it.
pub(super) fn reach(settings: &Settings) -> Duration {
    match Held::of(settings) {
        Some(Held::ByWindows { length, .. }) => length,
        Some(Held::ByNothing) | None => Duration::ZERO,
    }
}

/// Of each row that started at `began` or later, in microseconds. The rows are in the order
/// of their starts, those of the [`reach`] before `began` with them.
pub(super) fn of_starts(settings: &Settings, rows: &[LedgerRow], began: Timestamp) -> Vec<u64> {
    let Some(held) = Held::of(settings) else {
        return Vec::new();
    };
    let starts: Vec<_> = (rows.iter())
        .filter_map(|row| Some((row.due_at, row.started_at?)))
        .collect();
    let late = (starts.iter().enumerate()).filter(|(_, (_, started))| *started >= began);
    late.map(|(at, (due, started))| {
        let allowed = match held {
            Held::ByNothing => None,
            Held::ByWindows { max, length } => {
                let first = at.checked_sub(max).and_then(|first| starts.get(first));
                first.map(|(_, before)| *before + length)
            }
        };
        let could = allowed.map_or(*due, |allowed| allowed.max(*due));
        u64::try_from(started.since(could).as_micros()).unwrap_or(u64::MAX)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use domain::attempt::AttemptState;
    use domain::ids::AttemptId;

    use super::super::settings::tests::settings;
    use super::*;

    /// Of a second 10 ms.
    const MARGIN: Option<f64> = Some(0.01);

    /// In milliseconds, of starts that were due and came at these milliseconds.
    fn late(limit: &str, starts: &[(i64, i64)], began: i64) -> Vec<u64> {
        let settings = Settings {
            limit: limit.parse().unwrap(),
            safety_margin: MARGIN,
            ..settings(Shape::Constant)
        };
        let row = |(due, started): &(i64, i64)| LedgerRow {
            attempt: AttemptId(0),
            due_at: Timestamp::from_millis(*due),
            started_at: Some(Timestamp::from_millis(*started)),
            finished_at: None,
            state: AttemptState::Started,
            status: None,
        };
        let mut rows: Vec<_> = starts.iter().map(row).collect();
        rows.push(LedgerRow {
            started_at: None,
            ..rows[0]
        });
        let late = of_starts(&settings, &rows, Timestamp::from_millis(began));
        late.into_iter().map(|us| us / 1_000).collect()
    }

    #[test]
    fn without_a_limit_a_start_is_late_by_how_long_it_waited() {
        assert_eq!(
            late("unlimited", &[(0, 5), (10, 10), (20, 19)], 0),
            [5, 0, 0]
        );
    }

    #[test]
    fn what_its_limit_held_is_not_late_until_the_window_lets_it_go() {
        let starts = [(0, 3), (0, 4), (0, 1_013), (0, 1_064), (3_000, 3_007)];
        assert_eq!(late("2/s", &starts, 0), [3, 4, 0, 50, 7]);
    }

    #[test]
    fn starts_of_before_hold_and_are_not_counted() {
        let starts = [(0, 900), (0, 950), (1_000, 1_915)];
        assert_eq!(late("2/s", &starts, 1_000), [5]);
    }

    #[test]
    fn where_nobody_knows_what_holds_a_start_nothing_is_said() {
        let row = LedgerRow {
            attempt: AttemptId(0),
            due_at: Timestamp::from_millis(0),
            started_at: Some(Timestamp::from_millis(9)),
            finished_at: None,
            state: AttemptState::Started,
            status: None,
        };
        let said = |shape, limit: &str, safety_margin| {
            let settings = Settings {
                limit: limit.parse().unwrap(),
                safety_margin,
                ..settings(shape)
            };
            of_starts(&settings, &[row], Timestamp::from_millis(0))
        };
        assert_eq!(said(Shape::Constant, "2/s", MARGIN), [9_000]);
        assert_eq!(said(Shape::Constant, "unlimited", None), [9_000]);
        assert!(said(Shape::LimitChange, "2/s", MARGIN).is_empty());
        assert!(said(Shape::Constant, "2/s", None).is_empty(), "measured");
        assert_eq!(said(Shape::Constant, "2000/s", MARGIN), [9_000]);
        assert!(said(Shape::Constant, "2001/s", MARGIN).is_empty(), "coarse");
    }

    #[test]
    fn a_window_reaches_back_as_long_as_it_is() {
        let of = |limit: &str, safety_margin| {
            reach(&Settings {
                limit: limit.parse().unwrap(),
                safety_margin,
                ..settings(Shape::Constant)
            })
        };
        assert_eq!(of("30/min", MARGIN), Duration::from_millis(60_600));
        assert_eq!(of("30/min", None), Duration::ZERO);
        assert_eq!(of("unlimited", MARGIN), Duration::ZERO);
    }
}
