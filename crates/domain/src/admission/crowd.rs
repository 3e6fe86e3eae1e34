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
}

impl Crowd {
    /// Its own concurrency stops it; it has `used` permits queued and in flight.
    pub(super) fn of(used: u32) -> Self {
        Self {
            row: 1 << (used / PART).max(1).ilog2(),
        }
    }

    /// The fleet's places stop it, or its tenant's; it has `used` permits of these.
    ///
    /// The row is rounded up, to at most a quarter of what it has: what waits in the queue
    /// for a worker's place is twice the places, and whoever runs takes what others left
    /// free. So the places are full all the same, where many have a few permits each and a
    /// run for each outcome costs most.
    pub(super) fn of_places(used: u32) -> Self {
        Self {
            row: used.div_ceil(PART).next_power_of_two(),
        }
    }

    /// Whether the outcome of the attempt with this permit wakes the destination.
    ///
    /// One of each row does, and not the same place of each: a receiver that lets
    /// every eighth request hang must not get all of those that wake.
    pub(super) fn wakes(self, permit: PermitNumber) -> bool {
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
            .filter(|number| crowd.wakes(PermitNumber(*number)))
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
            (Crowd::of_places(9), 2),
            (Crowd::of_places(20), 4),
            (Crowd::of_places(64), 8),
        ] {
            for begins in (0..100).map(|number| number * row) {
                assert_eq!(woken(crowd, begins..begins + row).len(), 1, "{crowd:?}");
            }
        }
        for crowd in [Crowd::of(u32::MAX), Crowd::of_places(u32::MAX)] {
            let _total = crowd.wakes(PermitNumber(i64::MAX));
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
