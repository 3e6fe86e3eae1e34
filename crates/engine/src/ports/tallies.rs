//! What came of each destination's requests, counted in slots.

use std::time::Duration;

use async_trait::async_trait;
use domain::health::{Slot, TOLD_AFTER, Tally, Took};
use domain::ids::DestinationId;
use domain::time::Timestamp;

use super::error::{CatalogError, StoreError};
use super::operations::Told;

/// Counts of the ledger, so that an hour, a day, a week and a month are read from a few rows.
/// They are made behind the path of events, which knows nothing of them.
#[async_trait]
pub trait Tallies: Send + Sync {
    /// One step: counts what has started at the next destinations since they were
    /// counted last, and tells owners whose destination begins to fail or has recovered
    /// ([`domain::health::Failing`]). One transaction, so each start is counted once,
    /// whoever dies. A step that is not due, or that somebody else is taking, does
    /// nothing. What has no outcome yet is counted when it has one, and what started
    /// after it as well.
    ///
    /// Costs a few index probes for each destination that was admitted since, and as
    /// many rows as the rules say. A start that commits later than
    /// [`TallyRules::settled`] after its time is not counted.
    async fn tally(&self, rules: &TallyRules) -> Result<Tallied, StoreError>;

    /// A destination's slots since then that have any requests, in their order.
    async fn tallied(
        &self,
        destination: DestinationId,
        slot: Slot,
        since: Timestamp,
    ) -> Result<Vec<TalliedSlot>, CatalogError>;

    /// What came of these destinations' requests, in the order of the ids. At most
    /// [`MAX_GLANCED`](super::MAX_GLANCED).
    async fn outcomes(&self, destinations: &[DestinationId])
    -> Result<Vec<Outcomes>, CatalogError>;
}

/// How the tally goes round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyRules {
    /// Between the end of one round and the beginning of the next.
    pub every: Duration,
    /// Between two steps of a round.
    pub pace: Duration,
    /// What has started so long ago is in the ledger for certain.
    pub settled: Duration,
    /// Destinations that one step passes by.
    pub page: u32,
    /// Destinations that one step looks at.
    pub looks: u32,
    /// Starts that it counts at each: more than ever start at one instant.
    pub starts: u32,
    /// Each look has found a destination failing for so long before its owner is told.
    pub told_after: Duration,
    /// Slots that are over and old and that it deletes.
    pub trimmed: u32,
}

impl Default for TallyRules {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(10),
            pace: Duration::from_millis(500),
            settled: Duration::from_secs(10),
            page: 1_000,
            looks: 100,
            starts: 5_000,
            told_after: TOLD_AFTER,
            trimmed: 1_000,
        }
    }
}

/// A destination that was not admitted for so long before it was counted last has
/// started nothing since: a permit ends much sooner.
pub const TALLIED_BEFORE: Duration = Duration::from_secs(300);

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tallied {
    /// It was due, and nobody else's.
    pub stepped: bool,
    /// There is more to count, and the next step is due soon.
    pub more: bool,
    /// Requests that were counted.
    pub counted: u64,
    /// What owners were told.
    pub news: Vec<Told>,
}

/// Requests in one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TalliedSlot {
    /// Its end, exclusive.
    pub ends_at: Timestamp,
    /// What came of them.
    pub tally: Tally,
    /// How long those that were answered took.
    pub took: Took,
}

/// What came of a destination's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcomes {
    /// Which.
    pub destination: DestinationId,
    /// In the last hour, in whole slots of [`Slot::Minutes`].
    pub hour: Tally,
    /// In the last day, likewise.
    pub day: Tally,
    /// When the last one started that failed, and its status.
    pub last_failure: Option<(Timestamp, Option<u16>)>,
}
