//! The way in: how fast a tenant may hand events in, whether there is room for
//! them, and then ingest. An event is charged by its deliveries: by as many as are
//! expected, before it is written, and by as many as they were, after it.

use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use engine::backpressure::Pressure;
use engine::ingest::{Ingest, IngestError};
use engine::ports::{Acceptance, Backpressure};

use super::ServiceError;
use super::rate::{IngestRates, Limited};

/// Deliveries of a request that are written before backlogs are asked again: some ten
/// thousand passes no bound by much, and an ordinary request is one part.
const PART: u32 = 10_000;

/// How often, and after which pause, a later part is handed in where there is no room
/// on the way in.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

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

    /// Whether the tenant may hand in anything just now; else its request of so many events
    /// is refused, whatever they are.
    pub(super) fn may_hand_in(&self, whose: Limited, events: usize) -> Result<(), ServiceError> {
        let events = u32::try_from(events).unwrap_or(u32::MAX);
        self.take(whose, (0, events))
    }

    /// Takes so many events of the tenant's rate, for a request of so many.
    fn take(&self, whose: Limited, (taken, of): (u32, u32)) -> Result<(), ServiceError> {
        self.rates.take(whose, taken).map_err(|retry_after| {
            let reason = match whose.is_of_the_process() {
                true => "too-fast",
                false => "tenant-too-fast",
            };
            metrics::counter!("paceline_ingest_refused_total", "reason" => reason)
                .increment(of.into());
            ServiceError::TooFast { retry_after }
        })
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
        let answers = answers.into_iter().map(|answer| match answer {
            Some(answer) => answer,
            None => accepted.next().unwrap_or_else(|| Err(unanswered())),
        });
        Ok(answers.collect())
    }

    /// The answers of those that are not taken for a backlog. A request that was
    /// accepted before is answered as it was then, by its key, if its tenant may hand
    /// anything in.
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

    /// At the tenant's rate; and a little at a time, so that a backlog's bound is passed
    /// by one part at most of each request that is on its way, however many deliveries
    /// the request turns out to be.
    async fn ingest(
        &self,
        whose: Limited,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Result<Acceptance, ServiceError>>, ServiceError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let expected = self.ingest.expected(&events).max(count);
        self.take(whose, (count, count))?;
        self.rates.charge(whose, expected - count);
        let mut answers = Vec::with_capacity(events.len());
        let mut cost = 0_u32;
        let mut rest = events;
        while !rest.is_empty() {
            let part = self.ingest.fit(&rest, PART);
            let left = rest.split_off(part);
            let part = std::mem::replace(&mut rest, left);
            match self.write(&part, answers.is_empty()).await {
                Ok(written) => {
                    cost =
                        (written.iter()).fold(cost, |cost, one| cost.saturating_add(charged(one)));
                    answers.extend(written);
                }
                Err(error) if answers.is_empty() => {
                    if matches!(error, ServiceError::Overloaded(_)) {
                        self.rates.give_back(whose, expected);
                    }
                    return Err(error);
                }
                // What was written before is answered; of these it is not known.
                Err(error) => {
                    let left = part.len() + rest.len();
                    answers.extend(std::iter::repeat_n(Err(error), left));
                    break;
                }
            }
        }
        self.rates.charge(whose, cost.saturating_sub(expected));
        self.rates.give_back(whose, expected.saturating_sub(cost));
        Ok(answers)
    }

    /// One part: the first, for which there was room just now, or another, as far as
    /// backlogs have room for it. For that one there may be no room on the way in just
    /// now: it waits a little.
    async fn write(
        &self,
        part: &[NewEvent],
        is_first: bool,
    ) -> Result<Vec<Result<Acceptance, ServiceError>>, ServiceError> {
        let answers = match is_first {
            true => vec![None; part.len()],
            false => self.refused(part).await?,
        };
        let wanted = || {
            let wanted = part.iter().zip(&answers);
            let wanted = wanted.filter(|(_, answer)| answer.is_none());
            wanted.map(|(event, _)| event.clone()).collect()
        };
        let mut tries = if is_first { 1 } else { TRIES };
        let mut accepted = loop {
            tries -= 1;
            match self.ingest.accept(wanted()).await {
                Err(IngestError::Full) if tries > 0 => tokio::time::sleep(PAUSE).await,
                answered => break answered?.into_iter(),
            }
        };
        let answers = part.iter().zip(answers).map(|(event, answer)| {
            if let Some(answer) = answer {
                return answer;
            }
            let accepted = accepted.next().ok_or_else(unanswered)?;
            if let Acceptance::Accepted(destinations) = &accepted {
                self.pressure.accepted(event.tenant, destinations);
            }
            Ok(accepted)
        });
        Ok(answers.collect())
    }
}

/// What an event costs of its tenant's rate: its deliveries, and one at least.
fn charged(answer: &Result<Acceptance, ServiceError>) -> u32 {
    match answer {
        Ok(Acceptance::Accepted(to)) => u32::try_from(to.len().max(1)).unwrap_or(u32::MAX),
        Ok(_) => 1,
        Err(_) => 0,
    }
}

fn unanswered() -> ServiceError {
    ServiceError::Internal("the store left an event unanswered".to_owned())
}
