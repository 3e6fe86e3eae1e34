//! How long backlogs are, for whoever has to say no.

use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{BacklogBounds, Backlogged, Standing};

use super::store::StoreError;

/// The most backlogs that are told of, besides the whole: the longest.
pub const MAX_STANDINGS: usize = 10_000;

/// Counts backlogs. Nothing on the way of an event writes for it: what is
/// counted are the indexes that hold what is pending.
#[async_trait]
pub trait Backpressure: Send + Sync {
    /// Where backlogs stand, by [`domain::backpressure::stand`]: the whole
    /// first, then those that refuse, the longest first.
    ///
    /// They are counted anew if the last count is older than `if_older_than`
    /// and nobody else is at it; one transaction, and one reading of what is
    /// pending. Else it is what the last count said. Those of `passed` are
    /// taken for such as refused before: the caller found them above their mark.
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        if_older_than: Duration,
    ) -> Result<Vec<Standing>, StoreError>;
}
