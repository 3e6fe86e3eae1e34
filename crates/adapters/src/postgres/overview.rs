//! What the dashboard looks at. Reads only; locks nothing.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::time::{Timestamp, micros};
use engine::ports::{
    AllDestinations, Answered, AttemptFilter, AttemptPage, AttemptView, Called, CatalogError,
    EventFilter, EventPage, GLANCE_ANSWERS, GLANCE_RATE, GLANCE_SAMPLE, GLANCE_STARTS, Glance,
    MAX_CHARTED, MAX_CHARTED_ANSWERS, MAX_GLANCED, MAX_NAMED, Overview, Payload, Requested,
    StartsAt, Thing, Troubled, WantedOfAll,
};
use sqlx::{AssertSqlSafe, PgExecutor, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::events::attempt_columns;
use super::failure::{Failure, retried};
use super::harm::{BY_HARM, is_troubled};
use super::rows::{count, word};
use super::{all_destinations, events, found_attempts, found_events};
use crate::row::row;

#[async_trait]
impl Overview for PostgresStore {
    async fn now(&self) -> Result<Timestamp, CatalogError> {
        Ok(retried(|| now(&self.pool)).await?)
    }

    async fn tenant_of(&self, thing: Thing) -> Result<Option<TenantId>, CatalogError> {
        Ok(retried(|| tenant_of(&self.pool, thing)).await?)
    }

    async fn find_destinations(
        &self,
        tenant: TenantId,
        text: &str,
        after: Option<DestinationId>,
        limit: u32,
    ) -> Result<Vec<DestinationId>, CatalogError> {
        Ok(retried(|| find_destinations(&self.pool, tenant, (text, after), limit)).await?)
    }

    async fn troubled_destinations(
        &self,
        tenant: TenantId,
        limit: u32,
    ) -> Result<Troubled, CatalogError> {
        Ok(retried(|| troubled(&self.pool, tenant, limit)).await?)
    }

    async fn all_destinations(
        &self,
        wanted: &WantedOfAll,
    ) -> Result<AllDestinations, CatalogError> {
        Ok(retried(|| all_destinations::page(&self.pool, wanted)).await?)
    }

    async fn names(&self, destinations: &[DestinationId]) -> Result<Vec<Called>, CatalogError> {
        let asked = &destinations[..destinations.len().min(MAX_NAMED)];
        Ok(retried(|| names(&self.pool, asked)).await?)
    }

    async fn glance(&self, destinations: &[DestinationId]) -> Result<Vec<Glance>, CatalogError> {
        let asked = &destinations[..destinations.len().min(MAX_GLANCED)];
        Ok(retried(|| glance(&self.pool, asked)).await?)
    }

    async fn starts(
        &self,
        destination: DestinationId,
        since: Timestamp,
        step: Duration,
    ) -> Result<Vec<StartsAt>, CatalogError> {
        Ok(retried(|| starts(&self.pool, destination, since, step)).await?)
    }

    async fn answers(
        &self,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<Answered>, CatalogError> {
        let ids = [destination.0];
        let asked = (since, MAX_CHARTED_ANSWERS);
        let mut found = retried(|| answers(&self.pool, &ids, asked)).await?;
        Ok(found.remove(&destination.0).unwrap_or_default())
    }

    async fn requested(
        &self,
        tenant: TenantId,
        attempt: AttemptId,
    ) -> Result<Requested, CatalogError> {
        Ok(retried(|| requested(&self.pool, tenant, attempt)).await?)
    }

    async fn last_started(
        &self,
        destination: DestinationId,
        limit: u32,
    ) -> Result<Vec<AttemptView>, CatalogError> {
        Ok(retried(|| last_started(&self.pool, destination, limit)).await?)
    }

    async fn payload(&self, tenant: TenantId, id: EventId) -> Result<Payload, CatalogError> {
        let found = retried(|| payload(&self.pool, tenant, id)).await?;
        found.ok_or(CatalogError::NotFound("event"))
    }

    async fn find_events(
        &self,
        tenant: TenantId,
        filter: &EventFilter,
        before: Option<EventId>,
        limit: u32,
    ) -> Result<EventPage, CatalogError> {
        Ok(retried(|| found_events::page(&self.pool, tenant, (filter, before), limit)).await?)
    }

    async fn find_attempts(
        &self,
        tenant: TenantId,
        filter: &AttemptFilter,
        before: Option<AttemptId>,
        limit: u32,
    ) -> Result<AttemptPage, CatalogError> {
        let wanted = (filter, before);
        Ok(retried(|| found_attempts::page(&self.pool, tenant, wanted, limit)).await?)
    }
}

pub(super) async fn now(pool: &PgPool) -> Result<Timestamp, Failure> {
    let now: i64 = sqlx::query_scalar("-- now\nselect micros(clock_timestamp())")
        .fetch_one(pool)
        .await?;
    Ok(Timestamp::from_micros(now))
}

async fn tenant_of(pool: &PgPool, thing: Thing) -> Result<Option<TenantId>, Failure> {
    let query = match thing {
        Thing::Destination(id) => sqlx::query_scalar(
            "-- tenant_of: destination\nselect d.tenant_id from destinations d where d.id = $1",
        )
        .bind(id.0),
        Thing::Event(id) => sqlx::query_scalar(
            "-- tenant_of: event
            select e.tenant_id from events e where e.id = $1 and e.day = event_day($1)",
        )
        .bind(id.0),
        Thing::Attempt(id) => sqlx::query_scalar(
            "-- tenant_of: attempt\nselect a.tenant_id from attempts a where a.id = $1",
        )
        .bind(id.0),
        Thing::Replay(id) => sqlx::query_scalar(
            "-- tenant_of: replay\nselect r.tenant_id from replays r where r.id = $1",
        )
        .bind(id.0),
    };
    let found: Option<Uuid> = query.fetch_optional(pool).await?;
    Ok(found.map(TenantId))
}

async fn find_destinations(
    pool: &PgPool,
    tenant: TenantId,
    (text, after): (&str, Option<DestinationId>),
    limit: u32,
) -> Result<Vec<DestinationId>, Failure> {
    let found: Vec<Uuid> = sqlx::query_scalar(
        "-- find_destinations
        select d.id from destinations d
        where d.tenant_id = $1 and d.deleted_at is null
            and d.id > coalesce($2, '00000000-0000-0000-0000-000000000000'::uuid)
            and (strpos(lower(d.name), $3) > 0 or strpos(lower(d.url), $3) > 0
                or strpos(d.id::text, $3) > 0)
        order by d.id limit $4",
    )
    .bind(tenant.0)
    .bind(after.map(|after| after.0))
    .bind(text.to_lowercase())
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    Ok(found.into_iter().map(DestinationId).collect())
}

async fn troubled(pool: &PgPool, tenant: TenantId, limit: u32) -> Result<Troubled, Failure> {
    let sql = format!(
        "-- troubled_destinations
        select d.id, count(*) over () from destinations d
        left join health h on h.destination_id = d.id
        left join watches w on w.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        where d.tenant_id = $1 and d.deleted_at is null and ({})
        order by {BY_HARM}
        limit $2",
        is_troubled()
    );
    let found: Vec<(Uuid, i64)> = sqlx::query_as(AssertSqlSafe(sql))
        .bind(tenant.0)
        .bind(i64::from(limit))
        .fetch_all(pool)
        .await?;
    let count = found.first().map_or(0, |(_, count)| *count);
    Ok(Troubled {
        first: found.into_iter().map(|(id, _)| DestinationId(id)).collect(),
        count: count.unsigned_abs(),
    })
}

async fn names(pool: &PgPool, asked: &[DestinationId]) -> Result<Vec<Called>, Failure> {
    let ids: Vec<Uuid> = asked.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(
        "-- names
        select d.id, coalesce(nullif(d.name, ''), d.url), n.name from destinations d
        join tenants n on n.id = d.tenant_id
        where d.id = any($1)",
    )
    .bind(ids)
    .fetch_all(pool)
    .await?;
    let called = |(id, name, tenant_name)| Called {
        destination: DestinationId(id),
        name,
        tenant_name,
    };
    Ok(rows.into_iter().map(called).collect())
}

async fn glance(pool: &PgPool, asked: &[DestinationId]) -> Result<Vec<Glance>, Failure> {
    let ids: Vec<Uuid> = asked.iter().map(|id| id.0).collect();
    let counted: Vec<(Uuid, i64)> = sqlx::query_as(
        "-- glance: starts
        select d.id, s.starts
        from unnest($1::uuid[]) d (id)
        cross join (select clock_timestamp() as now) clock
        cross join lateral (
            select count(*) as starts from (
                (
                    select from starts a
                    where a.destination_id = d.id and not a.folded and a.carried_by is null
                        and a.started_at > clock.now - $2 * interval '1 microsecond'
                    limit $3
                )
                union all
                (
                    select from starts a
                    where a.destination_id = d.id and a.folded and a.carried_by is null
                        and a.started_at > clock.now - $2 * interval '1 microsecond'
                    limit $3
                )
            ) x
        ) s",
    )
    .bind(&ids)
    .bind(micros(GLANCE_RATE))
    .bind(i64::from(GLANCE_STARTS))
    .fetch_all(pool)
    .await?;
    let counted: HashMap<Uuid, u32> = (counted.into_iter())
        .map(|(id, starts)| (id, count(starts)))
        .collect();
    let since = now(pool).await? - GLANCE_ANSWERS;
    let mut answers = answers(pool, &ids, (since, GLANCE_SAMPLE)).await?;
    let glance = |id: &DestinationId| Glance {
        destination: *id,
        starts: counted.get(&id.0).copied().unwrap_or(0),
        answers: answers.remove(&id.0).unwrap_or_default(),
    };
    Ok(asked.iter().map(glance).collect())
}

pub(super) async fn answers(
    on: impl PgExecutor<'_>,
    ids: &[Uuid],
    (since, most): (Timestamp, u32),
) -> Result<HashMap<Uuid, Vec<Answered>>, Failure> {
    let rows: Vec<(Uuid, i64, String, Option<i32>, i64)> = sqlx::query_as(
        "-- answers
        select d.id, s.started_at, s.state, s.status, s.latency
        from unnest($1::uuid[]) d (id)
        cross join lateral (
            select micros(x.started_at) as started_at, x.state, x.status,
                micros(x.finished_at) - micros(x.started_at) as latency
            from (
                (
                    select a.state, a.status, a.started_at, a.finished_at from ledger a
                    where a.destination_id = d.id and not a.folded and a.carried_by is null
                        and a.started_at > from_micros($2)
                        and a.finished_at is not null
                    order by a.started_at desc, a.id desc limit $3
                )
                union all
                (
                    select a.state, a.status, a.started_at, a.finished_at from ledger a
                    where a.destination_id = d.id and a.folded and a.carried_by is null
                        and a.started_at > from_micros($2)
                        and a.finished_at is not null
                    order by a.started_at desc, a.id desc limit $3
                )
            ) x
            order by x.started_at desc limit $3
        ) s",
    )
    .bind(ids)
    .bind(since.as_micros())
    .bind(i64::from(most))
    .fetch_all(on)
    .await?;
    let mut answers: HashMap<Uuid, Vec<Answered>> = HashMap::new();
    for (id, started_at, state, status, latency) in rows {
        answers.entry(id).or_default().push(Answered {
            started_at: Timestamp::from_micros(started_at),
            state: word("attempts", "state", id, &state)?,
            status: status.and_then(|status| u16::try_from(status).ok()),
            latency: Duration::from_micros(latency.max(0).unsigned_abs()),
        });
    }
    Ok(answers)
}

async fn starts(
    pool: &PgPool,
    destination: DestinationId,
    since: Timestamp,
    step: Duration,
) -> Result<Vec<StartsAt>, Failure> {
    let rows: Vec<(i64, i64)> = sqlx::query_as(
        "-- starts: by step, of the newest
        select micros(x.started_at) / $3 * $3 as step, count(*)
        from (
            (
                select a.started_at from starts a
                where a.destination_id = $1 and not a.folded and a.carried_by is null
                    and a.started_at >= from_micros($2)
                order by a.started_at desc, a.id desc limit $4
            )
            union all
            (
                select a.started_at from starts a
                where a.destination_id = $1 and a.folded and a.carried_by is null
                    and a.started_at >= from_micros($2)
                order by a.started_at desc, a.id desc limit $4
            )
        ) x
        group by 1 order by 1",
    )
    .bind(destination.0)
    .bind(since.as_micros())
    .bind(micros(step).max(1))
    .bind(i64::from(MAX_CHARTED))
    .fetch_all(pool)
    .await?;
    let starts = |(from, starts)| StartsAt {
        from: Timestamp::from_micros(from),
        starts: count(starts),
    };
    Ok(rows.into_iter().map(starts).collect())
}

row! {
    struct RequestedRow {
        claimed_at: Option<i64>,
        url: Option<String>,
        content_type: Option<String>,
        bytes: i32,
        in_batch: bool,
        ..attempt: events::Row,
    }
}

async fn requested(
    pool: &PgPool,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<Requested, Failure> {
    let row: Option<RequestedRow> = sqlx::query_as(
        "-- requested
        select a.id, a.event_id, a.destination_id, a.try_number, a.state, a.dead_letter,
            micros(a.created_at) as created_at, micros(a.admitted_at) as admitted_at,
            micros(a.started_at) as started_at, micros(a.finished_at) as finished_at,
            micros(a.due_at) as due_at, micros(a.expires_at) as expires_at,
            a.status, a.error, a.response_body, a.response_headers, a.replay_id, e.content_type,
            micros(a.claimed_at) as claimed_at,
            (
                select h.url from limit_history h
                where h.destination_id = a.destination_id and h.in_force_from <= a.claimed_at
                order by h.in_force_from desc, h.id desc limit 1
            ) as url,
            coalesce(octet_length(e.payload), a.payload_bytes) as bytes,
            a.carried_by is not null or a.batch_size is not null as in_batch
        from attempts a
        left join events e on e.id = a.event_id
        where a.id = $1 and a.tenant_id = $2",
    )
    .bind(attempt.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let row = row.ok_or(Failure::NotFound("attempt"))?;
    Ok(Requested {
        claimed_at: row.claimed_at.map(Timestamp::from_micros),
        url: row.url,
        content_type: row.content_type,
        payload_bytes: count(i64::from(row.bytes)),
        in_batch: row.in_batch,
        attempt: row.attempt.view()?,
    })
}

async fn last_started(
    pool: &PgPool,
    destination: DestinationId,
    limit: u32,
) -> Result<Vec<AttemptView>, Failure> {
    let rows: Vec<events::Row> = sqlx::query_as(concat!(
        "-- last_started
        select ",
        attempt_columns!(),
        "
        from (
            (
                select * from starts a
                where a.destination_id = $1 and not a.folded and a.carried_by is null
                    and a.started_at is not null
                order by a.started_at desc, a.id desc limit $2
            )
            union all
            (
                select * from starts a
                where a.destination_id = $1 and a.folded and a.carried_by is null
                    and a.started_at is not null
                order by a.started_at desc, a.id desc limit $2
            )
        ) a
        order by a.started_at desc, a.id desc limit $2"
    ))
    .bind(destination.0)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    rows.into_iter().map(events::Row::view).collect()
}

async fn payload(pool: &PgPool, tenant: TenantId, id: EventId) -> Result<Option<Payload>, Failure> {
    let found: Option<(String, Vec<u8>, Vec<String>)> = sqlx::query_as(
        "-- payload
        select e.content_type, e.payload, coalesce(
            (select t.redact from event_types t where t.name = e.event_type collate \"C\"), '{}'
        )
        from events e
        where e.id = $1 and e.day = event_day($1) and e.tenant_id = $2",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    Ok(found.map(|(content_type, bytes, redact)| Payload {
        content_type,
        bytes,
        redact,
    }))
}
