//! Receivers that are asked first, and say how much they take.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Draw, SECOND};
use crate::scenario::What;

/// Of the dice for handshakes.
const HANDSHAKES: u64 = 0xA5CED;

impl Draw<'_> {
    /// Some owners have their receivers asked; each answers a little later, and now and then
    /// says something else after a while. With dice of its own: all other draws stay.
    pub(super) fn handshakes(&mut self, seed: u64, lasts_ms: u64) {
        let mut rng = StdRng::seed_from_u64(seed ^ HANDSHAKES);
        for destination in 0..self.destinations {
            if !rng.random_bool(0.15) {
                continue;
            }
            let mut at = [0, rng.random_range(0..lasts_ms / 2)][rng.random_range(0..2)];
            self.push(at, What::Handshake { destination });
            at += rng.random_range(100..20 * SECOND);
            while at < lasts_ms {
                let per_minute = [0, rng.random_range(30..300)][rng.random_range(0..2)];
                self.push(
                    at,
                    What::Allows {
                        destination,
                        per_minute,
                    },
                );
                at += rng.random_range(30 * SECOND..300 * SECOND);
            }
        }
    }
}
