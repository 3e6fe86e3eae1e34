//! The ledger and the history of limits, for the audit; and backlogs.

use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId};
use domain::time::Timestamp;
use engine::ports::{LedgerPosition, LedgerRow, LimitHistory};
use sqlx::PgPool;
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{LimitColumns, count, time, word};
use crate::row::row;

/// Which page of a ledger.
#[derive(Clone, Copy)]
pub(super) struct Page {
    pub(super) destination: DestinationId,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) after: Option<LedgerPosition>,
    pub(super) limit: u32,
}

row! {
    struct Row {
        id: i64,
        due_at: i64,
        started_at: Option<i64>,
        finished_at: Option<i64>,
        state: String,
        status: Option<i32>,
    }
}

impl Row {
    fn ledger_row(self) -> Result<LedgerRow, Failure> {
        Ok(LedgerRow {
            attempt: AttemptId(self.id),
            due_at: Timestamp::from_micros(self.due_at),
            started_at: time(self.started_at),
            finished_at: time(self.finished_at),
            state: word("attempts", "state", self.id, &self.state)?,
            status: self.status.and_then(|status| u16::try_from(status).ok()),
        })
    }
}

/// One page: starts first, and when there are no more of them, what waits.
pub(super) async fn ledger(pool: &PgPool, page: Page) -> Result<Vec<LedgerRow>, Failure> {
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    let mut rows = match page.after {
        Some(LedgerPosition {
            started_at: None, ..
        }) => Vec::new(),
        _ => started(pool, page).await?,
    };
    if rows.len() < limit {
        let left = i64::try_from(limit - rows.len()).unwrap_or(i64::MAX);
        rows.extend(waiting(pool, page, left).await?);
    }
    rows.into_iter().map(Row::ledger_row).collect()
}

/// Starts in order, merged from the two halves of their index.
async fn started(pool: &PgPool, page: Page) -> Result<Vec<Row>, Failure> {
    let (from, after_id) = match page.after {
        Some(LedgerPosition {
            started_at: Some(at),
            attempt,
        }) if at >= page.since => (at, attempt.0),
        _ => (page.since, i64::MIN),
    };
    Ok(sqlx::query_as(
        "-- ledger: started
        select x.id, micros(coalesce(x.due_at, x.created_at)) as due_at,
            micros(x.started_at) as started_at, micros(x.finished_at) as finished_at, x.state,
            x.status
        from (
            (
                select a.id, a.due_at, a.created_at, a.started_at, a.finished_at, a.state,
                    a.status
                from starts a
                where a.destination_id = $1 and not a.folded and a.carried_by is null
                    and (a.started_at, a.id) > (from_micros($2), $3)
                    and a.started_at < from_micros($4)
                order by a.started_at, a.id
                limit $5
            )
            union all
            (
                select a.id, a.due_at, a.created_at, a.started_at, a.finished_at, a.state,
                    a.status
                from starts a
                where a.destination_id = $1 and a.folded and a.carried_by is null
                    and (a.started_at, a.id) > (from_micros($2), $3)
                    and a.started_at < from_micros($4)
                order by a.started_at, a.id
                limit $5
            )
        ) x
        order by x.started_at, x.id
        limit $5",
    )
    .bind(page.destination.0)
    .bind(from.as_micros())
    .bind(after_id)
    .bind(page.until.as_micros())
    .bind(i64::from(page.limit))
    .fetch_all(pool)
    .await?)
}

/// The newest first, from the index alone.
pub(super) async fn starts_before(
    pool: &PgPool,
    destination: DestinationId,
    (since, before, limit): (Timestamp, Start, u32),
) -> Result<Vec<Start>, Failure> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "-- starts_before
        select micros(x.started_at), x.id
        from (
            (
                select a.id, a.started_at from starts a
                where a.destination_id = $1 and not a.folded and a.carried_by is null
                    and a.started_at >= from_micros($2)
                    and (a.started_at, a.id) < (from_micros($3), $4)
                order by a.started_at desc, a.id desc
                limit $5
            )
            union all
            (
                select a.id, a.started_at from starts a
                where a.destination_id = $1 and a.folded and a.carried_by is null
                    and a.started_at >= from_micros($2)
                    and (a.started_at, a.id) < (from_micros($3), $4)
                order by a.started_at desc, a.id desc
                limit $5
            )
        ) x
        order by x.started_at desc, x.id desc
        limit $5",
    )
    .bind(destination.0)
    .bind(since.as_micros())
    .bind(before.0.as_micros())
    .bind(before.1.0)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let start = |(at, id)| (Timestamp::from_micros(at), AttemptId(id));
    Ok(rows.into_iter().map(start).collect())
}

