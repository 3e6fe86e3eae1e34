//! Whose changes were looked at a moment ago, in this process.
//!
//! A change that the store has marked is found by the sweep; that the scheduler is woken
//! as well saves the moment until then. Whoever changes a destination a hundred times a
//! second would have it run as often, each time a transaction for nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::ids::DestinationId;
use engine::recent::Recent;
use engine::sweep::SweepOptions;
use tokio::time::Instant;

/// Destinations that are remembered; of others each change is looked at.
const MOST: usize = 10_000;

/// When each was looked at.
pub(super) struct LookedAt {
    /// Between two looks: as long as the sweep takes to find what was marked meanwhile.
    every: Duration,
    last: Mutex<Recent<DestinationId, Instant>>,
}

impl Default for LookedAt {
    fn default() -> Self {
        Self {
            every: SweepOptions::default().every,
            last: Mutex::new(Recent::new(MOST)),
        }
    }
}

impl LookedAt {
    /// Whether it was not looked at a moment ago; now it is.
    pub(super) fn is_new(&self, id: DestinationId) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = last.get(&id).is_none_or(|last| now - *last >= self.every);
        if is_new {
            last.insert(id, now);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_is_looked_at_at_once_and_again_when_the_sweep_may_have_been_there() {
        let (looked_at, every) = (LookedAt::default(), SweepOptions::default().every);
        let [one, other] = [1, 2].map(|id| DestinationId(Uuid::from_u128(id)));
        assert!(looked_at.is_new(one) && looked_at.is_new(other));
        for _ in 0..3 {
            tokio::time::advance(every / 4).await;
            assert!(!looked_at.is_new(one), "the sweep will");
        }
        // However often it asked meanwhile.
        tokio::time::advance(every / 4).await;
        assert!(looked_at.is_new(one));
        assert!(!looked_at.is_new(one));
    }
}
