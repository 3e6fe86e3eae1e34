//! Operational events become events, exactly once; and are forgotten.
//!
//! One transaction locks rows that nobody holds, accepts their deliveries as
//! ingest does, and marks them: a relay that dies in the middle has done
//! nothing.

use std::time::Duration;

use domain::ids::{DestinationId, TenantId};
use domain::operations::{OperationalDestination, OperationalEvent, first_deliveries};
use domain::time::{Timestamp, micros};
use engine::ports::{Acceptance, MAX_ROWS, RelayedOperations};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::ingest;
use super::notices;
use super::rows::{count, word};
use crate::row::row;

/// One batch.
pub(super) async fn relay(pool: &PgPool, limit: u32) -> Result<RelayedOperations, Failure> {
    let mut transaction = pool.begin().await?;
    let rows = lock(&mut transaction, limit).await?;
    if rows.is_empty() {
        transaction.commit().await?;
        return Ok(RelayedOperations::default());
    }
    let told = told_of(&mut transaction, &rows).await?;
    let (taken, events) = first_deliveries(&rows, &told, MAX_ROWS);
    let relayed_now = u32::try_from(taken).unwrap_or(u32::MAX);
    let mut relayed = RelayedOperations {
        relayed: relayed_now,
        more: taken < rows.len() || relayed_now >= limit,
        ..RelayedOperations::default()
    };
    for answer in ingest::accept_within(&mut transaction, &events).await? {
        if let Acceptance::Accepted(destinations) = answer {
            relayed.accepted += 1;
            relayed.destinations.extend(destinations);
        }
    }
    notices::leave(&mut transaction, &rows[..taken]).await?;
    mark(&mut transaction, &rows[..taken]).await?;
    transaction.commit().await?;
    relayed.destinations.sort_unstable();
    relayed.destinations.dedup();
    Ok(relayed)
}

row! {
    /// A row of `operational_events`.
    pub(super) struct Row {
        id: i64,
        created_at: i64,
        event_type: String,
        destination_id: Option<Uuid>,
        tenant_id: Uuid,
        details: String,
    }
}

impl From<Row> for OperationalEvent {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            created_at: Timestamp::from_micros(row.created_at),
            event_type: row.event_type,
            destination: row.destination_id.map(DestinationId),
            tenant: TenantId(row.tenant_id),
            details: row.details,
        }
    }
}

async fn lock(connection: &mut PgConnection, limit: u32) -> Result<Vec<OperationalEvent>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(
        "-- relay_operational_events: lock
        select o.id, micros(o.created_at) as created_at, o.event_type, o.destination_id,
            o.tenant_id, o.details
        from operational_events o
        where o.relayed_at is null
        order by o.id
        limit $1
        for update skip locked",
    )
    .bind(i64::from(limit))
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(OperationalEvent::from).collect())
}

async fn mark(connection: &mut PgConnection, rows: &[OperationalEvent]) -> Result<(), Failure> {
    sqlx::query(
        "-- relay_operational_events: mark
        update operational_events o set relayed_at = clock_timestamp() where o.id = any ($1)",
    )
    .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

row! {
    /// A row of `operational_destinations`.
    pub(super) struct ToldRow {
        position: i64,
        destination_id: Uuid,
        tenant_id: Uuid,
        scope: String,
        event_types: Vec<String>,
    }
}

impl ToldRow {
    pub(super) fn into_domain(self) -> Result<OperationalDestination, Failure> {
        const TABLE: &str = "operational_destinations";
        let id = self.destination_id;
        Ok(OperationalDestination {
            destination: DestinationId(id),
            tenant: TenantId(self.tenant_id),
            scope: word(TABLE, "scope", id, &self.scope)?,
            event_types: self.event_types,
            position: self.position,
        })
    }
}

/// Who may be told of these: those of their tenants and of the installation.
async fn told_of(
    connection: &mut PgConnection,
    news: &[OperationalEvent],
) -> Result<Vec<OperationalDestination>, Failure> {
    let rows: Vec<ToldRow> = sqlx::query_as(
        "-- relay_operational_events: told_of
        select o.position, o.destination_id, o.tenant_id, o.scope, o.event_types
        from operational_destinations o
        where o.tenant_id = any ($1) or o.scope = 'installation'
        order by o.position",
    )
    .bind(news.iter().map(|one| one.tenant.0).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(ToldRow::into_domain).collect()
}

/// Deletes what is old of the oldest. What is young is not locked for it.
pub(super) async fn trim(pool: &PgPool, kept: Duration, limit: u32) -> Result<u32, Failure> {
    let deleted = sqlx::query(
        "-- trim_operational_events
        with clock as materialized (select clock_timestamp() as now),
        oldest as materialized (
            select o.id from operational_events o order by o.id limit $2
        ),
        old as materialized (
            select o.id
            from oldest
            join operational_events o on o.id = oldest.id
            cross join clock
            where o.relayed_at is not null
                and o.created_at < clock.now - $1::bigint * interval '1 microsecond'
            order by o.id
            for update of o skip locked
        )
        delete from operational_events o using old where o.id = old.id",
    )
    .bind(micros(kept))
    .bind(i64::from(limit))
    .execute(pool)
    .await?;
    Ok(count(
        i64::try_from(deleted.rows_affected()).unwrap_or(i64::MAX),
    ))
}
