//! How late starts were, by the ledger: later than they were due, and later than their
//! limit allowed them, whichever came last.

use std::time::Duration;

use domain::time::Timestamp;
use engine::ports::LedgerRow;

use super::settings::{Limit, Settings, Shape};

/// Of each row that started at `began` or later, in microseconds. The rows are in the order
/// of their starts, those of the window before `began` with them; `margin` is by how much
/// windows are planned longer than their period. Nothing of a limit that changes: nobody
/// here knows when.
pub(super) fn of_starts(
    settings: &Settings,
    margin: Duration,
    rows: &[LedgerRow],
    began: Timestamp,
) -> Vec<u64> {
    if settings.limit_then.is_some() || settings.shape == Shape::LimitChange {
        return Vec::new();
    }
    let starts: Vec<_> = (rows.iter())
        .filter_map(|row| Some((row.due_at, row.started_at?)))
        .collect();
    let window = match settings.limit {
        Limit::Unlimited => None,
        Limit::Per(max, period) => Some((max as usize, period.duration() + margin)),
    };
    let late = (starts.iter().enumerate()).filter(|(_, (_, started))| *started >= began);
    late.map(|(at, (due, started))| {
        let allowed = window.and_then(|(max, length)| {
            let (_, before) = starts.get(at.checked_sub(max)?)?;
            Some(*before + length)
        });
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

    const MARGIN: Duration = Duration::from_millis(10);

    /// In milliseconds, of starts that were due and came at these milliseconds.
    fn late(limit: &str, starts: &[(i64, i64)], began: i64) -> Vec<u64> {
        let settings = Settings {
            limit: limit.parse().unwrap(),
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
        let late = of_starts(&settings, MARGIN, &rows, Timestamp::from_millis(began));
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
    fn of_a_limit_that_changes_nothing_is_said() {
        let changing = Settings {
            limit: "2/s".parse().unwrap(),
            ..settings(Shape::LimitChange)
        };
        let row = LedgerRow {
            attempt: AttemptId(0),
            due_at: Timestamp::from_millis(0),
            started_at: Some(Timestamp::from_millis(9)),
            finished_at: None,
            state: AttemptState::Started,
            status: None,
        };
        let began = Timestamp::from_millis(0);
        assert!(of_starts(&changing, MARGIN, &[row], began).is_empty());
        let stays = settings(Shape::Constant);
        assert_eq!(of_starts(&stays, MARGIN, &[row], began), [9_000]);
    }
}
