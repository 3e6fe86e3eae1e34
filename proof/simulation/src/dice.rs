//! Chance as a pure function.
//!
//! A generator that is drawn from in turn would give every later call other
//! numbers as soon as one operation is taken out of a scenario. A [`Dice`] has
//! no state: a roll depends on the seed, on what is rolled for, and on how
//! often that was rolled for before. So a scenario that is being shrunk keeps
//! most of its faults where they were, and a run repeats to the letter.

use std::time::Duration;

/// A seed and what is rolled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5061_6365_6c69_6e65))
    }

    /// The dice of one of many things: independent of all its siblings.
    #[must_use]
    pub const fn of(self, thing: u64) -> Self {
        Self(mix(self.0.wrapping_add(mix(thing.wrapping_add(1)))))
    }

    /// A number below `bound`, which must not be zero.
    #[must_use]
    pub const fn below(self, bound: u64) -> u64 {
        self.0 % bound
    }

    /// True in so many of a thousand cases.
    #[must_use]
    pub const fn permille(self, chance: u32) -> bool {
        self.of(0x7065_726d).below(1_000) < chance as u64
    }

    /// A time in whole milliseconds from nothing to less than `bound`.
    #[must_use]
    pub fn up_to(self, bound: Duration) -> Duration {
        let millis = u64::try_from(bound.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(self.of(0x7469_6d65).below(millis.max(1)))
    }

    /// The number itself, to seed something else.
    #[must_use]
    pub const fn seed(self) -> u64 {
        self.0
    }
}

/// The finaliser of splitmix64.
const fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_depends_on_all_that_it_is_for_and_on_nothing_else() {
        let roll = |seed, thing, time| Dice::new(seed).of(thing).of(time);
        assert_eq!(roll(1, 2, 3), roll(1, 2, 3));
        assert_ne!(roll(1, 2, 3), roll(1, 3, 2));
        assert_ne!(roll(1, 2, 3), roll(2, 2, 3));
    }

    #[test]
    fn a_chance_comes_about_as_often_as_it_says() {
        let dice = Dice::new(7);
        let hits = (0..100_000).filter(|n| dice.of(*n).permille(30)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
        assert!((0..1_000).all(|n| !dice.of(n).permille(0)));
        assert!((0..1_000).all(|n| dice.of(n).permille(1_000)));
    }
}
