//! What claims took lately, and the bound that [`domain::attempt::promptness`] makes
//! of it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::attempt::promptness;

/// Claims that the measure looks back on.
const REMEMBERED: usize = 1_000;

/// What claims took lately.
pub(super) struct Promptness {
    claims: Mutex<Claims>,
}

/// The slowest claims: each that no later one has outdone, by its number. So the
/// first is the slowest of all, and noting one costs the same however many are
/// remembered.
struct Claims {
    count: usize,
    slowest: VecDeque<(usize, Duration)>,
}

impl Claims {
    /// Notes one; what the slowest of those before it took.
    fn note(&mut self, took: Duration) -> Option<Duration> {
        let slowest = self.slowest.front().map(|(_, took)| *took);
        while self.slowest.back().is_some_and(|(_, last)| *last <= took) {
            self.slowest.pop_back();
        }
        self.count += 1;
        self.slowest.push_back((self.count, took));
        let is_over = |(number, _): &(usize, Duration)| number + REMEMBERED <= self.count;
        if self.slowest.front().is_some_and(is_over) {
            self.slowest.pop_front();
        }
        slowest
    }
}

impl Promptness {
    pub(super) const fn new() -> Self {
        Self {
            claims: Mutex::new(Claims {
                count: 0,
                slowest: VecDeque::new(),
            }),
        }
    }

    /// Notes what one claim took, and returns the bound that holds for it:
    /// that of the claims before it.
    pub(super) fn bound(&self, took: Duration) -> Duration {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        promptness::bound(claims.note(took))
    }
}

#[cfg(test)]
mod tests {
    use domain::attempt::promptness::{AT_LEAST, AT_MOST};

    use super::*;

    /// As a look through all that are remembered says.
    #[test]
    fn the_slowest_of_the_last_thousand_is_known_without_looking_through_them() {
        let mut claims = Claims {
            count: 0,
            slowest: VecDeque::new(),
        };
        let mut all = Vec::new();
        let mut word = 1_u64;
        for number in 0..20_000_u64 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Runs of claims that get slower, and of such that get faster.
            let micros = match number / 2_500 % 3 {
                0 => word >> 54,
                1 => number % 2_500,
                _ => 2_500 - number % 2_500,
            };
            let took = Duration::from_micros(micros);
            let last = &all[all.len().saturating_sub(REMEMBERED)..];
            assert_eq!(claims.note(took), last.iter().max().copied(), "{number}");
            assert!(claims.slowest.len() <= REMEMBERED);
            all.push(took);
        }
    }

    #[test]
    fn the_bound_is_that_of_the_claims_before() {
        let promptness = Promptness::new();
        assert_eq!(promptness.bound(Duration::from_millis(1)), AT_MOST);
        assert_eq!(promptness.bound(Duration::from_millis(150)), AT_LEAST);
        assert_eq!(
            promptness.bound(Duration::from_secs(9)),
            Duration::from_millis(300)
        );
        assert_eq!(promptness.bound(Duration::from_millis(1)), AT_MOST);
    }
}
