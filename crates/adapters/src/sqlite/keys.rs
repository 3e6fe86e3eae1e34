//! Idempotency keys: taken in the step that accepts their event.

use domain::event::{Idempotency, NewEvent};
use domain::ids::{DestinationId, EventId, TenantId};
use domain::time::{Timestamp, micros};
use engine::ports::Acceptance;
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{execute, first, word};

const KNOWN: &str = "
    -- accept_events: what a key stands for
    select event_id, digest from idempotency_keys
    where tenant_id = ?1 and key = ?2 and expires_at > ?3";

const TAKE: &str = "
    -- accept_events: the key of an event that was accepted; an expired one is free
    insert or replace into idempotency_keys (tenant_id, key, digest, event_id, expires_at)
    values (?1, ?2, ?3, ?4, ?5)";

/// The answer for a key that is known and has not expired, by where its event went.
pub(super) fn known(
    (tx, now): (&Transaction<'_>, Timestamp),
    tenant: TenantId,
    asked: &Idempotency,
    went_to: impl FnOnce(EventId) -> Result<Vec<DestinationId>, Fault>,
) -> Result<Option<Acceptance>, Fault> {
    let params = (tenant.to_string(), &asked.key, now.as_micros());
    let found = first(tx, KNOWN, params, |row| {
        let event: EventId = word(row, 0, ("idempotency_keys", "event_id"))?;
        let digest: Vec<u8> = row.get(1)?;
        Ok((event, digest))
    })?;
    let Some((event, digest)) = found else {
        return Ok(None);
    };
    if digest != asked.digest {
        return Ok(Some(Acceptance::KeyReused));
    }
    let destinations = went_to(event)?;
    Ok(Some(Acceptance::Repeated {
        event,
        destinations,
    }))
}

/// From now on the key stands for this event.
pub(super) fn take(
    tx: &Transaction<'_>,
    now: Timestamp,
    event: &NewEvent,
    asked: &Idempotency,
) -> Result<(), Fault> {
    let row = (
        event.tenant.to_string(),
        &asked.key,
        &asked.digest[..],
        event.id.to_string(),
        now.as_micros().saturating_add(micros(asked.kept_for)),
    );
    execute(tx, TAKE, row).map(drop)
}
