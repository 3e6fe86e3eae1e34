//! What metrics are sampled from.

use std::collections::HashMap;

use async_trait::async_trait;
use domain::health::HoldReason;
use domain::ids::{DestinationId, TenantId};
use domain::watch::Shortfall;
use engine::ports::{
    MAX_SURVEYED, MAX_TROUBLES, StoreError, Survey, SurveyPage, SurveyRules, Surveyed,
    SurveyedBacklog, TroubledTenants, Troubles,
};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::destinations::{Known, read_destinations};
use super::failure::{Failure, retried};
use super::limit_group;
use super::rows::{count, integer, time, word};
use super::secrets;
use super::usage::{self, Question};
use crate::row::row;

#[async_trait]
impl Survey for PostgresStore {
    async fn survey_backlogs(
        &self,
        after: Option<DestinationId>,
        rules: &SurveyRules,
    ) -> Result<SurveyPage, StoreError> {
        Ok(retried(|| backlogs(&self.pool, after, rules)).await?)
    }

    async fn survey_standings(
        &self,
        destinations: &[DestinationId],
    ) -> Result<Vec<Surveyed>, StoreError> {
        let first = destinations.len().min(MAX_SURVEYED);
        Ok(retried(|| standings(&self.pool, &destinations[..first])).await?)
    }

    async fn survey_troubles(&self) -> Result<Troubles, StoreError> {
        Ok(retried(|| troubles(&self.pool)).await?)
    }
}

/// Each step of the walk finds the smallest destination after the last one
/// that has a backlog.
const BACKLOGS: &str = "-- survey: backlogs
    with recursive clock as materialized (select clock_timestamp() as now),
    walk (id, step) as (
        select coalesce($1, '00000000-0000-0000-0000-000000000000'::uuid), 0
        union all
        select
            least(
                (
                    select a.destination_id from deliveries a
                    where a.permit is null and a.due_at is null and a.destination_id > w.id
                    order by a.destination_id limit 1
                ),
                (
                    select a.destination_id from deliveries a
                    where a.permit is null and a.due_at is not null and a.destination_id > w.id
                    order by a.destination_id limit 1
                )
            ),
            w.step + 1
        from walk w
        where w.id is not null and w.step < $2
    )
    select w.id, d.tenant_id, f.waiting as firsts, l.waiting as others,
        (
            select micros(a.created_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is null
                and a.id + 0 > coalesce(p.first_after, 0)
            order by a.id + 0 limit 1
        ) as first_since,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is not null
                and a.urgent
            order by a.due_at limit 1
        ) as urgent_since,
        (
            select micros(a.due_at) from deliveries a
            where a.destination_id = w.id and a.permit is null and not a.urgent
                and a.due_at <= clock.now
            order by a.due_at limit 1
        ) as due_since
    from walk w
    cross join clock
    left join destinations d on d.id = w.id and d.deleted_at is null
    left join pacing p on p.destination_id = w.id
    cross join lateral (
        select count(*) as waiting from (
            select from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is null
                and a.id + 0 > coalesce(p.first_after, 0)
            limit $3
        ) x
    ) f
    cross join lateral (
        select count(*) as waiting from (
            select from deliveries a
            where a.destination_id = w.id and a.permit is null and a.due_at is not null
            limit $3
        ) x
    ) l
    where w.step > 0 and w.id is not null
    order by w.id";

row! {
    struct Row {
        id: Uuid,
        /// `None` if it is gone.
        tenant_id: Option<Uuid>,
        firsts: i64,
        others: i64,
        first_since: Option<i64>,
        urgent_since: Option<i64>,
        due_since: Option<i64>,
    }
}

async fn backlogs(
    pool: &PgPool,
    after: Option<DestinationId>,
    rules: &SurveyRules,
) -> Result<SurveyPage, Failure> {
    let mut connection = pool.acquire().await?;
    let rows: Vec<Row> = sqlx::query_as(BACKLOGS)
        .bind(after.map(|after| after.0))
        .bind(integer(rules.page))
        .bind(i64::from(rules.far))
        .fetch_all(&mut *connection)
        .await?;
    let full = rows.len() >= rules.page as usize;
    let next = rows.last().map(|last| DestinationId(last.id));
    let backlog = |row: Row| {
        let since = [row.first_since, row.urgent_since, row.due_since];
        let one = SurveyedBacklog {
            destination: DestinationId(row.id),
            tenant: TenantId(row.tenant_id?),
            firsts: count(row.firsts),
            others: count(row.others),
            oldest: time(since.into_iter().flatten().min()),
        };
        (one.waiting() > 0).then_some(one)
    };
    Ok(SurveyPage {
        backlogs: rows.into_iter().filter_map(backlog).collect(),
        next: next.filter(|_| full),
    })
}

