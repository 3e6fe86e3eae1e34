//! Dead letters, as people look at them.

use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterPosition, DestinationPage,
    MAX_EXAMINED, MAX_EXAMINED_EACH,
};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use super::events::{Row as AttemptRow, attempt_columns};
use super::failure::Failure;
use super::rows::time;
use crate::row::row;

row! {
    struct Row {
        event_type: Option<String>,
        died_at: i64,
        replayed_at: Option<i64>,
        ..attempt: AttemptRow,
    }
}

impl Row {
    fn dead_letter(self) -> Result<DeadLetter, Failure> {
        Ok(DeadLetter {
            attempt: self.attempt.view()?,
            event_type: self.event_type,
            died_at: Timestamp::from_micros(self.died_at),
            replayed_at: time(self.replayed_at),
        })
    }
}

/// What a dead letter's row is made of.
const COLUMNS: &str = concat!(
    attempt_columns!(),
    ", e.event_type,
    micros(coalesce(a.finished_at, a.started_at)) as died_at,
    micros(a.replayed_at) as replayed_at"
);

/// Its event, in the one partition of its day.
const EVENT: &str = "select e.event_type from events e
    where e.id = a.event_id and e.day = event_day(a.event_id) limit 1";

/// The rows that a page may look at, by one of the two indexes: `$2` is the
/// destination, if there is one.
fn examined(filter: &DeadLetterFilter) -> String {
    let of = match filter.destination {
        Some(_) => "a.destination_id = $2 and a.tenant_id::text = $1::uuid::text",
        None => "a.tenant_id = $1 and $2::uuid is null",
    };
    format!(
        "select a.id, coalesce(a.finished_at, a.started_at) as died
        from ledger a
        where {of} and a.dead_letter and a.replayed_at is null
            and coalesce(a.finished_at, a.started_at) >= from_micros($3)
            and coalesce(a.finished_at, a.started_at) < from_micros($4)
            and (coalesce(a.finished_at, a.started_at), a.id + 0) < (from_micros($5), $6)
        order by coalesce(a.finished_at, a.started_at) desc, a.id + 0 desc
        limit $7"
    )
}

/// The latest time that Postgres and we agree on: the year 2255.
const LATEST: i64 = 1 << 53;

/// Where a page begins and ends, as the statements take it.
struct Walk {
    tenant: TenantId,
    from: i64,
    before: i64,
    after: (i64, i64),
    examined: i64,
}

impl Walk {
    fn of(
        tenant: TenantId,
        filter: &DeadLetterFilter,
        after: Option<DeadLetterPosition>,
        limit: u32,
    ) -> Self {
        let bound = |at: Option<Timestamp>, other| at.map_or(other, Timestamp::as_micros);
        Self {
            tenant,
            from: bound(filter.died_from, 0),
            before: bound(filter.died_before, LATEST),
            after: after.map_or((LATEST, i64::MAX), |after| {
                (after.died_at.as_micros(), after.attempt.0)
            }),
            examined: i64::from(MAX_EXAMINED.max(limit)),
        }
    }
}

/// A page, those that died last first.
pub(super) async fn page(
    pool: &PgPool,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DeadLetterPosition>,
    limit: u32,
) -> Result<DeadLetterPage, Failure> {
    let walk = Walk::of(tenant, filter, after, limit);
    let examined = examined(filter);
    let sql = format!(
        "-- dead_letters
        with examined as materialized ({examined})
        select {COLUMNS}
        from examined x
        join ledger a on a.id = x.id
        left join lateral ({EVENT}) e on true
        where ($8::integer is null or a.status = $8) and ($9::text is null or e.event_type = $9)
        order by x.died desc, x.id desc
        limit $10"
    );
    let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(walk.tenant.0)
        .bind(filter.destination.map(|id| id.0))
        .bind(walk.from)
        .bind(walk.before)
        .bind(walk.after.0)
        .bind(walk.after.1)
        .bind(walk.examined)
        .bind(filter.status.map(i32::from))
        .bind(filter.event_type.as_deref())
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    let found: Result<Vec<DeadLetter>, _> = rows.into_iter().map(Row::dead_letter).collect();
    let dead_letters = found?;
    let full = dead_letters.len() >= limit as usize;
    let next = match dead_letters.last().filter(|_| full) {
        Some(last) => Some(DeadLetterPosition {
            died_at: last.died_at,
            attempt: last.attempt.id,
        }),
        None => last_examined(pool, filter, &walk).await?,
    };
    Ok(DeadLetterPage { dead_letters, next })
}

