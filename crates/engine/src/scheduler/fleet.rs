//! How many permits the live workers have room for.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ports::Store;

/// How long a count of the fleet is good for. Between two counts only this
/// scheduler's own permits are subtracted, so several schedulers together can
/// overshoot by what they admit in this time. A count that is used up is not
/// kept for so long: a run may come because a place has just come free.
const FRESH: Duration = Duration::from_millis(100);

/// Room for outstanding permits, counted now and then, estimated in between.
pub(super) struct Room {
    store: Arc<dyn Store>,
    permits_per_place: u32,
    left: u32,
    counted_at: Option<Instant>,
}

impl Room {
    pub(super) fn new(store: Arc<dyn Store>, permits_per_place: u32) -> Self {
        Self {
            store,
            permits_per_place,
            left: 0,
            counted_at: None,
        }
    }

    /// Counts the fleet again, unless the last count is still good.
    pub(super) async fn count(&mut self) {
        let stale = self.counted_at.is_none_or(|at| at.elapsed() > FRESH);
        if !stale && self.left > 0 {
            return;
        }
        match self.store.fleet().await {
            Ok(fleet) => {
                let most = fleet.places.saturating_mul(self.permits_per_place);
                self.left = most.saturating_sub(fleet.outstanding);
                self.counted_at = Some(Instant::now());
            }
            Err(error) => tracing::debug!(%error, "fleet not counted"),
        }
    }

    /// How many permits may be added now. Overload waits in the backlog, and
    /// does not expire in the queue.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }

    /// Notes permits that this scheduler admitted since.
    pub(super) fn used(&mut self, permits: usize) {
        let permits = u32::try_from(permits).unwrap_or(u32::MAX);
        self.left = self.left.saturating_sub(permits);
    }
}
