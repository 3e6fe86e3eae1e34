//! Which events of a page are new.
//!
//! The API lists events by their ids, the newest first. Ids begin with their time, but
//! they are made before they are committed, and by several processes: one that comes
//! later may have the lower id. So what is newer than a floor, some seconds below the
//! newest, is looked at again each time, and what was seen of it is remembered.

use std::collections::BTreeSet;
use std::time::Duration;

use domain::search::first_at;
use domain::time::Timestamp;
use uuid::Uuid;

/// By so much an event may be later than its id. Longer than a write takes.
const LATE_BY: Duration = Duration::from_secs(10);

/// What has been seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What is below it is old.
    floor: Uuid,
    /// What is not, and was seen all the same.
    ids: BTreeSet<Uuid>,
}

impl Seen {
    /// Whether it is so old that what comes after it on the list is old as well.
    pub(super) fn is_below(&self, id: Uuid) -> bool {
        id < self.floor
    }

    pub(super) fn is_new(&self, id: Uuid) -> bool {
        !self.is_below(id) && !self.ids.contains(&id)
    }

    pub(super) fn note(&mut self, id: Uuid) {
        self.ids.insert(id);
    }

    /// Nothing that is older than this one is looked at any more.
    pub(super) fn leave_below(&mut self, id: Uuid) {
        self.floor = self.floor.max(id);
        self.ids = self.ids.split_off(&self.floor);
    }

    /// Nothing that came before `now`, but for what may be late, is looked at.
    pub(super) fn begin(&mut self, now: Timestamp) {
        self.leave_below(first_at(now - LATE_BY).0);
    }

    /// The floor follows the newest; an id that is dated ahead of `now` does not take
    /// it along.
    pub(super) fn follow(&mut self, now: Timestamp) {
        let Some(newest) = self.ids.last() else {
            return;
        };
        self.leave_below(first_at(made_at(*newest).min(now) - LATE_BY).0);
    }
}

/// What a version 7 says, in milliseconds.
const fn made_at(id: Uuid) -> Timestamp {
    Timestamp::from_millis((id.as_u128() >> 80) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At that second, with that number.
    fn id(second: u64, number: u128) -> Uuid {
        let first = first_at(now(second.cast_signed())).0;
        Uuid::from_u128(first.as_u128() | number)
    }

    const fn now(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    #[test]
    fn what_was_seen_is_not_new_and_what_comes_late_is() {
        let mut seen = Seen::default();
        assert!(seen.is_new(id(100, 1)));
        seen.note(id(100, 1));
        seen.note(id(102, 1));
        seen.follow(now(102));
        assert!(!seen.is_new(id(100, 1)) && !seen.is_new(id(102, 1)));
        assert!(seen.is_new(id(100, 2)), "committed after a newer one");
        assert!(seen.is_new(id(92, 1)));
        assert!(!seen.is_new(id(91, 1)) && seen.is_below(id(91, 1)));
    }

    #[test]
    fn it_begins_now_though_nothing_was_seen() {
        let mut seen = Seen::default();
        seen.begin(now(100));
        assert!(!seen.is_new(id(89, 1)) && seen.is_below(id(89, 1)));
        assert!(seen.is_new(id(90, 1)));
    }

    #[test]
    fn what_is_remembered_ends() {
        let mut seen = Seen::default();
        for second in 100..200 {
            seen.note(id(second, 1));
            seen.follow(now(second as i64));
            assert!(seen.ids.len() <= 11);
        }
        assert!(!seen.is_new(id(150, 1)), "it is below the floor");
    }

    #[test]
    fn an_id_of_the_future_hides_nothing() {
        let mut seen = Seen::default();
        seen.note(id(1_000_000, 1));
        seen.follow(now(100));
        assert!(seen.is_new(id(101, 1)));
        seen.leave_below(id(101, 2));
        assert!(!seen.is_new(id(101, 1)) && seen.is_new(id(101, 3)));
        // It never goes back.
        seen.follow(now(50));
        assert!(!seen.is_new(id(101, 1)));
    }
}
