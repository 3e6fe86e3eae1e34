//! Which traces attempts belong to; asked only where they are recorded.

use async_trait::async_trait;
use domain::ids::{AttemptId, EventId};
use domain::trace::TraceContext;
use engine::ports::{StoreError, TraceBook, Traced};
use sqlx::PgPool;
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};

#[async_trait]
impl TraceBook for PostgresStore {
    async fn traces(&self, attempts: &[AttemptId]) -> Result<Vec<Traced>, StoreError> {
        Ok(retried(|| traces(&self.pool, attempts)).await?)
    }
}

async fn traces(pool: &PgPool, attempts: &[AttemptId]) -> Result<Vec<Traced>, Failure> {
    let ids: Vec<i64> = attempts.iter().map(|attempt| attempt.0).collect();
    let rows: Vec<(i64, Uuid, String)> = sqlx::query_as(
        "-- traces
        select a.id, a.event_id, e.trace
        from unnest($1::bigint[]) as n (id)
        join attempts a on a.id = any (array[n.id])
        cross join lateral (
            select e.trace from events e
            where e.id = a.event_id and e.day = event_day(a.event_id)
            limit 1
        ) e
        where e.trace is not null",
    )
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let traced = |(attempt, event, trace): (i64, Uuid, String)| {
        Some(Traced {
            attempt: AttemptId(attempt),
            event: EventId(event),
            trace: TraceContext::from_stored(&trace)?,
        })
    };
    Ok(rows.into_iter().filter_map(traced).collect())
}
