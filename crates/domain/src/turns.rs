//! Whose turn it is in a backlog.

use crate::ids::AttemptId;
use crate::time::Timestamp;

/// The first `limit` of what is due, in the order in which it goes: by when each
/// could have started, and then by id.
///
/// `first` are first attempts with their creation, by id; `due` all others, by
/// when they were due. First attempts keep the order of their ids although a
/// clock that was set back, or commits that overtook each other, created a
/// later one earlier.
#[must_use]
pub fn in_turn(
    first: impl IntoIterator<Item = (Timestamp, AttemptId)>,
    due: impl IntoIterator<Item = (Timestamp, AttemptId)>,
    limit: usize,
) -> Vec<AttemptId> {
    let mut latest = Timestamp::MIN;
    let first = first.into_iter().map(|(since, id)| {
        latest = latest.max(since);
        (latest, id)
    });
    let mut all: Vec<_> = first.collect();
    all.extend(due);
    all.sort_unstable();
    all.truncate(limit);
    all.into_iter().map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_attempts_keep_their_order_and_retries_go_between() {
        let at = |micros, id| (Timestamp::from_micros(micros), AttemptId(id));
        let first = [at(10, 1), at(5, 2), at(20, 4)];
        let due = [at(7, 6), at(10, 3), at(15, 5), at(30, 7)];
        let ids = [6, 1, 2, 3, 5, 4, 7].map(AttemptId);
        assert_eq!(in_turn(first, due, 10), ids);
        assert_eq!(in_turn(first, due, 2), ids[..2]);
    }
}
