//! What became of events that were accepted before.

use domain::ids::{DestinationId, EventId, TenantId};
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{all, word};

const KNOWN_DESTINATIONS: &str = "
    -- accept_events: where an event that is there went
    select destination_id from attempts
    where event_id = ?1 and tenant_id = ?2
    group by destination_id order by min(id)";

/// Where an event that is there went, as its own tenant may know.
pub(super) fn went_to(
    tx: &Transaction<'_>,
    event: EventId,
    tenant: TenantId,
) -> Result<Vec<DestinationId>, Fault> {
    let params = [event.to_string(), tenant.to_string()];
    all(tx, KNOWN_DESTINATIONS, params, |row| {
        word(row, 0, ("attempts", "destination_id"))
    })
}
