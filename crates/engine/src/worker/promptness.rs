//! How long a worker may take from before its claim to the first byte.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The bound is never below this: a loaded machine's ordinary hiccup.
const AT_LEAST: Duration = Duration::from_millis(100);

/// Nor above this, however slow the claims are: the wire's windows are exact
/// for their period minus this.
pub const AT_MOST: Duration = Duration::from_millis(500);

/// Claims that the measure looks back on.
const REMEMBERED: usize = 1_000;

/// The bound, from what claims took lately: twice their 99.9th percentile.
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
        // Of a thousand, the 99.9th percentile is the largest.
        let slowest = claims.iter().max().copied().unwrap_or(AT_MOST);
        if claims.len() == REMEMBERED {
            claims.pop_front();
        }
        claims.push_back(took);
        (slowest * 2).clamp(AT_LEAST, AT_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_slowest_claim_within_its_limits() {
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
