//! The way in: how fast a tenant may hand events in, whether there is room for
//! them, and then ingest.

use std::sync::Arc;

use domain::event::NewEvent;
use engine::backpressure::Pressure;
use engine::ingest::Ingest;
use engine::ports::Acceptance;

use super::ServiceError;
use super::rate::{IngestRates, Limited};

/// Takes events in, within bounds; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    ingest: Ingest,
    pressure: Arc<Pressure>,
    rates: Arc<IngestRates>,
}

impl Intake {
    /// Within these bounds.
    #[must_use]
    pub const fn new(ingest: Ingest, pressure: Arc<Pressure>, rates: Arc<IngestRates>) -> Self {
        Self {
            ingest,
            pressure,
            rates,
        }
    }

    /// How fast tenants hand events in.
    #[must_use]
    pub const fn rates(&self) -> &Arc<IngestRates> {
        &self.rates
    }

    /// Each is answered by itself, in order. After an `Err` that is neither
    /// "too fast" nor "overloaded" it is not known whether they were written.
    pub(super) async fn accept(
        &self,
        whose: Limited,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Result<Acceptance, ServiceError>>, ServiceError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        (self.rates.take(whose, count))
            .map_err(|retry_after| ServiceError::TooFast { retry_after })?;
        let refusals: Vec<Option<ServiceError>> = (events.iter())
            .map(|event| self.pressure.refusal(event).map(ServiceError::from))
            .collect();
        let wanted: Vec<NewEvent> = (events.into_iter().zip(&refusals))
            .filter(|(_, refusal)| refusal.is_none())
            .map(|(event, _)| event)
            .collect();
        let accepted = match wanted.is_empty() {
            true => Vec::new(),
            false => self.ingest.accept(wanted).await?,
        };
        for acceptance in &accepted {
            if let Acceptance::Accepted(destinations) = acceptance {
                self.pressure.accepted(whose.tenant, destinations);
            }
        }
        let missing = || ServiceError::Internal("the store left an event unanswered".to_owned());
        let mut accepted = accepted.into_iter();
        let answers = refusals.into_iter().map(|refusal| match refusal {
            Some(refusal) => Err(refusal),
            None => accepted.next().ok_or_else(missing),
        });
        Ok(answers.collect())
    }
}
