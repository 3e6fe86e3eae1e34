//! Whose turn it is: urgent and other first attempts, and retries, of one destination.
//!
//! **The share of retries.** While both wait, permits go to them in turn: of the permits
//! of a destination, numbered one after the other, the odd ones go to first
//! attempts and the even ones to what has waited before (retries, and of events that
//! are not urgent replays and attempts whose permit ended unused). So of any n permits in a row at
//! least ⌊n/2⌋ go to each, however long the other's backlog is. Where only one
//! of the two waits it gets all.
//!
//! **The share of what is urgent.** First attempts are in two lanes (priorities). While both
//! wait, of any four permits in a row that go to first attempts three go to the urgent lane
//! and one to the normal one. Where only one waits it gets all. Where retries come and go
//! meanwhile, permits are counted by other numbers when they are there; then the share is
//! less even, but of any eight permits in a row one goes to the normal lane, and two to the
//! urgent one.
//!
//! The turn hangs on the permit's number, which a destination's row keeps
//! anyway: it costs nothing to remember, and it is fair across runs that give
//! one permit each.

/// What there is for each lane of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lanes<T> {
    /// Of urgent events: what waits for its first permit, was given one back, or is
    /// replayed.
    pub urgent: T,
    /// Of all other events: first attempts that were never admitted.
    pub firsts: T,
    /// All others that are due.
    pub others: T,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// [`Lanes::urgent`].
    Urgent,
    /// [`Lanes::firsts`].
    First,
    /// [`Lanes::others`].
    Other,
}

impl Lane {
    /// That of what waits, or has waited until it got its permit.
    #[must_use]
    pub const fn of(urgent: bool, is_first: bool) -> Self {
        match (urgent, is_first) {
            (true, _) => Self::Urgent,
            (false, true) => Self::First,
            (false, false) => Self::Other,
        }
    }
}

impl<T> Lanes<T> {
    /// What there is for this one.
    #[must_use]
    pub const fn of(&self, lane: Lane) -> &T {
        match lane {
            Lane::Urgent => &self.urgent,
            Lane::First => &self.firsts,
            Lane::Other => &self.others,
        }
    }

    /// The same, of something made of what there is for each.
    pub fn map<U>(self, mut each: impl FnMut(T) -> U) -> Lanes<U> {
        Lanes {
            urgent: each(self.urgent),
            firsts: each(self.firsts),
            others: each(self.others),
        }
    }
}

/// The lane that gets the permit of this number, of those in which somebody waits; `None`
/// where nobody does.
///
/// ```
/// use domain::turns::{Lane, Lanes, turn};
/// let all = Lanes { urgent: true, firsts: true, others: true };
/// assert_eq!(turn(6, all), Some(Lane::Other));
/// assert_eq!(turn(7, all), Some(Lane::First));
/// assert_eq!(turn(9, all), Some(Lane::Urgent));
/// ```
#[must_use]
pub fn turn(number: i64, waits: Lanes<bool>) -> Option<Lane> {
    let is_others = number.rem_euclid(2) == 0;
    match waits {
        Lanes {
            urgent: false,
            firsts: false,
            others,
        } => match others {
            true => Some(Lane::Other),
            false => None,
        },
        Lanes { others: true, .. } if is_others => Some(Lane::Other),
        Lanes { firsts: false, .. } => Some(Lane::Urgent),
        Lanes { urgent: false, .. } => Some(Lane::First),
        Lanes { others, .. } => {
            // Every fourth of those that first attempts get: of the odd ones, or of all. The
            // former are among the latter, so that it is never passed over altogether.
            let is_firsts = match others {
                true => number.rem_euclid(8) == 7,
                false => number.rem_euclid(4) == 3,
            };
            Some(match is_firsts {
                true => Lane::First,
                false => Lane::Urgent,
            })
        }
    }
}

