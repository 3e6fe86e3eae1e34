//! Waking destinations, as a hint that may be lost.

use crate::ports::{MAX_ROWS, Schedule, Wake};

/// Wakes all of them, in bounded batches. A failure is logged and left to the
/// sweep: the store knows what is due.
pub(crate) async fn wake_all(schedule: &dyn Schedule, wakes: &[Wake]) {
    for batch in wakes.chunks(MAX_ROWS) {
        if let Err(error) = schedule.wake(batch).await {
            tracing::debug!(%error, wakes = batch.len(), "wakes left to the sweep");
            return;
        }
    }
}
