//! Who may change a destination: whoever holds it, or anybody where nobody does.

use engine::ports::{Managed, Manager};
use sqlx::PgConnection;

use super::failure::Failure;

/// Refuses a change of what is not there, or held by somebody else, and keeps it so
/// until the transaction of the change ends: nobody else changes it, and nobody
/// takes it over. The first lock is the one that the change needs anyhow; the
/// holder is read after it, in a statement of its own.
pub(super) async fn check(connection: &mut PgConnection, of: Managed<'_>) -> Result<(), Failure> {
    let there: Option<bool> = sqlx::query_scalar(
        "-- change: whose
        select true from destinations
        where id = $1 and tenant_id = $2 and deleted_at is null
        for no key update",
    )
    .bind(of.destination.0)
    .bind(of.tenant.0)
    .fetch_optional(&mut *connection)
    .await?;
    there.ok_or(Failure::NotFound("destination"))?;
    // What was released is locked as well.
    let row: Option<(String, Option<String>)> = sqlx::query_as(
        "-- change: who holds it
        select resource, uid from destination_managers where destination_id = $1 for update",
    )
    .bind(of.destination.0)
    .fetch_optional(connection)
    .await?;
    let holder = row.and_then(|(resource, uid)| uid.map(|uid| Manager { resource, uid }));
    of.check(holder.as_ref()).map_err(Failure::Refused)
}
