//! A destination's health: looked at, set, and forgotten.

use domain::destination::DestinationState;
use domain::ids::DestinationId;
use engine::ports::{BreakerChange, HealthView};

use super::{Described, Service, ServiceError};

/// The largest number that a breaker's settings take, as the constraints say.
const MAX_SETTING: u32 = 1_000_000_000;

/// What people look at together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateAndHealth {
    pub state: DestinationState,
    pub view: HealthView,
}

impl Service {
    pub async fn health(&self, id: DestinationId) -> Result<StateAndHealth, ServiceError> {
        let state = self.destination(id).await?.destination.state;
        let views = self.reading.catalog.health(self.tenant, &[id]).await?;
        let view = views.into_iter().next();
        let view = view.ok_or(ServiceError::NotFound("destination"))?;
        Ok(StateAndHealth { state, view })
    }

    pub async fn change_breaker(
        &self,
        id: DestinationId,
        change: BreakerChange,
    ) -> Result<StateAndHealth, ServiceError> {
        let numbers = [
            ("opens_after_failures", change.failures),
            (
                "opens_after_failing_for_seconds",
                change.failing_for_seconds,
            ),
            ("disable_after_seconds", change.disable_after_seconds),
        ];
        for (field, number) in numbers {
            if number.flatten().is_some_and(|number| number > MAX_SETTING) {
                let problem = format!("must be at most {MAX_SETTING}");
                return Err(ServiceError::invalid(field, problem));
            }
        }
        self.catalog
            .change_breaker(self.tenant, id, &change)
            .await?;
        self.health(id).await
    }

    /// Active, and well until it shows otherwise.
    pub async fn resume(&self, id: DestinationId) -> Result<Described, ServiceError> {
        self.catalog.resume(self.tenant, id).await?;
        self.look_now(id).await;
        self.destination(id).await
    }
}
