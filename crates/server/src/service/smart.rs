//! Smart delivery: looked at, and turned on or off.

use domain::ids::DestinationId;
use domain::smart::{Effective, Reason, SmartDelivery};
use domain::time::Timestamp;
use engine::ports::{SmartChange, SmartView};

use super::{Service, ServiceError};

/// The most entries of history in one answer, the newest.
pub const MAX_HISTORY: u32 = 100;

/// What people look at together.
#[derive(Debug, Clone, PartialEq)]
pub struct SmartAndHistory {
    pub view: SmartView,
    /// The newest first.
    pub history: Vec<SmartChange>,
}

impl Service {
    /// What is lower than what is configured now; the store hears of a lower
    /// configured limit with the next outcome.
    pub async fn smart_delivery(&self, id: DestinationId) -> Result<SmartAndHistory, ServiceError> {
        let catalog = &self.reading.catalog;
        let mut view = catalog.smart_delivery(self.tenant, id).await?;
        let configured = catalog.destination(self.tenant, id).await?.effective;
        view.effective = view.effective.below(&configured.policy());
        if view.effective == Effective::default() {
            view.reason = Reason::Configured;
        }
        let history = self
            .reading
            .catalog
            .smart_history(id, Timestamp::MAX, MAX_HISTORY)
            .await?;
        Ok(SmartAndHistory { view, history })
    }

    pub async fn set_smart_delivery(
        &self,
        id: DestinationId,
        to: SmartDelivery,
    ) -> Result<SmartAndHistory, ServiceError> {
        self.catalog.set_smart_delivery(self.tenant, id, to).await?;
        self.look_now(id).await;
        self.smart_delivery(id).await
    }
}