async fn standings(pool: &PgPool, asked: &[DestinationId]) -> Result<Vec<Surveyed>, Failure> {
    let mut connection = pool.acquire().await?;
    let ids: Vec<Uuid> = asked.iter().map(|id| id.0).collect();
    let Known { now, open, found } = read_destinations(&mut connection, &ids).await?;
    let living: Vec<_> = (asked.iter())
        .filter_map(|id| found.get(id))
        .filter(|destination| !destination.deleted)
        .collect();
    let groups = limit_group::read(&mut connection, living.iter().copied(), (now, open)).await?;
    let questions: Vec<Question<'_>> = (living.iter())
        .map(|destination| Question {
            // The starts that a bucket is judged by.
            recount: true,
            ..Question::of(destination, &groups)
        })
        .collect();
    let mut readings = usage::read(&mut connection, &questions, (now, open)).await?;
    let mut held_for = held_for(&mut connection, &ids).await?;
    let mut troubles = secrets::token_troubles(&mut connection, &ids).await?;
    let standing = |destination: &&super::destinations::Found| {
        let reading = readings.remove(&destination.id)?;
        Some(Surveyed {
            destination: destination.id,
            tenant: destination.tenant,
            tenant_max_in_flight: destination.tenant_max_in_flight,
            policy: destination.policy.clone(),
            usage: reading.usage,
            backlog: reading.backlog,
            held_for: held_for.remove(&destination.id),
            token_trouble: troubles.remove(&destination.id),
        })
    };
    Ok(living.iter().filter_map(standing).collect())
}

async fn held_for(
    connection: &mut PgConnection,
    ids: &[Uuid],
) -> Result<HashMap<DestinationId, HoldReason>, Failure> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "-- survey: held_for
        select h.destination_id, h.held_for from health h
        where h.destination_id = any ($1) and h.held_for is not null
            and h.held_until > clock_timestamp()",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let reason = |(id, reason): (Uuid, String)| {
        let reason = word("health", "held_for", id, &reason)?;
        Ok((DestinationId(id), reason))
    };
    rows.into_iter().map(reason).collect()
}

async fn troubles(pool: &PgPool) -> Result<Troubles, Failure> {
    let open: i64 = sqlx::query_scalar(
        "-- survey: breakers_open
        select count(*) from (
            select from health h where h.opened_at is not null limit $1
        ) x",
    )
    .bind(i64::from(MAX_TROUBLES))
    .fetch_one(pool)
    .await?;
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "-- survey: short
        select w.short_for, count(*) from watches w
        where w.short_told and w.short_for is not null
        group by w.short_for",
    )
    .fetch_all(pool)
    .await?;
    let short = |(reason, number): (String, i64)| {
        let reason: Shortfall = word("watches", "short_for", Uuid::nil(), &reason)?;
        Ok((reason, count(number)))
    };
    let short: Result<Vec<_>, Failure> = rows.into_iter().map(short).collect();
    let mut short = short?;
    short.sort_by_key(|(reason, _)| Shortfall::ALL.iter().position(|one| one == reason));
    Ok(Troubles {
        breakers_open: count(open),
        short,
        tenants: troubled_tenants(pool).await?,
    })
}

/// The table has those alone that are not well.
async fn troubled_tenants(pool: &PgPool) -> Result<TroubledTenants, Failure> {
    let (success, destinations, backlog, refused): (i64, i64, i64, i64) = sqlx::query_as(
        "-- survey: troubled tenants
        select count(w.success_low_since), count(w.destinations_high_since),
            count(w.backlog_high_since), count(w.refused_since)
        from (select * from tenant_watches limit $1) w",
    )
    .bind(i64::from(MAX_TROUBLES))
    .fetch_one(pool)
    .await?;
    Ok(TroubledTenants {
        success_low: count(success),
        destinations_high: count(destinations),
        backlog_high: count(backlog),
        refused: count(refused),
    })
}
