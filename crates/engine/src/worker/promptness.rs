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
    claims: Mutex<VecDeque<Duration>>,
}

impl Promptness {
    pub(super) const fn new() -> Self {
        Self {
            claims: Mutex::new(VecDeque::new()),
        }
    }

    /// Notes what one claim took, and returns the bound that holds for it:
    /// that of the claims before it.
    pub(super) fn bound(&self, took: Duration) -> Duration {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let slowest = claims.iter().max().copied();
        if claims.len() == REMEMBERED {
            claims.pop_front();
        }
        claims.push_back(took);
        promptness::bound(slowest)
    }
}

#[cfg(test)]
mod tests {
    use domain::attempt::promptness::{AT_LEAST, AT_MOST};

    use super::*;

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
