//! How long backlogs are, for whoever has to say no.

use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{BacklogBounds, Backlogged, CountPace, Standing};
use domain::event::NewEvent;

use super::error::StoreError;
use super::store::Acceptance;

/// The most backlogs that are told of, besides the whole: the longest.
pub const MAX_STANDINGS: usize = 1_000;

/// Where backlogs stood when they were last counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The whole first, then those that refuse, the longest first.
    pub standings: Vec<Standing>,
    /// How long ago the count began: what was committed before is in it.
    pub age: Duration,
    /// From the begin of that count to the next.
    pub wait: Duration,
}

/// Counts backlogs. Nothing on the way of an event writes for it: what is
/// counted are the indexes that hold what is pending.
#[async_trait]
pub trait Backpressure: Send + Sync {
    /// Where backlogs stand, by [`domain::backpressure::stand`].
    ///
    /// They are counted anew if that is due by `pace` and nobody else is at it:
    /// one reading of what is pending. Else it is what the last count said, as
    /// always without a pace. Those of `passed` are taken for such as refused
    /// before: the caller found them above their mark.
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError>;

    /// How those of these events are answered whose idempotency keys are taken
    /// already, as [`Store::accept_events`](super::Store::accept_events) would;
    /// `None` for the others. Accepts nothing.
    async fn repeated(&self, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError>;
}
