//! A limit that some destinations have together.

use domain::limit_group::GroupLimits;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Draw, SECOND};
use crate::scenario::What;

/// Of the dice for limit groups.
const GROUPS: u64 = 0x6209;

impl Draw<'_> {
    /// Some owners have a limit group: destinations join and leave it, and what it allows
    /// changes. With dice of its own: all other draws stay.
    pub(super) fn groups(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ GROUPS);
        if !rng.random_bool(0.3) {
            return;
        }
        let limits = allowed(&mut rng);
        self.push(0, What::GroupLimits { limits });
        for destination in 0..self.destinations {
            if rng.random_bool(0.7) {
                let at = [0, rng.random_range(0..lasts_ms)][rng.random_range(0..2)];
                self.push(at, What::Joins { destination });
            }
        }
        for _ in 0..rng.random_range(0..6) {
            let destination = rng.random_range(0..self.destinations);
            let what = match rng.random_range(0..4) {
                0 => What::Joins { destination },
                1 => What::Leaves { destination },
                _ => What::GroupLimits {
                    limits: allowed(&mut rng),
                },
            };
            self.push(rng.random_range(SECOND..lasts_ms), what);
        }
    }
}

/// What a group allows; now and then nothing.
fn allowed(rng: &mut StdRng) -> GroupLimits {
    let none = GroupLimits::default();
    match rng.random_range(0..12) {
        0 => GroupLimits {
            per_second: Some(0),
            ..none
        },
        1..3 => GroupLimits {
            per_minute: Some(rng.random_range(30..200)),
            ..none
        },
        3..5 => GroupLimits {
            per_second: Some(rng.random_range(2..10)),
            per_minute: Some(rng.random_range(60..300)),
            ..none
        },
        _ => GroupLimits {
            per_second: Some(rng.random_range(1..15)),
            ..none
        },
    }
}