/// The last row that a page has looked at, if it did not look at all.
async fn last_examined(
    pool: &PgPool,
    filter: &DeadLetterFilter,
    walk: &Walk,
) -> Result<Option<DeadLetterPosition>, Failure> {
    let examined = examined(filter);
    let sql = format!(
        "-- dead_letters: last_examined
        with examined as materialized ({examined})
        select micros(x.died), x.id from examined x
        where (select count(*) from examined) >= $7
        order by x.died, x.id limit 1"
    );
    let last: Option<(i64, i64)> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(walk.tenant.0)
        .bind(filter.destination.map(|id| id.0))
        .bind(walk.from)
        .bind(walk.before)
        .bind(walk.after.0)
        .bind(walk.after.1)
        .bind(walk.examined)
        .fetch_optional(pool)
        .await?;
    Ok(last.map(|(died_at, id)| DeadLetterPosition {
        died_at: Timestamp::from_micros(died_at),
        attempt: AttemptId(id),
    }))
}

/// One, replayed or not.
pub(super) async fn one(
    pool: &PgPool,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<DeadLetter, Failure> {
    let sql = format!(
        "-- dead_letter
        select {COLUMNS}
        from ledger a left join lateral ({EVENT}) e on true
        where a.id = $1 and a.tenant_id::text = $2 and a.dead_letter"
    );
    let row: Option<Row> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(attempt.0)
        .bind(tenant.to_string())
        .fetch_optional(pool)
        .await?;
    row.ok_or(Failure::NotFound("dead letter"))?.dead_letter()
}

/// The next destinations, and whether each has some: an index's first entries
/// of each, in an order that keeps the planner from reading all of them.
const DESTINATIONS: &str = "-- destinations_with_dead_letters
    with looked_at as materialized (
        select d.id
        from destinations d
        where d.tenant_id = $1 and d.deleted_at is null and d.id > $2
        order by d.id
        limit $7
    )
    select l.id,
        exists (
            select from (
                select a.event_id, a.status
                from ledger a
                where a.destination_id = l.id and a.dead_letter and a.replayed_at is null
                    and coalesce(a.finished_at, a.started_at) >= from_micros($3)
                    and coalesce(a.finished_at, a.started_at) < from_micros($4)
                order by coalesce(a.finished_at, a.started_at), a.id + 0
                limit $8
            ) examined
            cross join lateral (
                select e.event_type from events e
                where e.id = examined.event_id and e.day = event_day(examined.event_id)
                limit 1
            ) e
            where ($5::integer is null or examined.status = $5)
                and ($6::text is null or e.event_type = $6)
        )
        or exists (
            select from ledger a
            where a.destination_id = l.id and a.dead_letter and a.replayed_at is null
                and coalesce(a.finished_at, a.started_at) >= from_micros($3)
                and coalesce(a.finished_at, a.started_at) < from_micros($4)
            order by coalesce(a.finished_at, a.started_at), a.id + 0
            offset $8 limit 1
        )
    from looked_at l
    order by l.id";

/// Destinations that have some.
pub(super) async fn destinations(
    pool: &PgPool,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DestinationId>,
    limit: u32,
) -> Result<DestinationPage, Failure> {
    let bound = |at: Option<Timestamp>, other| at.map_or(other, Timestamp::as_micros);
    let looked_at: Vec<(Uuid, bool)> = sqlx::query_as(DESTINATIONS)
        .bind(tenant.0)
        .bind(after.map_or(Uuid::nil(), |after| after.0))
        .bind(bound(filter.died_from, 0))
        .bind(bound(filter.died_before, LATEST))
        .bind(filter.status.map(i32::from))
        .bind(filter.event_type.as_deref())
        .bind(i64::from(limit))
        .bind(i64::from(MAX_EXAMINED_EACH))
        .fetch_all(pool)
        .await?;
    let looked_at = (looked_at.into_iter()).map(|(id, has_some)| (DestinationId(id), has_some));
    Ok(DestinationPage::of(looked_at.collect(), limit))
}
