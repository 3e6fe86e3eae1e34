//! Which outcomes wake a crowded destination.
//!
//! Each run costs about the same, whether one place is free or fifty. So a crowded
//! destination is woken when a good part of its places is free: at admission one
//! permit of each row of so many is chosen, and only its outcome wakes. Nothing is
//! counted while outcomes come in.

use crate::ids::PermitNumber;

/// The part of its permits that a destination is woken for. So on average a sixteenth of
/// its places is empty where its own concurrency stops it.
const PART: u32 = 8;

/// A destination for whose room somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crowd {
    /// One permit of so many in a row wakes. A power of two, so that it seldom
    /// differs from run to run, and a row is seldom cut.
    row: u32,
    /// Nothing that is out wakes yet.
    is_first: bool,
}

impl Crowd {
    /// Its own concurrency stops it; it has `used` permits queued and in flight.
    pub(super) fn of(used: u32) -> Self {
        Self {
            row: 1 << (used / PART).max(1).ilog2(),
            is_first: false,
        }
    }

    /// The fleet's places stop it, or its tenant's; it has `used` permits of these.
    ///
    /// A third as long a row, but rounded up: what waits in the queue for a worker's place is
    /// twice the places, and whoever runs takes what others left free, so the places are full
    /// all the same, where many have a few permits each and a run for each outcome costs
    /// most. With a longer one a tenant's only destination had less than its share beside
    /// hundreds of another, each of which runs at each of its outcomes.
    pub(super) fn of_places(used: u32) -> Self {
        Self {
            row: used.div_ceil(3 * PART).next_power_of_two(),
            is_first: false,
        }
    }

    /// The same where nothing that is out wakes: it was given while nobody waited for its
    /// room. The row counts that too, so a run that gives less than a row may choose none.
    pub(super) fn first(self) -> Self {
        Self {
            is_first: true,
            ..self
        }
    }

    /// Whether the outcome of the attempt with this permit wakes the destination; it is one
    /// of so many that a run has given, up to the `last`.
    ///
    /// The first and the last do where otherwise nothing that is out would: one of both may
    /// never be marked, where somebody holds its row.
    pub(super) fn wakes(self, permit: PermitNumber, (given, last): (u32, PermitNumber)) -> bool {
        let first = last.0.saturating_sub(i64::from(given)).saturating_add(1);
        let is_end = permit == last || permit.0 == first;
        let chooses_one = || (first..=last.0).any(|number| self.chooses(PermitNumber(number)));
        self.chooses(permit) || (self.is_first && is_end && !chooses_one())
    }

    /// One of each row, and not the same place of each: a receiver that lets every eighth
    /// request hang must not get all of those that wake.
    fn chooses(self, permit: PermitNumber) -> bool {
        let row = i64::from(self.row);
        let (number, place) = (permit.0.div_euclid(row), permit.0.rem_euclid(row));
        place == scattered(number).rem_euclid(row)
    }
}

/// The same for the same number, and without a pattern (splitmix64).
fn scattered(number: i64) -> i64 {
    let mut word = number
        .cast_unsigned()
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(crowd: Crowd, numbers: std::ops::Range<i64>) -> Vec<i64> {
        numbers
            .filter(|number| crowd.chooses(PermitNumber(*number)))
            .collect()
    }

    #[test]
    fn few_permits_all_wake() {
        for used in [0, 1, 7, 15] {
            assert_eq!(woken(Crowd::of(used), 0..9).len(), 9, "{used}");
        }
        for used in [0, 1, 8] {
            assert_eq!(woken(Crowd::of_places(used), 0..9).len(), 9, "{used}");
        }
    }

    #[test]
    fn one_of_each_row_wakes_wherever_it_begins() {
        for (crowd, row) in [
            (Crowd::of(50), 4),
            (Crowd::of(250), 16),
            (Crowd::of_places(24), 1),
            (Crowd::of_places(25), 2),
            (Crowd::of_places(64), 4),
        ] {
            for begins in (0..100).map(|number| number * row) {
                assert_eq!(woken(crowd, begins..begins + row).len(), 1, "{crowd:?}");
            }
        }
        for crowd in [Crowd::of(u32::MAX), Crowd::of_places(u32::MAX)] {
            let last = PermitNumber(i64::MAX);
            let _total = crowd
                .first()
                .wakes(last, (u32::MAX, PermitNumber(i64::MIN)));
            let _total = crowd.first().wakes(last, (1, last));
        }
    }

    /// Wherever it begins and however few they are.
    #[test]
    fn where_nothing_wakes_both_ends_of_what_is_given_do() {
        for (used, given) in [(52, 2), (64, 1), (500, 17), (500, 200)] {
            let crowd = Crowd::of_places(used);
            let mut none_chosen = 0;
            for last in 1_000..1_100 {
                let last = PermitNumber(last);
                let numbers = || (last.0 - i64::from(given) + 1..=last.0).map(PermitNumber);
                let wake = |crowd: Crowd| {
                    let wakes = numbers().filter(|number| crowd.wakes(*number, (given, last)));
                    wakes.collect::<Vec<_>>()
                };
                let chosen = wake(crowd);
                let mut ends = vec![PermitNumber(last.0 - i64::from(given) + 1), last];
                ends.dedup();
                let expected = match chosen.is_empty() {
                    true => ends,
                    false => chosen.clone(),
                };
                assert_eq!(wake(crowd.first()), expected, "{given} of {used}");
                none_chosen += u32::from(chosen.is_empty());
            }
            // A run that gives several rows has chosen some anyway.
            assert_eq!(none_chosen > 0, given < 200, "{given} of {used}");
        }
    }

    /// Whatever the period of those that hang, about as many of them wake as of
    /// all others.
    #[test]
    fn no_period_has_all_of_those_that_wake() {
        let crowd = Crowd::of(64);
        let woken = woken(crowd, 0..100_000);
        for period in 2..=64 {
            for hangs in 0..period {
                let caught = woken.iter().filter(|number| *number % period == hangs);
                let share = caught.count() as f64 * period as f64 / woken.len() as f64;
                assert!((0.5..2.0).contains(&share), "{hangs} of {period}: {share}");
            }
        }
    }
}
