//! Accepting events.

use domain::destination::DestinationState;
use domain::event::{Audience, MAX_DESTINATIONS, NewEvent};
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use engine::ports::Acceptance;

use super::keys::{Key, KeyRow};
use super::rows::{Attempt, EventRow, Rows};

/// Accepts a batch; see [`engine::ports::Store::accept_events`].
pub(super) fn accept_events(
    rows: &mut Rows,
    now: Timestamp,
    events: &[NewEvent],
) -> Vec<Acceptance> {
    let mut accept = |event: &NewEvent| {
        if let Some(answer) = known_key(rows, now, event) {
            return answer;
        }
        if let Some(known) = rows.events.get(&event.id) {
            let answer = Acceptance::Accepted(went_to(rows, known, event));
            take_key(rows, now, event);
            return answer;
        }
        let answer = match event.audience {
            Audience::Destination(id) => destination(rows, event, id),
            Audience::Subscribers | Audience::SomeSubscriber => match subscribers(rows, event) {
                to if to.is_empty() && event.audience == Audience::SomeSubscriber => {
                    Acceptance::NoSubscriber
                }
                to if to.len() > MAX_DESTINATIONS => Acceptance::TooManyDestinations,
                to => Acceptance::Accepted(to),
            },
        };
        if let Acceptance::Accepted(to) = &answer {
            let ids: Vec<_> = to.iter().map(|_| rows.ledger.next_id()).collect();
            insert(rows, now, event, to, &ids);
            take_key(rows, now, event);
        }
        answer
    };
    events.iter().map(&mut accept).collect()
}

/// The answer for a key that is known and has not expired.
pub(super) fn known_key(rows: &Rows, now: Timestamp, event: &NewEvent) -> Option<Acceptance> {
    let asked = event.idempotency.as_ref()?;
    let known = rows.keys.get(&key(event)?)?;
    if known.expires_at <= now {
        return None;
    }
    if known.digest != asked.digest {
        return Some(Acceptance::KeyReused);
    }
    let went_to = |row| went_to(rows, row, event);
    Some(Acceptance::Repeated {
        event: known.event,
        destinations: rows
            .events
            .get(&known.event)
            .map(went_to)
            .unwrap_or_default(),
    })
}

/// The key that it asks for.
pub(super) fn key(event: &NewEvent) -> Option<Key> {
    let asked = event.idempotency.as_ref()?;
    Some((event.tenant, asked.key.clone()))
}

/// Whether a transaction that is open holds one of their keys.
pub(super) fn is_held_up(rows: &Rows, events: &[NewEvent]) -> bool {
    let mut keys = events.iter().filter_map(key);
    keys.any(|key| rows.keys.is_held(&key))
}

pub(super) fn take_key(rows: &mut Rows, now: Timestamp, event: &NewEvent) {
    if let Some(asked) = &event.idempotency {
        let row = KeyRow {
            digest: asked.digest,
            event: event.id,
            expires_at: now + asked.kept_for,
        };
        rows.keys.insert((event.tenant, asked.key.clone()), row);
    }
}

/// Where an event that is there went, as its own tenant may know.
fn went_to(rows: &Rows, known: &EventRow, event: &NewEvent) -> Vec<DestinationId> {
    let mut to = Vec::new();
    if known.tenant == event.tenant {
        for attempt in known.attempts.iter().filter_map(|id| rows.ledger.get(*id)) {
            if !to.contains(&attempt.destination) {
                to.push(attempt.destination);
            }
        }
    }
    to
}

fn destination(rows: &Rows, event: &NewEvent, id: DestinationId) -> Acceptance {
    let row = rows.living(id).filter(|row| row.tenant == event.tenant);
    match row.map(|row| row.state) {
        None => Acceptance::UnknownDestination,
        Some(DestinationState::Disabled) => Acceptance::DisabledDestination,
        Some(DestinationState::Active | DestinationState::Paused) => Acceptance::Accepted(vec![id]),
    }
}

fn subscribers(rows: &Rows, event: &NewEvent) -> Vec<DestinationId> {
    let wanted = event.event_type.as_deref().unwrap_or_default();
    let subscribes = |name: &String| name == wanted || name == "*";
    let subscribers = rows.destinations.iter().filter(|(_, row)| {
        row.tenant == event.tenant
            && row.deleted_at.is_none()
            && row.state != DestinationState::Disabled
            && row.event_types.iter().any(subscribes)
    });
    subscribers.map(|(id, _)| *id).collect()
}

/// Inserts an event, and its attempts under these ids.
pub(super) fn insert(
    rows: &mut Rows,
    now: Timestamp,
    event: &NewEvent,
    to: &[DestinationId],
    ids: &[AttemptId],
) {
    for (destination, id) in to.iter().zip(ids) {
        let row = rows.destinations.get(destination);
        let max_age = row.and_then(|row| row.max_age);
        let attempt = Attempt {
            expires_at: max_age.map(|age| now + age),
            payload_bytes: u32::try_from(event.payload.len()).unwrap_or(u32::MAX),
            id: *id,
            ..Attempt::waiting(event.id, *destination, now)
        };
        rows.ledger.put_in(now, attempt);
    }
    let row = EventRow {
        tenant: event.tenant,
        event_type: event.event_type.clone(),
        content_type: event.content_type.clone(),
        payload: event.payload.clone(),
        created_at: now,
        trace: event.trace.clone(),
        attempts: ids.to_vec(),
    };
    rows.events.insert(event.id, row);
}
