//! Events that somebody looks for, page by page.

use domain::attempt::AttemptState;
use domain::ids::{DestinationId, EventId, TenantId};
use domain::search::{IdRange, Sought};
use domain::time::Timestamp;
use engine::ports::{EventFilter, EventPage, FoundEvent, MAX_EVENTS_EXAMINED};
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::rows::{count, time, word};
use crate::row::row;

row! {
    struct Row {
        id: Uuid,
        wanted: bool,
        event_type: Option<String>,
        payload_bytes: i32,
        urgent: bool,
        created_at: i64,
        attempts: Option<i64>,
        matching: Option<i64>,
        destinations: Option<i64>,
        destination: Option<Uuid>,
        due_at: Option<i64>,
        expires_at: Option<i64>,
        last: Option<String>,
        /// The last that was examined, of as many as may be.
        more: bool,
    }
}

/// The ids carry their time, so the newest of a tenant are at the end of its part
/// of the index; and those of a time are together. Ids without a time, of which there
/// are hardly any, are examined beside them.
const FIND: &str = "-- find_events
    with examined as materialized (
        select e.id, e.day, ($3::text is null or e.event_type = $3)
            and ($6::bigint is null or e.created_at >= from_micros($6))
            and ($7::bigint is null or e.created_at < from_micros($7))
            and ($12::text is null or strpos(e.id::text, $12) > 0)
            and (($4::text is null and $13::uuid is null) or exists (
                select from (
                    select l.state, l.destination_id from ledger_of(e.id) l
                    union all
                    select d.state, d.destination_id from deliveries_of(e.id) d
                ) a
                where ($4::text is null or a.state = $4)
                    and ($13::uuid is null or a.destination_id = $13)
            )) as wanted
        from (
            (
                select e.id, e.day, e.event_type, e.created_at from events e
                where e.tenant_id = $1 and e.day > date '1970-01-01'
                    and e.id >= $8 and e.id < $9
                order by e.id desc limit $2
            )
            union all
            (
                select e.id, e.day, e.event_type, e.created_at from events e
                where e.tenant_id = $1 and e.day = date '1970-01-01'
                    and e.id >= $10 and e.id < $11
                order by e.id desc limit $2
            )
        ) e
        order by e.id desc limit $2
    ), numbered as (
        select x.*, count(*) filter (where x.wanted) over (order by x.id desc) as number,
            row_number() over (order by x.id) = 1 as is_last
        from examined x
    )
    select e.id, n.wanted, e.event_type, octet_length(e.payload) as payload_bytes, e.urgent,
        micros(e.created_at) as created_at, t.attempts, t.matching, t.destinations,
        t.destination, micros(t.due_at) as due_at, micros(t.expires_at) as expires_at, t.last,
        n.is_last and (select count(*) from examined) >= $2 as more
    from numbered n
    join events e on e.id = n.id and e.day = n.day
    left join lateral (
        select count(*) as attempts,
            case when $4::text is not null then count(*) filter (
                where a.state = $4 and ($13::uuid is null or a.destination_id = $13)
            ) end as matching,
            count(distinct a.destination_id) as destinations,
            (array_agg(a.destination_id))[1] as destination,
            min(a.due_at) filter (where a.state = 'waiting') as due_at,
            min(a.expires_at) filter (where a.state = 'waiting') as expires_at,
            (array_agg(a.state order by a.id desc))[1] as last
        from (
            select l.id, l.state, l.destination_id, l.due_at, l.expires_at from ledger_of(n.id) l
            union all
            select d.id, d.state, d.destination_id, d.due_at, d.expires_at
            from deliveries_of(n.id) d
        ) a
    ) t on n.wanted
    where (n.wanted and n.number <= $5)
        or (n.is_last and (select count(*) from examined) >= $2)
    order by e.id desc";

/// A page of them.
pub(super) async fn page(
    pool: &PgPool,
    tenant: TenantId,
    (filter, before): (&EventFilter, Option<EventId>),
    limit: u32,
) -> Result<EventPage, Failure> {
    let (part, any) = match sought(pool, tenant, filter.text.as_deref()).await? {
        None => (None, IdRange::ALL),
        Some(Sought::Part(part)) => (Some(part), IdRange::ALL),
        Some(Sought::One(id)) => (None, IdRange::only(id)),
        Some(Sought::Nothing) => return Ok(EventPage::default()),
    };
    let any = any.below(before);
    let timed = any.and(IdRange::between(filter.since, filter.until));
    let rows: Vec<Row> = sqlx::query_as(FIND)
        .bind(tenant.0)
        .bind(i64::from(MAX_EVENTS_EXAMINED))
        .bind(&filter.event_type)
        .bind(filter.state.map(AttemptState::as_str))
        .bind(i64::from(limit))
        .bind(filter.since.map(Timestamp::as_micros))
        .bind(filter.until.map(Timestamp::as_micros))
        .bind(timed.from.0)
        .bind(timed.before.0)
        .bind(any.from.0)
        .bind(any.before.0)
        .bind(part)
        .bind(filter.destination.map(|destination| destination.0))
        .fetch_all(pool)
        .await?;
    page_of(rows, limit)
}

/// What a filter's text says, if it has one.
pub(super) async fn sought(
    reader: impl PgExecutor<'_>,
    tenant: TenantId,
    text: Option<&str>,
) -> Result<Option<Sought>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let of_key: Option<Uuid> = sqlx::query_scalar(
        "-- find_events: a key
        select k.event_id from idempotency_keys k
        where k.tenant_id = $1 and k.key = $2 and k.expires_at > clock_timestamp()",
    )
    .bind(tenant.0)
    .bind(text)
    .fetch_optional(reader)
    .await?;
    Ok(Some(Sought::by(text, of_key.map(EventId))))
}

fn page_of(rows: Vec<Row>, limit: u32) -> Result<EventPage, Failure> {
    let mut page = EventPage::default();
    let last = rows.last().map(|row| EventId(row.id));
    let more = rows.last().is_some_and(|row| row.more);
    for row in rows {
        if !row.wanted || page.events.len() >= limit as usize {
            continue;
        }
        let last = row.last.as_deref();
        page.events.push(FoundEvent {
            id: EventId(row.id),
            payload_bytes: count(i64::from(row.payload_bytes)),
            urgent: row.urgent,
            created_at: Timestamp::from_micros(row.created_at),
            attempts: count(row.attempts.unwrap_or(0)),
            matching: row.matching.map(count),
            destinations: count(row.destinations.unwrap_or(0)),
            destination: row.destination.map(DestinationId),
            due_at: time(row.due_at),
            expires_at: time(row.expires_at),
            last: (last.map(|last| word("attempts", "state", row.id, last))).transpose()?,
            event_type: row.event_type,
        });
    }
    page.next = match page.events.last() {
        Some(event) if page.events.len() >= limit as usize => Some(event.id),
        _ if more => last,
        _ => None,
    };
    Ok(page)
}
