//! The way in, as the API's is: what a backlog is too long for is refused, what
//! was accepted before is answered as it was then, and the rest is ingest's.

use std::sync::Arc;
use std::time::Duration;

use domain::event::NewEvent;
use engine::backpressure::Pressure;
use engine::ingest::Ingest;
use engine::ports::{Acceptance, Backpressure, DEFAULT_TENANT};
use tokio::time::timeout;

use crate::faulty::FaultyStore;
use crate::sabotage::Sabotage;

/// A client does not wait for longer: a process that was killed answers nothing.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// The front of one life of the API. Clones share it.
#[derive(Clone)]
pub(crate) struct Intake {
    pub(crate) ingest: Ingest,
    /// If backlogs are bounded.
    pub(crate) bounded: Option<Bounded>,
}

/// What is asked before an event is taken.
#[derive(Clone)]
pub(crate) struct Bounded {
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) store: Arc<FaultyStore>,
    /// Of the API.
    pub(crate) life: u64,
}

/// What a client is told of one event.
#[derive(Debug, Clone)]
pub(crate) enum Answered {
    /// By ingest.
    Accepted(Acceptance),
    /// 429, and when to come back.
    Refused(Duration),
}

/// The request was not answered, or not as a whole.
pub(crate) struct Unanswered;

impl Intake {
    /// Each is answered by itself, in order.
    pub(crate) async fn accept(&self, events: Vec<NewEvent>) -> Result<Vec<Answered>, Unanswered> {
        let Some(bounded) = &self.bounded else {
            let accepted = self.ingest(events).await?;
            return Ok(accepted.into_iter().map(Answered::Accepted).collect());
        };
        let answers = bounded.refused(&events).await?;
        let wanted = (events.iter().zip(&answers)).filter(|(_, answer)| answer.is_none());
        let wanted: Vec<_> = wanted.map(|(event, _)| event.clone()).collect();
        bounded.witness_let_in(&wanted);
        if bounded.store.gate.has(Sabotage::TakesRefused) {
            self.ingest(events.clone()).await?;
        }
        let accepted = match wanted.is_empty() {
            true => Vec::new(),
            false => self.ingest(wanted).await?,
        };
        bounded.note(&accepted);
        let mut accepted = accepted.into_iter().map(Answered::Accepted);
        let answers = answers
            .into_iter()
            .map(|one| one.or_else(|| accepted.next()));
        answers.collect::<Option<_>>().ok_or(Unanswered)
    }

    async fn ingest(&self, events: Vec<NewEvent>) -> Result<Vec<Acceptance>, Unanswered> {
        let accepted = self.ingest.accept(events).await;
        accepted.map_err(|_unavailable| Unanswered)
    }
}

impl Bounded {
    /// The answers of those that are not taken.
    async fn refused(&self, events: &[NewEvent]) -> Result<Vec<Option<Answered>>, Unanswered> {
        let refusals: Vec<_> = (events.iter())
            .map(|event| self.pressure.refusal(event))
            .collect();
        let asked = (events.iter().zip(&refusals)).filter(|(_, refusal)| refusal.is_some());
        let asked: Vec<_> = asked.map(|(event, _)| event.clone()).collect();
        if asked.is_empty() {
            return Ok(vec![None; events.len()]);
        }
        let repeated = timeout(ANSWERED_WITHIN, self.store.repeated(&asked)).await;
        let Ok(Ok(repeated)) = repeated else {
            return Err(Unanswered);
        };
        let mut repeated = repeated.into_iter();
        let counts = &self.store.gate.around.counts;
        let answers = events.iter().zip(refusals).map(|(event, refusal)| {
            let refusal = refusal?;
            if let Some(known) = repeated.next().flatten() {
                counts.note("a repeated request beside a full backlog");
                return Some(Answered::Accepted(known));
            }
            counts.note("event refused for a backlog");
            self.store
                .witness
                .refused(self.life, event.id, refusal.whose);
            Some(Answered::Refused(refusal.retry_after))
        });
        Ok(answers.collect())
    }

    fn witness_let_in(&self, events: &[NewEvent]) {
        let pending = self.store.pending();
        self.store.witness.let_in(self.life, events, &pending);
    }

    fn note(&self, accepted: &[Acceptance]) {
        for acceptance in accepted {
            if let Acceptance::Accepted(destinations) = acceptance {
                self.pressure.accepted(DEFAULT_TENANT, destinations);
                self.store.witness.noted(self.life, destinations);
            }
        }
    }
}