/// What has not started, by id: of each kind no more than the page has room for. What
/// has a permit is few. `(…) is true`: no plan reads all that is due, to sort it.
async fn waiting(pool: &PgPool, page: Page, limit: i64) -> Result<Vec<Row>, Failure> {
    let after = match page.after {
        Some(LedgerPosition {
            started_at: None,
            attempt,
        }) => attempt.0,
        _ => i64::MIN,
    };
    Ok(sqlx::query_as(
        "-- ledger: waiting
        select x.id, micros(coalesce(x.due_at, x.created_at)) as due_at,
            null::bigint as started_at, null::bigint as finished_at, x.state,
            null::integer as status
        from (
            (
                select a.id, a.due_at, a.created_at, a.state from deliveries a
                where a.destination_id = $1 and a.permit is null and a.due_at is null
                    and a.id + 0 > $2 and a.created_at < from_micros($3)
                order by a.id + 0
                limit $4
            )
            union all
            (
                select a.id, a.due_at, a.created_at, a.state from deliveries a
                where a.destination_id = $1 and a.permit is null and a.due_at is not null
                    and a.id + 0 > $2 and (a.due_at < from_micros($3)) is true
                order by a.id + 0
                limit $4
            )
            union all
            (
                select a.id, a.due_at, a.created_at, a.state from deliveries a
                where a.destination_id = $1 and a.permit is not null and a.carried_by is null
                    and a.state = 'admitted' and a.id + 0 > $2
                    and coalesce(a.due_at, a.created_at) < from_micros($3)
                order by a.id + 0
                limit $4
            )
        ) x
        order by x.id
        limit $4",
    )
    .bind(page.destination.0)
    .bind(after)
    .bind(page.until.as_micros())
    .bind(limit)
    .fetch_all(pool)
    .await?)
}

row! {
    struct HistoryRow {
        in_force_from: i64,
        numbers: Vec<Option<i32>>,
        unlimited: bool,
        shape: Option<String>,
        safety_margin: Option<f64>,
        margin_cap: Option<f64>,
        count: Option<String>,
        state: String,
    }
}

impl HistoryRow {
    fn entry(self, destination: DestinationId) -> Result<LimitHistory, Failure> {
        let columns = LimitColumns {
            table: "limit_history",
            row: &destination,
            numbers: &self.numbers,
            unlimited: self.unlimited,
            shape: self.shape.as_deref(),
            safety_margin: self.safety_margin,
            margin_cap: self.margin_cap,
            count: self.count.as_deref(),
        };
        Ok(LimitHistory {
            in_force_from: Timestamp::from_micros(self.in_force_from),
            effective: columns.settings()?,
            state: word("limit_history", "state", destination, &self.state)?,
        })
    }
}

/// What was in force, and when: backwards along the index, and no further than the limit.
pub(super) async fn limits_within(
    pool: &PgPool,
    destination: DestinationId,
    (since, until): (Timestamp, Option<Timestamp>),
    limit: u32,
) -> Result<Vec<LimitHistory>, Failure> {
    let rows: Vec<HistoryRow> = sqlx::query_as(
        "-- limits_within
        select micros(h.in_force_from) as in_force_from,
            array[
                h.limit_per_second, h.limit_per_minute, h.limit_per_hour, h.limit_per_day,
                h.burst, h.max_in_flight, h.allowed_per_minute
            ] as numbers,
            h.unlimited, h.shape, h.safety_margin, h.margin_cap, h.count, h.state
        from (
            (
                select * from limit_history l
                where l.destination_id = $1 and l.in_force_from > from_micros($2)
                    and l.in_force_from < coalesce(from_micros($4), 'infinity')
                order by l.in_force_from desc, l.id desc
                limit $3
            )
            union all
            (
                select * from limit_history l
                where l.destination_id = $1 and l.in_force_from <= from_micros($2)
                order by l.in_force_from desc, l.id desc
                limit 1
            )
        ) h
        order by h.in_force_from desc, h.id desc
        limit $3",
    )
    .bind(destination.0)
    .bind(since.as_micros())
    .bind(i64::from(limit))
    .bind(until.map(Timestamp::as_micros))
    .fetch_all(pool)
    .await?;
    let entries = rows.into_iter().rev().map(|row| row.entry(destination));
    entries.collect()
}

/// How many attempts wait, due or not, counted up to `cap`.
pub(super) async fn backlogs(
    pool: &PgPool,
    destinations: &[DestinationId],
    cap: u32,
) -> Result<Vec<u32>, Failure> {
    let ids: Vec<Uuid> = destinations.iter().map(|id| id.0).collect();
    let counts: Vec<i64> = sqlx::query_scalar(
        "-- backlogs
        select least(f.waiting + l.waiting, $2)
        from unnest($1::uuid[]) with ordinality as n (id, position)
        cross join lateral (
            select count(*) as waiting from (
                select from deliveries a
                where a.destination_id = n.id and a.permit is null and a.due_at is null
                limit $2
            ) x
        ) f
        cross join lateral (
            select count(*) as waiting from (
                select from deliveries a
                where a.destination_id = n.id and a.permit is null and a.due_at is not null
                limit $2
            ) x
        ) l
        order by n.position",
    )
    .bind(ids)
    .bind(i64::from(cap))
    .fetch_all(pool)
    .await?;
    Ok(counts.into_iter().map(count).collect())
}
