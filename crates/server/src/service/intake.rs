//! The way in: how fast a tenant may hand events in, whether there is room for
//! them, and then ingest. An event is charged by its deliveries: by as many as are
//! expected, before it is written, and by as many as they were, after it.

use std::sync::Arc;

use domain::event::NewEvent;
use engine::backpressure::Pressure;
use engine::ingest::{Ingest, IngestError};
use engine::ports::{Acceptance, Backpressure};

use super::ServiceError;
use super::rate::{IngestRates, Limited};

/// Takes events in, within bounds; cheap to clone.
#[derive(Clone)]
pub struct Intake {
    ingest: Ingest,
    pressure: Arc<Pressure>,
    backpressure: Arc<dyn Backpressure>,
    rates: Arc<IngestRates>,
}

impl Intake {
    /// Within these bounds; `backpressure` knows what was accepted before.
    #[must_use]
    pub fn new(
        ingest: Ingest,
        pressure: Arc<Pressure>,
        backpressure: Arc<dyn Backpressure>,
        rates: IngestRates,
    ) -> Self {
        Self {
            ingest,
            pressure,
            backpressure,
            rates: Arc::new(rates),
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
        let answers = self.refused(&events).await?;
        let wanted: Vec<NewEvent> = (events.into_iter().zip(&answers))
            .filter(|(_, answer)| answer.is_none())
            .map(|(event, _)| event)
            .collect();
        let mut accepted = self.ingest(whose, wanted).await?.into_iter();
        let missing = || ServiceError::Internal("the store left an event unanswered".to_owned());
        let answers = answers.into_iter().map(|answer| match answer {
            Some(answer) => answer,
            None => accepted.next().ok_or_else(missing),
        });
        Ok(answers.collect())
    }

    /// The answers of those that are not taken for a backlog. A request that was
    /// accepted before is answered as it was then, by its key.
    async fn refused(
        &self,
        events: &[NewEvent],
    ) -> Result<Vec<Option<Result<Acceptance, ServiceError>>>, ServiceError> {
        let refusals: Vec<_> = (events.iter())
            .map(|event| self.pressure.refusal(event))
            .collect();
        let mut asked = Vec::new();
        for (event, refusal) in events.iter().zip(&refusals) {
            if refusal.is_some() && event.idempotency.is_some() {
                asked.push(event.clone());
            }
        }
        let repeated = match asked.is_empty() {
            true => Vec::new(),
            false => self.backpressure.repeated(&asked).await?,
        };
        let mut repeated = repeated.into_iter();
        let answers = events.iter().zip(refusals).map(|(event, refusal)| {
            let refusal = refusal?;
            let known = (event.idempotency.as_ref()).and_then(|_| repeated.next().flatten());
            if known.is_none() {
                metrics::counter!("paceline_ingest_refused_total", "reason" => "backlog-full")
                    .increment(1);
            }
            Some(known.ok_or_else(|| refusal.into()))
        });
        Ok(answers.collect())
    }

    /// At the tenant's rate.
    async fn ingest(
        &self,
        whose: Limited,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Acceptance>, ServiceError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let expected = self.ingest.expected(whose.tenant, &events).max(count);
        self.rates.take(whose, count).map_err(|retry_after| {
            metrics::counter!("paceline_ingest_refused_total", "reason" => "too-fast")
                .increment(count.into());
            ServiceError::TooFast { retry_after }
        })?;
        self.rates.charge(whose, expected - count);
        let accepted = self.ingest.accept(events).await.inspect_err(|error| {
            if matches!(error, IngestError::Full | IngestError::Stopped) {
                self.rates.give_back(whose, expected);
            }
        })?;
        let mut cost = 0_usize;
        for acceptance in &accepted {
            cost += match acceptance {
                Acceptance::Accepted(destinations) => {
                    self.pressure.accepted(whose.tenant, destinations);
                    destinations.len().max(1)
                }
                _ => 1,
            };
        }
        let cost = u32::try_from(cost).unwrap_or(u32::MAX);
        self.rates.charge(whose, cost.saturating_sub(expected));
        self.rates.give_back(whose, expected.saturating_sub(cost));
        Ok(accepted)
    }
}
