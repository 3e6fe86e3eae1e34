//! Clients: they hand events in, and repeat what was not answered.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use domain::event::{Audience, IDEMPOTENCY_KEY_KEPT, Idempotency, NewEvent, Timing};
use domain::ids::{DestinationId, EventId};
use domain::time::Timestamp;
use engine::ports::{Acceptance, DEFAULT_TENANT};
use tokio::time::sleep;
use uuid::Uuid;

use super::{ForLater, Front, World, destination};
use crate::intake::Answered;
use crate::scenario::What;
use crate::witness::Witness;

/// Between two tries of a client whose request was not answered.
const CLIENT_PAUSE: Duration = Duration::from_millis(400);

/// How long a client that is refused waits at most, whatever it is told.
pub(super) const CLIENT_PATIENCE: Duration = Duration::from_secs(5);

/// The last bits of an event's id: which try of its client made it.
const TRIES_BITS: u32 = 32;

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
        let (handing, for_later) = (Arc::clone(&self.handing), Arc::clone(&self.for_later));
        let store = self.parts.store.clone();
        let note_left = move |left: u32| {
            let left = Duration::from_millis(every_ms) * left;
            let mut handing = handing.lock().unwrap_or_else(PoisonError::into_inner);
            handing.insert(operation, left);
        };
        self.clients.spawn(async move {
            let mut next = 0;
            while next < events {
                note_left(events - next);
                let end = events.min(next + at_once);
                let event = |n, tried| {
                    let timing = Timing {
                        urgent: is_urgent(operation, n),
                        ..timing(&for_later, to, store.now())
                    };
                    let event = NewEvent {
                        timing,
                        ..event(operation, n, tried, to)
                    };
                    witness.is_for(to, event.id, timing.deliver_at);
                    event
                };
                hand_in(&front, &witness, (next..end).collect(), event).await;
                next = end;
                sleep(Duration::from_millis(every_ms)).await;
            }
            note_left(0);
        });
    }
}

impl World<'_> {
    /// Clients hand in events for later from now on, or at once again.
    pub(super) fn hand_in_for_later(&mut self, what: &What) {
        let What::Later {
            destination: to,
            by_ms,
            lives_ms,
        } = what
        else {
            return;
        };
        let (by, lives) = (
            Duration::from_millis(*by_ms),
            Duration::from_millis(*lives_ms),
        );
        let lives = (!lives.is_zero()).then_some(lives);
        let mut for_later = (self.for_later.lock()).unwrap_or_else(PoisonError::into_inner);
        for_later.insert(destination(*to), (by, lives));
        self.parts.around.counts.note("events for later");
    }
}

/// Every other event of some clients, whichever they are and however often it is handed in.
const fn is_urgent(operation: u32, number: u32) -> bool {
    operation.is_multiple_of(3) && number.is_multiple_of(2)
}

/// When an event that is handed in now is for, and until when.
fn timing(for_later: &ForLater, to: DestinationId, now: Timestamp) -> Timing {
    let for_later = for_later.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((by, lives)) = for_later.get(&to) else {
        return Timing::default();
    };
    Timing {
        deliver_at: (!by.is_zero()).then(|| now + *by),
        expires_at: lives.map(|lives| now + *by + lives),
        ..Timing::default()
    }
}

/// A client's event, as the API takes it in: with another id at every try. What
/// stays is the client's own name for it.
fn event(operation: u32, number: u32, tried: u32, to: DestinationId) -> NewEvent {
    let named = u128::from(operation) << 32 | u128::from(number);
    let tried = u128::from(tried);
    NewEvent {
        id: EventId(Uuid::from_u128(named << TRIES_BITS | tried)),
        tenant: DEFAULT_TENANT,
        audience: Audience::Destination(to),
        event_type: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from_static(b"{}"),
        idempotency: Some(Idempotency {
            key: format!("{named}"),
            digest: [0; 32],
            kept_for: IDEMPOTENCY_KEY_KEPT,
        }),
        trace: None,
        timing: Timing::default(),
    }
}

/// One request, with the same keys until all of it is answered. What is refused
/// is handed in again, as late as the API asks for, or as the client can wait.
async fn hand_in(
    front: &Front,
    witness: &Witness,
    mut numbers: Vec<u32>,
    event: impl Fn(u32, u32) -> NewEvent,
) {
    for tried in 0.. {
        let events: Vec<_> = numbers.iter().map(|n| event(*n, tried)).collect();
        let api = front.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut pause = CLIENT_PAUSE;
        if let Some(api) = api
            && let Ok(answers) = api.accept(events.clone()).await
        {
            let mut refused = Vec::new();
            for ((number, event), answer) in numbers.iter().zip(&events).zip(answers) {
                match answer {
                    Answered::Accepted(answer) => note(witness, event, &answer),
                    Answered::Refused(after) => {
                        refused.push(*number);
                        pause = pause.max(after.min(CLIENT_PATIENCE));
                    }
                }
            }
            numbers = refused;
        }
        if numbers.is_empty() {
            return;
        }
        sleep(pause).await;
    }
}

fn note(witness: &Witness, event: &NewEvent, answer: &Acceptance) {
    let id = match answer {
        Acceptance::Repeated { event, .. } => *event,
        _ => event.id,
    };
    for destination in answer.destinations() {
        witness.accepted(*destination, id);
    }
}

/// The client's name for an event, whatever try made it.
pub(crate) fn named_by_client(event: EventId) -> u128 {
    event.0.as_u128() >> TRIES_BITS
}
