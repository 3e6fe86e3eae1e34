//! Attempts that somebody looks for, of all destinations of a tenant or of one.

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::search::{Examined, Sought, each_place, newest};
use domain::time::{Timestamp, micros};
use engine::ports::{
    ATTEMPTS_IN_ORDER, AttemptFilter, AttemptPage, AttemptView, CatalogError,
    MAX_ATTEMPTS_EXAMINED, MAX_PLACES,
};
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use super::events::{Row, attempt_columns};
use super::failure::Failure;
use super::found_events::sought;

/// Whether the attempt `x` is looked for, and whether it is so old that no older one is.
const WANTED: &str = "
        ($7::text is null or x.state = $7)
        and ($5::bigint is null or x.created_at >= from_micros($5))
        and ($6::bigint is null or x.created_at < from_micros($6))
        and ($10::integer is null or coalesce(x.status = $10 or x.status / 100 = $10, false))
        and ($11::text is null or strpos(x.event_id::text, $11) > 0)
        and ($8::text is null or exists (
            select from events e
            where e.id = x.event_id and e.day = event_day(x.event_id) and e.event_type = $8
        )) as wanted,
        coalesce(x.created_at < from_micros($5 - $9), false) as is_too_old";

/// The newest of each place before `$3`, which names a day at the latest.
fn newest_of_places() -> String {
    let of = |part: &str| {
        format!(
            "(
                select a.id, a.event_id, a.state, a.status, a.created_at from {part}
                    and a.id + 0 < bound.id
                order by a.id + 0 desc limit $4
            )"
        )
    };
    let parts = [
        "ledger a
                where hash_of(a.destination_id) = hash_of(p.id) and a.destination_id = p.id
                    and a.tenant_id = $1 and a.id < bound.id",
        "deliveries a
                where a.destination_id = p.id and a.permit is null and a.due_at is null",
        "deliveries a
                where a.destination_id = p.id and a.permit is null and a.due_at is not null",
        "deliveries a
                where a.destination_id = p.id and a.permit is not null and a.carried_by is null",
        "deliveries a
                where a.destination_id = p.id and a.carried_by is not null",
    ];
    let parts = parts.map(of).join(" union all ");
    format!(
        "-- find_attempts: what is examined
    with bound as materialized (
        select least($3, case when $6::bigint is not null
            then first_attempt_id(utc_day(from_micros($6 + $9)) + 1) end) as id
    )
    select p.id as place, x.id, {WANTED}
    from unnest($2::uuid[]) p (id) cross join bound cross join lateral (
        select a.id, a.event_id, a.state, a.status, a.created_at from ({parts}) a
        order by a.id desc limit $4
    ) x"
    )
}

/// The newest before `$3` of the events `$2`, of which there is one, at the place `$12` or
/// at any: of one event all are examined, wherever they went.
fn newest_of_event() -> String {
    format!(
        "-- find_attempts: what is examined of one event
    select o.id as place, x.id, ($12::uuid is null or x.destination_id = $12) and {WANTED}
    from unnest($2::uuid[]) o (id) cross join lateral newest_of(o.id, $3, $4) x
    where exists (
        select from events e
        where e.id = o.id and e.day = event_day(o.id) and e.tenant_id = $1
    )"
    )
}

/// A page of them.
pub(super) async fn page(
    pool: &PgPool,
    tenant: TenantId,
    (filter, before): (&AttemptFilter, Option<AttemptId>),
    limit: u32,
) -> Result<AttemptPage, Failure> {
    let (part, one) = match sought(pool, tenant, filter.text.as_deref()).await? {
        None => (None, None),
        Some(Sought::Part(part)) => (Some(part), None),
        Some(Sought::One(event)) => (None, Some(event)),
        Some(Sought::Nothing) => return Ok(AttemptPage::default()),
    };
    let (sql, of) = match one {
        Some(event) => (newest_of_event(), vec![event.0]),
        None => (
            newest_of_places(),
            places(pool, tenant, filter.destination).await?,
        ),
    };
    if of.len() > MAX_PLACES as usize {
        return Err(Failure::Refused(CatalogError::too_many_places()));
    }
    let each = each_place(MAX_ATTEMPTS_EXAMINED, of.len());
    let mut query = sqlx::query_as(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(&of)
        .bind(before.map_or(i64::MAX, |before| before.0))
        .bind(i64::from(each))
        .bind(filter.since.map(Timestamp::as_micros))
        .bind(filter.until.map(Timestamp::as_micros))
        .bind(filter.state.map(AttemptState::as_str))
        .bind(&filter.event_type)
        .bind(micros(ATTEMPTS_IN_ORDER))
        .bind(filter.status.map(|status| i32::from(status.number())))
        .bind(part);
    if one.is_some() {
        query = query.bind(filter.destination.map(|id| id.0));
    }
    let rows: Vec<(Uuid, i64, bool, bool)> = query.fetch_all(pool).await?;
    let examined = rows
        .into_iter()
        .map(|(place, id, wanted, is_too_old)| Examined {
            place: DestinationId(place),
            attempt: AttemptId(id),
            wanted,
            is_too_old,
        });
    let (ids, next) = newest(&examined.collect::<Vec<_>>(), each, limit);
    Ok(AttemptPage {
        attempts: views(pool, tenant, &ids).await?,
        next,
    })
}

/// Where they may have gone; one more than may be read. A plan serves whatever is bound, so
/// one destination has a statement of its own: in that of all, all would be walked. What is
/// there and what is deleted have an index each, and both together have none.
async fn places(
    pool: &PgPool,
    tenant: TenantId,
    one: Option<DestinationId>,
) -> Result<Vec<Uuid>, Failure> {
    let query = match one {
        Some(one) => sqlx::query_scalar(
            "-- find_attempts: whether that is a place
            select d.id from destinations d where d.tenant_id = $1 and d.id = $2",
        )
        .bind(tenant.0)
        .bind(one.0),
        None => sqlx::query_scalar(
            "-- find_attempts: where
            select p.id from (
                (
                    select d.id from destinations d
                    where d.tenant_id = $1 and d.deleted_at is null limit $2
                )
                union all
                (
                    select d.id from destinations d
                    where d.tenant_id = $1 and d.deleted_at is not null limit $2
                )
            ) p
            limit $2",
        )
        .bind(tenant.0)
        .bind(i64::from(MAX_PLACES) + 1),
    };
    Ok(query.fetch_all(pool).await?)
}

async fn views(
    pool: &PgPool,
    tenant: TenantId,
    ids: &[AttemptId],
) -> Result<Vec<AttemptView>, Failure> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "-- find_attempts: those found
        select ",
        attempt_columns!(),
        "
        from attempts a
        where a.id = any($1) and a.tenant_id = $2
        order by a.id desc"
    ))
    .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
    .bind(tenant.0)
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(Row::view).collect()
}
