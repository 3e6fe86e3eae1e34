//! How a destination has done over a day and over a month: how much was sent, how much
//! of it succeeded, and how long answers took.

use std::time::Duration;

use domain::health::{Slot, Tally, Took};
use domain::ids::DestinationId;
use domain::time::Timestamp;

use super::{Service, ServiceError};

/// Read in slots of five minutes.
const DAY: Duration = Duration::from_secs(86_400);

/// Read in whole days of UTC.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

/// What came of a destination's requests until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistics {
    /// The store's clock.
    pub now: Timestamp,
    /// In the last 24 hours, and in what else the slot at their edge holds.
    pub day: Counted,
    /// In the last 30 days, and in the rest of the day at their edge.
    pub month: Counted,
}

/// Requests of some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// How they ended.
    pub tally: Tally,
    /// How long those took that were answered.
    pub took: Took,
}

impl Service {
    /// How one of the tenant's destinations has done: 320 rows of tallies at most,
    /// whatever was sent. They are counted some ten seconds behind the ledger.
    pub async fn statistics(&self, id: DestinationId) -> Result<Statistics, ServiceError> {
        (self.reading.catalog).destination(self.tenant, id).await?;
        let now = self.reading.overview.now().await?;
        self.statistics_at(id, now).await
    }

    /// The same back from this time, where it is known whose the destination is.
    pub(crate) async fn statistics_at(
        &self,
        id: DestinationId,
        now: Timestamp,
    ) -> Result<Statistics, ServiceError> {
        let since = async |slot, span| -> Result<Counted, ServiceError> {
            let mut counted = Counted::default();
            for slot in self.reading.tallies.tallied(id, slot, now - span).await? {
                counted.tally += slot.tally;
                counted.took += slot.took;
            }
            Ok(counted)
        };
        Ok(Statistics {
            now,
            day: since(Slot::Minutes, DAY).await?,
            month: since(Slot::Day, MONTH).await?,
        })
    }
}
