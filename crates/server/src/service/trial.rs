//! An event that somebody sends to try a destination, and the answer that it got.

use std::time::Duration;

use bytes::Bytes;
use domain::attempt::AttemptState;
use domain::event::Timing;
use domain::ids::{DestinationId, EventId};
use domain::ingest_limit::IngestLimit;
use domain::trace::Incoming;
use engine::ports::AttemptView;
use serde_json::json;
use tokio::time::{Instant, sleep_until};

use super::{EventDraft, Service, ServiceError};

/// The type of an event that is an example of none.
const TRIAL: &str = "paceline.test";

/// How often it is looked for the answer.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The longest that is waited for it: receivers that answer do so by then, unless the
/// destination's limit or what waits before it says otherwise.
pub const LONGEST_TRIAL: Duration = Duration::from_secs(5);

/// An event that tries a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The event.
    pub event: EventId,
    /// The first try, if its outcome was there in time.
    pub attempt: Option<AttemptView>,
}

impl Service {
    /// Sends an event to try a destination, as any other and within its limits: the
    /// catalogue's example of a type, or a small one of a type of its own. Whoever sends
    /// it, it is handed in within the limit of the tenant that has the destination.
    pub async fn try_destination(
        &self,
        to: DestinationId,
        event_type: Option<&str>,
    ) -> Result<EventId, ServiceError> {
        self.destination(to).await?;
        let (event_type, payload) = match event_type {
            Some(name) => (name, self.example(name).await?),
            None => {
                let payload = json!({"test": true, "destination_id": to});
                (TRIAL, payload.to_string())
            }
        };
        let draft = EventDraft {
            destination: Some(to),
            event_type: Some(event_type.to_owned()),
            strict: false,
            content_type: None,
            payload: Bytes::from(payload),
            payload_field: "payload",
            idempotency_key: None,
            trace: Incoming::Absent,
            timing: Timing::default(),
        };
        Ok(self.as_its_tenant().await?.accept_event(draft).await?.id)
    }

    /// The same, by the tenant's own limit for events: an operator's key came with
    /// another one, and a page with none.
    async fn as_its_tenant(&self) -> Result<Self, ServiceError> {
        let tenant = self.tenants.tenant(self.tenant).await?;
        let limit = tenant.effective_ingest_per_second;
        Ok(Self {
            ingest_limit: limit.and_then(IngestLimit::of),
            ..self.clone()
        })
    }

    /// The catalogue's of this type.
    async fn example(&self, event_type: &str) -> Result<String, ServiceError> {
        let none = || ServiceError::invalid("type", "has no example in the catalogue");
        match self.event_type(event_type).await {
            Ok(found) => found.example.ok_or_else(none),
            Err(ServiceError::NotFound(_)) => Err(none()),
            Err(error) => Err(error),
        }
    }

    /// What comes of it: the first try that has an outcome, waited for so long and at most
    /// [`LONGEST_TRIAL`]. Each look is a read of the tenant's; between two of them it is in
    /// nobody's way.
    pub async fn tried(&self, event: EventId, patience: Duration) -> Result<Trial, ServiceError> {
        let until = Instant::now() + patience.min(LONGEST_TRIAL);
        let trial = |attempt| Ok(Trial { event, attempt });
        loop {
            let place = self.read().await?;
            let (_, attempts) = self.event(event).await?;
            drop(place);
            // What was not sent is tried again at once.
            let is_over =
                |one: &AttemptView| one.state.is_final() && one.state != AttemptState::NotSent;
            let answered = attempts.into_iter().find(is_over);
            if answered.is_some() || Instant::now() >= until {
                return trial(answered);
            }
            sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
        }
    }
}
