//! Events and attempts, as people look at them.

use domain::ids::{AttemptId, DestinationId, EventId, ReplayId, TenantId};
use domain::response_headers::ResponseHeaders;
use domain::time::Timestamp;
use engine::ports::{AttemptView, EventSummary};
use sqlx::PgPool;
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{count, time, word};
use crate::row::row;

/// The newest attempts that are shown of one event.
const MAX_ATTEMPTS: i64 = 1_000;

row! {
    pub(super) struct Row {
        id: i64,
        event_id: Uuid,
        destination_id: Uuid,
        try_number: i32,
        state: String,
        dead_letter: bool,
        created_at: i64,
        due_at: Option<i64>,
        expires_at: Option<i64>,
        admitted_at: Option<i64>,
        started_at: Option<i64>,
        finished_at: Option<i64>,
        status: Option<i32>,
        error: Option<String>,
        response_body: Option<Vec<u8>>,
        response_headers: Option<String>,
        replay_id: Option<Uuid>,
    }
}

/// The columns of a [`Row`], of attempts that a statement calls `a`; of a body as much as
/// people are shown.
macro_rules! attempt_columns {
    () => {
        "a.id, a.event_id, a.destination_id, a.try_number, a.state, a.dead_letter,
            micros(a.created_at) as created_at, micros(a.admitted_at) as admitted_at,
            micros(a.started_at) as started_at, micros(a.finished_at) as finished_at,
            micros(a.due_at) as due_at, micros(a.expires_at) as expires_at,
            a.status, a.error, substring(a.response_body for 1024) as response_body,
            a.response_headers, a.replay_id"
    };
}
pub(super) use attempt_columns;

impl Row {
    pub(super) fn view(self) -> Result<AttemptView, Failure> {
        let body = self.response_body;
        Ok(AttemptView {
            id: AttemptId(self.id),
            event: EventId(self.event_id),
            destination: DestinationId(self.destination_id),
            try_number: count(i64::from(self.try_number)),
            state: word("attempts", "state", self.id, &self.state)?,
            dead_letter: self.dead_letter,
            created_at: Timestamp::from_micros(self.created_at),
            due_at: time(self.due_at),
            expires_at: time(self.expires_at),
            admitted_at: time(self.admitted_at),
            started_at: time(self.started_at),
            finished_at: time(self.finished_at),
            status: self.status.and_then(|status| u16::try_from(status).ok()),
            error: self.error,
            response_body: body.map(|body| String::from_utf8_lossy(&body).into_owned()),
            response_headers: ResponseHeaders::stored(self.response_headers),
            replay: self.replay_id.map(ReplayId),
        })
    }
}

/// An event and its attempts, the oldest first.
pub(super) async fn event(
    pool: &PgPool,
    tenant: TenantId,
    id: EventId,
) -> Result<Option<(EventSummary, Vec<AttemptView>)>, Failure> {
    let found: Option<(Option<String>, String, i32, bool, i64)> = sqlx::query_as(
        "-- event
        select e.event_type, e.content_type, octet_length(e.payload), e.urgent,
            micros(e.created_at)
        from events e where e.id = $1 and e.day = event_day($1) and e.tenant_id = $2",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let Some((event_type, content_type, payload_bytes, urgent, created_at)) = found else {
        return Ok(None);
    };
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "-- event: attempts
        select ",
        attempt_columns!(),
        "
        from newest_of($1, 9223372036854775807, $2) a
        order by a.id desc"
    ))
    .bind(id.0)
    .bind(MAX_ATTEMPTS)
    .fetch_all(pool)
    .await?;
    let summary = EventSummary {
        id,
        event_type,
        content_type,
        payload_bytes: count(i64::from(payload_bytes)),
        urgent,
        created_at: Timestamp::from_micros(created_at),
    };
    let attempts: Result<_, _> = rows.into_iter().rev().map(Row::view).collect();
    Ok(Some((summary, attempts?)))
}

/// A destination's attempts, the newest first; also of a deleted one.
pub(super) async fn attempts(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    before: Option<AttemptId>,
    limit: u32,
) -> Result<Option<Vec<AttemptView>>, Failure> {
    let known: bool = sqlx::query_scalar(
        "-- attempts: known
        select exists (select from destinations d where d.id = $1 and d.tenant_id = $2)",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_one(pool)
    .await?;
    if !known {
        return Ok(None);
    }
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "-- attempts
        select ",
        attempt_columns!(),
        "
        from (
            (
                select * from ledger a
                where hash_of(a.destination_id) = hash_of($2) and a.destination_id = $2
                    and a.tenant_id = $1 and a.id + 0 < $3
                order by a.id + 0 desc limit $4
            )
            union all
            (
                select * from deliveries a
                where a.destination_id = $2 and a.permit is null and a.due_at is null
                    and a.id + 0 < $3
                order by a.id + 0 desc limit $4
            )
            union all
            (
                select * from deliveries a
                where a.destination_id = $2 and a.permit is null and a.due_at is not null
                    and a.id + 0 < $3
                order by a.id + 0 desc limit $4
            )
            union all
            (
                select * from deliveries a
                where a.destination_id = $2 and a.permit is not null and a.carried_by is null
                    and a.id + 0 < $3
                order by a.id + 0 desc limit $4
            )
            union all
            (
                select * from deliveries a
                where a.destination_id = $2 and a.carried_by is not null and a.id + 0 < $3
                order by a.id + 0 desc limit $4
            )
        ) a
        order by a.id desc
        limit $4"
    ))
    .bind(tenant.0)
    .bind(id.0)
    .bind(before.map_or(i64::MAX, |before| before.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter()
        .map(Row::view)
        .collect::<Result<_, _>>()
        .map(Some)
}
