//! What became of events that were accepted before.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;

/// Where events that are there already went, and whose they are; only those
/// that are there.
pub(super) async fn went_to(
    connection: &mut PgConnection,
    events: Vec<Uuid>,
) -> Result<HashMap<Uuid, (Uuid, Vec<Uuid>)>, Failure> {
    if events.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(Uuid, Uuid, Vec<Uuid>)> = sqlx::query_as(
        "-- accept_events: went_to
        select e.id, e.tenant_id, array(
            select a.destination_id from (
                select l.destination_id, l.id from ledger_of(e.id) l
                union all
                select d.destination_id, d.id from deliveries_of(e.id) d
            ) a
            group by a.destination_id order by min(a.id)
        )
        from unnest($1::uuid[]) as n (id)
        cross join lateral (
            select e.id, e.tenant_id from events e
            where e.id = n.id and e.day = event_day(n.id)
            limit 1
        ) e",
    )
    .bind(events)
    .fetch_all(connection)
    .await?;
    Ok((rows.into_iter())
        .map(|(id, tenant, destinations)| (id, (tenant, destinations)))
        .collect())
}
