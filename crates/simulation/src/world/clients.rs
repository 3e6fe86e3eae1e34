//! Clients: they hand events in, and repeat what was not answered.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, NewEvent};
use domain::ids::{DestinationId, EventId};
use engine::ports::{Acceptance, DEFAULT_TENANT};
use tokio::time::sleep;
use uuid::Uuid;

use super::{Front, World};
use crate::witness::Witness;

/// Between two tries of a client whose request was not answered.
const CLIENT_PAUSE: Duration = Duration::from_millis(400);

/// Events in one request at most.
const REQUEST_EVENTS: u32 = 100;

impl World<'_> {
    /// A client hands events in, until each is answered.
    pub(super) fn begin_client(
        &mut self,
        operation: u32,
        to: DestinationId,
        events: u32,
        every_ms: u64,
    ) {
        let (front, witness) = (Arc::clone(&self.front), self.parts.witness.clone());
        let at_once = if every_ms == 0 { REQUEST_EVENTS } else { 1 };
        self.clients.spawn(async move {
            let mut next = 0;
            while next < events {
                let end = events.min(next + at_once);
                let request = (next..end).map(|n| event(operation, n, to)).collect();
                hand_in(&front, &witness, request).await;
                next = end;
                sleep(Duration::from_millis(every_ms)).await;
            }
        });
    }
}

fn event(operation: u32, number: u32, to: DestinationId) -> NewEvent {
    NewEvent {
        id: EventId(Uuid::from_u128(
            u128::from(operation) << 32 | u128::from(number),
        )),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
    }
}

/// One request, with the same ids until it is answered.
async fn hand_in(front: &Front, witness: &Witness, events: Vec<NewEvent>) {
    loop {
        let api = front.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(api) = api
            && let Ok(answers) = api.accept(events.clone()).await
        {
            for (event, answer) in events.iter().zip(answers) {
                if let Acceptance::Accepted(destinations) = answer {
                    for destination in destinations {
                        witness.accepted(destination, event.id);
                    }
                }
            }
            return;
        }
        sleep(CLIENT_PAUSE).await;
    }
}
