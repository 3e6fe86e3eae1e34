//! Idempotency keys: taken by the statement that inserts their events, so that
//! two requests with one key wait for each other at its primary key. Those who
//! waited find the key taken, and look here what it stands for.

use std::collections::HashMap;

use domain::event::NewEvent;
use domain::ids::{DestinationId, EventId};
use engine::ports::Acceptance;
use sqlx::PgConnection;
use uuid::Uuid;

use super::accepted::went_to;
use super::failure::Failure;

/// What keys stand for.
#[derive(Default)]
pub(super) struct Known(HashMap<(Uuid, String), (Vec<u8>, Uuid)>);

/// Looks up the keys of these events. Asks nothing if none has one.
pub(super) async fn known<'a>(
    connection: &mut PgConnection,
    events: impl Iterator<Item = &'a NewEvent>,
) -> Result<Known, Failure> {
    let (mut tenants, mut keys) = (Vec::new(), Vec::new());
    for event in events {
        if let Some(asked) = &event.idempotency {
            tenants.push(event.tenant.0);
            keys.push(asked.key.as_str());
        }
    }
    if keys.is_empty() {
        return Ok(Known::default());
    }
    let rows: Vec<(Uuid, String, Vec<u8>, Uuid)> = sqlx::query_as(
        "-- accept_events: known_keys
        select k.tenant_id, k.key, k.digest, k.event_id
        from unnest($1::uuid[], $2::text[]) as n (tenant_id, key)
        join idempotency_keys k on k.tenant_id = any (array[n.tenant_id]) and k.key = any (array[n.key])
        where k.expires_at > clock_timestamp()",
    )
    .bind(tenants)
    .bind(keys)
    .fetch_all(connection)
    .await?;
    let known = rows.into_iter();
    let known = known.map(|(tenant, key, digest, event)| ((tenant, key), (digest, event)));
    Ok(Known(known.collect()))
}

impl Known {
    /// The event that this one's key stands for, if it asks for the same;
    /// `None` if its key is free.
    pub(super) fn of(&self, event: &NewEvent) -> Option<Result<EventId, Acceptance>> {
        let asked = event.idempotency.as_ref()?;
        let (digest, known) = self.0.get(&(event.tenant.0, asked.key.clone()))?;
        Some(if digest[..] == asked.digest {
            Ok(EventId(*known))
        } else {
            Err(Acceptance::KeyReused)
        })
    }
}

/// Answers those of `events` whose keys are known, by their place.
pub(super) async fn answer(
    connection: &mut PgConnection,
    events: &[NewEvent],
    known: &Known,
) -> Result<HashMap<usize, Acceptance>, Failure> {
    let mut answers = HashMap::new();
    let mut repeated = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match known.of(event) {
            None => {}
            Some(Err(refused)) => drop(answers.insert(place, refused)),
            Some(Ok(first)) => repeated.push((place, first)),
        }
    }
    if repeated.is_empty() {
        return Ok(answers);
    }
    let ids = repeated.iter().map(|(_, first)| first.0).collect();
    let went_to = went_to(connection, ids).await?;
    for (place, event) in repeated {
        let ids = went_to.get(&event.0).map(|(_, ids)| ids.as_slice());
        let destinations = ids
            .unwrap_or_default()
            .iter()
            .copied()
            .map(DestinationId)
            .collect();
        let answer = Acceptance::Repeated {
            event,
            destinations,
        };
        answers.insert(place, answer);
    }
    Ok(answers)
}