/// Merges the lanes, each in its own order, for permits that are numbered from `number` on;
/// at most `most`.
///
/// ```
/// use domain::turns::{Lanes, in_turn};
/// let merged = |urgent: &str, firsts: &str, others: &str, number, most| -> String {
///     let each = |lane: &str| lane.chars().collect();
///     let lanes = Lanes { urgent: each(urgent), firsts: each(firsts), others: each(others) };
///     in_turn(lanes, number, most).into_iter().collect()
/// };
/// assert_eq!(merged("", "abc", "x", 8, 10), "xabc");
/// assert_eq!(merged("", "ab", "xy", 7, 3), "axb");
/// assert_eq!(merged("12345", "ab", "", 0, 10), "123a45b");
/// assert_eq!(merged("12345", "ab", "xyz", 1, 8), "1x2y3za4");
/// ```
#[must_use]
pub fn in_turn<T>(lanes: Lanes<Vec<T>>, number: i64, most: usize) -> Vec<T> {
    let mut lanes = lanes.map(|lane| lane.into_iter().peekable());
    let mut merged = Vec::new();
    for number in (number..).take(most) {
        let waits = Lanes {
            urgent: lanes.urgent.peek().is_some(),
            firsts: lanes.firsts.peek().is_some(),
            others: lanes.others.peek().is_some(),
        };
        let next = match turn(number, waits) {
            Some(Lane::Urgent) => lanes.urgent.next(),
            Some(Lane::First) => lanes.firsts.next(),
            Some(Lane::Other) => lanes.others.next(),
            None => break,
        };
        merged.extend(next);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::{Lane, Lanes, in_turn, turn};
    use proptest::prelude::*;

    /// Runs of any sizes, one after the other, over backlogs of any sizes: the lane of each
    /// permit, and in which somebody waited when it was given.
    fn given(
        backlogs: (usize, usize, usize),
        runs: Vec<usize>,
        number: i64,
    ) -> Result<Vec<(Lane, Lanes<bool>)>, TestCaseError> {
        let list =
            |lane, size| -> Vec<(Lane, usize)> { (0..size).map(|one| (lane, one)).collect() };
        let mut lanes = Lanes {
            urgent: list(Lane::Urgent, backlogs.0),
            firsts: list(Lane::First, backlogs.1),
            others: list(Lane::Other, backlogs.2),
        };
        let mut next = number;
        let mut given = Vec::new();
        for size in runs {
            let ahead = size + 1;
            let read = lanes
                .clone()
                .map(|list| list.into_iter().take(ahead).collect());
            let left = lanes.urgent.len() + lanes.firsts.len() + lanes.others.len();
            let merged = in_turn(read, next, ahead);
            prop_assert_eq!(merged.len(), ahead.min(left));
            for (lane, which) in merged.into_iter().take(size) {
                let waits = lanes.clone().map(|list| !list.is_empty());
                let list = match lane {
                    Lane::Urgent => &mut lanes.urgent,
                    Lane::First => &mut lanes.firsts,
                    Lane::Other => &mut lanes.others,
                };
                // In its own order, none left out.
                prop_assert_eq!(list.remove(0), (lane, which));
                given.push((lane, waits));
                next += 1;
            }
        }
        Ok(given)
    }

    proptest! {
        #[test]
        fn while_both_wait_each_gets_every_second_permit(
            backlogs in (0..100_usize, 0..100_usize, 0..200_usize),
            runs in prop::collection::vec(0..9_usize, 1..80),
            number in 0..1_000_i64,
        ) {
            // Permits in a row, since both have waited: to firsts of either lane, to others.
            let mut since = (0_usize, 0_usize);
            for (lane, waits) in given(backlogs, runs, number)? {
                match ((waits.urgent || waits.firsts) && waits.others, lane) {
                    (true, Lane::Other) => since.1 += 1,
                    (true, _) => since.0 += 1,
                    (false, _) => since = (0, 0),
                }
                prop_assert!(since.0.abs_diff(since.1) <= 1, "{:?}", since);
            }
        }

        /// With retries all the time, or without any.
        #[test]
        fn while_both_lanes_wait_every_fourth_first_attempt_is_normal(
            backlogs in (0..300_usize, 0..100_usize, 0..300_usize),
            runs in prop::collection::vec(0..9_usize, 1..80),
            number in 0..1_000_i64,
        ) {
            // Those in a row since the same lanes have waited.
            let (mut since, mut waited) = (Vec::new(), Lanes::default());
            for (lane, waits) in given(backlogs, runs, number)? {
                if waits != waited {
                    (since, waited) = (Vec::new(), waits);
                }
                if waits.urgent && waits.firsts && lane != Lane::Other {
                    since.push(lane);
                }
                let normal = since.iter().rev().take(4).filter(|lane| **lane == Lane::First);
                let normal = normal.count();
                prop_assert!(if since.len() < 4 { normal <= 1 } else { normal == 1 }, "{:?}", since);
            }
        }

        /// Whatever else comes and goes.
        #[test]
        fn neither_lane_starves_while_retries_come_and_go(
            others in prop::collection::vec(any::<bool>(), 8),
            number in -100..1_000_i64,
        ) {
            let lanes: Vec<_> = (number..)
                .zip(others)
                .filter_map(|(number, others)| turn(number, Lanes { urgent: true, firsts: true, others }))
                .collect();
            let of = |lane: Lane| lanes.iter().filter(|one| **one == lane).count();
            prop_assert!(of(Lane::First) >= 1 && of(Lane::Urgent) >= 2, "{:?}", lanes);
        }

        /// Nobody waits for a turn that nobody takes.
        #[test]
        fn what_waits_alone_gets_all(number in -100..1_000_i64) {
            let none = Lanes::default();
            let alone = |waits| turn(number, waits);
            prop_assert_eq!(alone(none), None);
            prop_assert_eq!(alone(Lanes { urgent: true, ..none }), Some(Lane::Urgent));
            prop_assert_eq!(alone(Lanes { firsts: true, ..none }), Some(Lane::First));
            prop_assert_eq!(alone(Lanes { others: true, ..none }), Some(Lane::Other));
        }
    }

    #[test]
    fn first_attempts_keep_their_order_and_retries_go_between() {
        // First attempts by id, whatever their times; the others by due time.
        let in_turn = |number, most| {
            let lanes = Lanes {
                urgent: Vec::new(),
                firsts: vec![1, 2, 4],
                others: vec![6, 3, 5, 7],
            };
            in_turn(lanes, number, most)
        };
        assert_eq!(in_turn(2, 10), [6, 1, 3, 2, 5, 4, 7]);
        assert_eq!(in_turn(1, 10), [1, 6, 2, 3, 4, 5, 7]);
        assert_eq!(in_turn(2, 2), [6, 1]);
    }
}
