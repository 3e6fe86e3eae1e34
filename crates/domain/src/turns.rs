//! Whose turn it is: first attempts and retries of one destination.
//!
//! **The share.** While both wait, permits go to them in turn: of the permits
//! of a destination, numbered one after the other, the odd ones go to first
//! attempts and the even ones to what has waited before (retries, replays,
//! and attempts whose permit ended unused). So of any n permits in a row at
//! least ⌊n/2⌋ go to each, however long the other's backlog is. Where only one
//! of the two waits it gets all.
//!
//! The turn hangs on the permit's number, which a destination's row keeps
//! anyway: it costs nothing to remember, and it is fair across runs that give
//! one permit each.

/// Merges `firsts` and `others`, each in its own order, for permits that are
/// numbered from `number` on; at most `most`.
///
/// ```
/// use domain::turns::in_turn;
/// assert_eq!(in_turn(vec!['a', 'b', 'c'], vec!['x'], 8, 10), ['x', 'a', 'b', 'c']);
/// assert_eq!(in_turn(vec!['a', 'b'], vec!['x', 'y'], 7, 3), ['a', 'x', 'b']);
/// ```
#[must_use]
pub fn in_turn<T>(firsts: Vec<T>, others: Vec<T>, number: i64, most: usize) -> Vec<T> {
    let room = firsts.len().saturating_add(others.len()).min(most);
    let (mut firsts, mut others) = (firsts.into_iter(), others.into_iter());
    let mut merged = Vec::with_capacity(room);
    let mut first_is_next = number.rem_euclid(2) == 1;
    while merged.len() < room {
        let next = match first_is_next {
            true => firsts.next().or_else(|| others.next()),
            false => others.next().or_else(|| firsts.next()),
        };
        merged.extend(next);
        first_is_next = !first_is_next;
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::in_turn;
    use proptest::prelude::*;

    proptest! {
        /// Runs of any sizes, one after the other, over backlogs of any sizes.
        #[test]
        fn while_both_wait_each_gets_every_second_permit(
            firsts in 0..200_usize,
            others in 0..200_usize,
            runs in prop::collection::vec(0..9_usize, 1..80),
            number in 0..1_000_i64,
        ) {
            let mut firsts: Vec<(bool, usize)> = (0..firsts).map(|one| (true, one)).collect();
            let mut others: Vec<(bool, usize)> = (0..others).map(|one| (false, one)).collect();
            let mut next = number;
            // Permits in a row, since both have waited: to firsts, to others.
            let mut given = (0_usize, 0_usize);
            for size in runs {
                let ahead = size + 1;
                let merged = in_turn(
                    firsts.iter().copied().take(ahead).collect(),
                    others.iter().copied().take(ahead).collect(),
                    next,
                    ahead,
                );
                prop_assert_eq!(merged.len(), ahead.min(firsts.len() + others.len()));
                for (is_first, which) in merged.into_iter().take(size) {
                    let both_wait = !firsts.is_empty() && !others.is_empty();
                    let list = if is_first { &mut firsts } else { &mut others };
                    // In its own order, none left out.
                    prop_assert_eq!(list.remove(0), (is_first, which));
                    next += 1;
                    match (both_wait, is_first) {
                        (true, true) => given.0 += 1,
                        (true, false) => given.1 += 1,
                        (false, _) => given = (0, 0),
                    }
                    prop_assert!(given.0.abs_diff(given.1) <= 1, "{:?}", given);
                }
            }
        }
    }

    #[test]
    fn first_attempts_keep_their_order_and_retries_go_between() {
        // First attempts by id, whatever their times; the others by due time.
        let (first, due) = (vec![1, 2, 4], vec![6, 3, 5, 7]);
        let in_turn = |number, most| in_turn(first.clone(), due.clone(), number, most);
        assert_eq!(in_turn(2, 10), [6, 1, 3, 2, 5, 4, 7]);
        assert_eq!(in_turn(1, 10), [1, 6, 2, 3, 4, 5, 7]);
        assert_eq!(in_turn(2, 2), [6, 1]);
    }
}
