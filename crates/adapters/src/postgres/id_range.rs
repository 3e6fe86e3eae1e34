//! Whole days of the ledger, named in the text of a statement.
//!
//! It is partitioned by day, and a plan is made once for whatever is bound
//! to it. One in which the ids are bound has a node for each day that is kept:
//! forty of them are opened and locked each time to find that one is needed. With a
//! ledger of thirty days that made the largest statement of a run five times as dear
//! as on the first day, and its planning eight times. By what stands in the text the
//! planner goes itself, and other days are not in the plan. A day's statements have
//! the same text, so each is still planned once.

use sqlx::AssertSqlSafe;

/// Above these bits an id is its day, counted from 1970: see `next_attempt_id`.
const DAY_BITS: u32 = 36;
const WITHIN_A_DAY: i64 = (1 << DAY_BITS) - 1;

/// The ids of whole days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdRange {
    first: i64,
    last: i64,
}

impl IdRange {
    const fn days(first: i64, last: i64) -> Self {
        Self {
            first: first & !WITHIN_A_DAY,
            last: last | WITHIN_A_DAY,
        }
    }

    /// The days of these attempts and those between them; of none, the day 0.
    pub(super) fn of(ids: &[i64]) -> Self {
        let (first, last) = (ids.iter().min(), ids.iter().max());
        Self::days(
            first.copied().unwrap_or_default(),
            last.copied().unwrap_or_default(),
        )
    }

    /// The days of all that may count, by the horizon and the last id that was given.
    pub(super) fn known_open(horizon: i64, given: i64) -> Self {
        Self::days(horizon, given.max(horizon))
    }

    /// The same and the day after: for whoever reads what was started under a lock that was
    /// taken after the last id was read.
    pub(super) const fn and_a_day(self) -> Self {
        Self {
            first: self.first,
            last: self.last + (1 << DAY_BITS),
        }
    }

    /// The first of them.
    pub(super) const fn first(self) -> i64 {
        self.first
    }

    /// The statement about these ids: it says `a.id {in_days}` where it means them.
    ///
    /// `any`: of a bound on both sides a planner without statistics believes that it
    /// leaves one row in two hundred, and may read a whole day by its ids.
    pub(super) fn named(self, statement: &str) -> String {
        let Self { first, last } = self;
        let text = format!("a.id >= {first} and a.id <= any ('{{{last}}}')");
        statement.replace("a.id {in_days}", &text)
    }

    /// The first and the last of them, counted from 1970.
    pub(super) fn in_days(self) -> (i64, i64) {
        let day = |id: i64| id.max(0) >> DAY_BITS;
        (day(self.first), day(self.last))
    }

    /// The same to be asked.
    pub(super) fn told(self, statement: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.named(statement))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 1 << 36;

    #[test]
    fn a_range_is_of_whole_days() {
        let today = 20_780 * DAY;
        let range = IdRange::of(&[today + 5, today + 3]);
        assert_eq!(range, IdRange::of(&[today]));
        let AssertSqlSafe(text) = range.told("where a.id {in_days}");
        assert_eq!(
            text,
            format!(
                "where a.id >= {today} and a.id <= any ('{{{}}}')",
                today + DAY - 1
            )
        );
        let far = IdRange::of(&[today + 2 * DAY + 7, today, i64::MAX]);
        assert_eq!((far.first, far.last), (today, i64::MAX));
        assert_eq!(IdRange::of(&[]), IdRange::of(&[0]));
        assert_eq!(IdRange::of(&[-1]), IdRange::of(&[-DAY]));
    }

    #[test]
    fn what_is_open_ends_with_the_last_id() {
        let until = |day| IdRange::of(&[20_777 * DAY, day * DAY]);
        let open = |given| IdRange::known_open(20_777 * DAY, given);
        assert_eq!(open(0), until(20_777), "none was given yet");
        assert_eq!(open(20_781 * DAY + 8), until(20_781));
    }
}
