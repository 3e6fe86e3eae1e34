//! The days of events that a statement names in its text, as [`super::id_range`] says of
//! attempts.
//!
//! Most attempts are made with their events, whose ids were given just before, and a retry
//! mostly within a day: these days are in every text. Whoever meets an event of another day
//! asks again, and names that one too.

use std::collections::BTreeSet;

use sqlx::AssertSqlSafe;

use super::id_range::IdRange;

/// Where events are looked for: in these days, and among those without a day of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventDays {
    /// Counted from 1970, as all of them.
    first: i64,
    last: i64,
    others: BTreeSet<i32>,
}

impl EventDays {
    /// The days of these attempts, those between them and the one before.
    pub(super) fn of(attempts: &[i64]) -> Self {
        let (first, last) = IdRange::of(attempts).in_days();
        Self {
            first: first - 1,
            last,
            others: BTreeSet::new(),
        }
    }

    /// And that one.
    pub(super) fn add(&mut self, day: i32) {
        self.others.insert(day);
    }

    /// Whether the text is that of most statements of a day, and worth being kept: of attempts
    /// of that day, or of it and the one before.
    pub(super) fn are_usual(&self) -> bool {
        self.others.is_empty() && self.last - self.first <= 2
    }

    /// The statement about these events: it says `e.day {in_days}` where an event must be of
    /// these days, and `l.day {in_days}` where it asks whether one is.
    pub(super) fn named(&self, statement: &str) -> AssertSqlSafe<String> {
        let text = ["e.day", "l.day"]
            .iter()
            .fold(statement.to_owned(), |text, column| {
                text.replace(&format!("{column} {{in_days}}"), &self.hold(column))
            });
        AssertSqlSafe(text)
    }

    fn hold(&self, column: &str) -> String {
        let Self { first, last, .. } = self;
        let timeless = "date '1970-01-01'";
        let others: String = (self.others.iter())
            .map(|day| format!(" or {column} = {timeless} + {day}"))
            .collect();
        format!(
            "({column} = {timeless} or {column} between {timeless} + {first} \
            and {timeless} + {last}{others})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 1 << 36;

    fn in_days(days: &EventDays) -> String {
        days.named("e.day {in_days}").0
    }

    fn between(first: i64, last: i64) -> String {
        let epoch = "date '1970-01-01'";
        format!("(e.day = {epoch} or e.day between {epoch} + {first} and {epoch} + {last})")
    }

    #[test]
    fn events_are_of_these_days_and_the_one_before() {
        let days = |ids: &[i64]| in_days(&EventDays::of(ids));
        assert_eq!(days(&[20_780 * DAY + 5]), between(20_779, 20_780));
        let both = [20_780 * DAY, 20_778 * DAY + 9];
        assert_eq!(days(&both), between(20_777, 20_780));
        assert!(!EventDays::of(&both).are_usual());
        assert!(EventDays::of(&[20_780 * DAY, 20_779 * DAY]).are_usual());
        // Whatever a message says: days that a date can be.
        assert_eq!(days(&[0]), between(-1, 0));
        assert_eq!(days(&[i64::MIN]), between(-1, 0));
        assert_eq!(days(&[i64::MAX]), between(134_217_726, 134_217_727));
    }

    #[test]
    fn other_days_are_named_one_by_one() {
        let mut days = EventDays::of(&[20_780 * DAY]);
        assert!(days.are_usual());
        days.add(20_770);
        days.add(20_760);
        days.add(20_770);
        assert!(!days.are_usual());
        let epoch = "date '1970-01-01'";
        let both = format!(" or l.day = {epoch} + 20760 or l.day = {epoch} + 20770)");
        let AssertSqlSafe(text) = days.named("not l.day {in_days}");
        assert!(text.ends_with(&both), "{text}");
        assert!(text.starts_with("not (l.day = "), "{text}");
    }
}
