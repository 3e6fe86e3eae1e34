//! Where backlogs stand, counted from the indexes of what is pending.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{
    BacklogBounds, Backlogged, Count, Standing, high_mark, noted_mark, stand,
};
use domain::ids::DestinationId;
use domain::time::{Timestamp, micros};
use engine::ports::{Backpressure, MAX_STANDINGS, StoreError};
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::destinations::read_destinations;
use super::failure::{Failure, retried};

#[async_trait]
impl Backpressure for PostgresStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        if_older_than: Duration,
    ) -> Result<Vec<Standing>, StoreError> {
        Ok(retried(|| standings(&self.pool, bounds, passed, if_older_than)).await?)
    }
}

async fn standings(
    pool: &PgPool,
    bounds: &BacklogBounds,
    passed: &[Backlogged],
    if_older_than: Duration,
) -> Result<Vec<Standing>, Failure> {
    let mut transaction = pool.begin().await?;
    let turn: Option<i32> = sqlx::query_scalar(
        "-- standings: turn
        select 1 from backlog_standings b
        where b.scope = 'all'
            and micros(b.counted_at) <= micros(clock_timestamp()) - $1
        for update skip locked",
    )
    .bind(micros(if_older_than))
    .fetch_optional(&mut *transaction)
    .await?;
    let before = read(&mut *transaction).await?;
    if turn.is_none() {
        transaction.commit().await?;
        return Ok(before);
    }
    // Longer than a step of an event's way may take: it holds nothing up.
    sqlx::query("set local statement_timeout = '60s'")
        .execute(&mut *transaction)
        .await?;
    let mut counts = count(&mut transaction, bounds).await?;
    let now = limit(&mut transaction, &mut counts, (&before, passed, bounds)).await?;
    let after = stand((&before, passed), &counts, (now, bounds), MAX_STANDINGS + 1);
    write(&mut transaction, &after).await?;
    transaction.commit().await?;
    Ok(after)
}

#[derive(sqlx::FromRow)]
struct StandingRow {
    scope: String,
    id: Uuid,
    pending: i64,
    counted_at: i64,
    refusing: bool,
    drained_per_second: Option<f64>,
    retry_after_ms: i64,
}

async fn read(executor: impl PgExecutor<'_>) -> Result<Vec<Standing>, Failure> {
    let rows: Vec<StandingRow> = sqlx::query_as(
        "-- standings: read
        select b.scope, b.id, b.pending, micros(b.counted_at) as counted_at, b.refusing,
            b.drained_per_second, b.retry_after_ms
        from backlog_standings b
        order by b.scope = 'all' desc, b.refusing desc, b.pending desc",
    )
    .fetch_all(executor)
    .await?;
    let standing = |row: StandingRow| Standing {
        whose: whose(&row.scope, row.id),
        pending: u64::try_from(row.pending).unwrap_or(0),
        counted_at: Timestamp::from_micros(row.counted_at),
        refusing: row.refusing,
        drained_per_second: row.drained_per_second,
        retry_after: Duration::from_millis(u64::try_from(row.retry_after_ms).unwrap_or(0)),
    };
    Ok(rows.into_iter().map(standing).collect())
}

/// The scope is one of three words: the table's constraint says so.
fn whose(scope: &str, id: Uuid) -> Backlogged {
    match scope {
        "destination" => Backlogged::Destination(id),
        "tenant" => Backlogged::Tenant(id),
        _ => Backlogged::All,
    }
}

/// What is pending: the whole, and what may be told of.
async fn count(
    connection: &mut PgConnection,
    bounds: &BacklogBounds,
) -> Result<Vec<Count>, Failure> {
    let noted = |bound: u64| i64::try_from(noted_mark(bound)).unwrap_or(i64::MAX);
    let rows: Vec<(String, Uuid, i64)> = sqlx::query_as(
        "-- standings: count
        with pending as materialized (
            select u.destination_id, sum(u.pending)::bigint as pending
            from (
                select a.destination_id, count(*) as pending from attempts a
                where a.state = 'waiting' and a.due_at is null group by a.destination_id
                union all
                select a.destination_id, count(*) from attempts a
                where a.state = 'waiting' and a.due_at is not null group by a.destination_id
                union all
                select a.destination_id, count(*) from attempts a
                where a.state = 'admitted' group by a.destination_id
                union all
                select a.destination_id, count(*) from attempts a
                where a.state = 'started' group by a.destination_id
            ) u
            group by u.destination_id
        ),
        named as materialized (
            select p.destination_id, p.pending, d.tenant_id
            from pending p join destinations d on d.id = p.destination_id
        )
        select 'all', '00000000-0000-0000-0000-000000000000'::uuid,
            coalesce(sum(n.pending), 0)::bigint
        from named n
        union all
        (
            select 'tenant', n.tenant_id, sum(n.pending)::bigint from named n
            group by n.tenant_id having sum(n.pending) >= $1
            order by 3 desc limit $3
        )
        union all
        (
            select 'destination', n.destination_id, n.pending from named n
            where n.pending >= $2
            order by 3 desc limit $3
        )",
    )
    .bind(noted(bounds.tenant.get()))
    .bind(noted(bounds.destination.get()))
    .bind(MAX_STANDINGS as i64)
    .fetch_all(connection)
    .await?;
    let count = |(scope, id, pending): (String, Uuid, i64)| Count {
        whose: whose(&scope, id),
        pending: u64::try_from(pending).unwrap_or(0),
        limit_per_second: None,
    };
    Ok(rows.into_iter().map(count).collect())
}

/// Adds the limits of those destinations that may refuse; the time.
async fn limit(
    connection: &mut PgConnection,
    counts: &mut [Count],
    (before, passed, bounds): (&[Standing], &[Backlogged], &BacklogBounds),
) -> Result<Timestamp, Failure> {
    let refused: HashSet<Backlogged> = (before.iter().filter(|one| one.refusing))
        .map(|one| one.whose)
        .chain(passed.iter().copied())
        .collect();
    let id = |count: &Count| match count.whose {
        Backlogged::Destination(id)
            if refused.contains(&count.whose)
                || count.pending > high_mark(bounds.destination.get()) =>
        {
            Some(id)
        }
        _ => None,
    };
    let ids: Vec<Uuid> = counts.iter().filter_map(id).collect();
    let (now, found) = read_destinations(connection, &ids).await?;
    for count in counts {
        if let Backlogged::Destination(id) = count.whose {
            let found = found.get(&DestinationId(id));
            count.limit_per_second = found.and_then(|found| found.policy.starts_per_second());
        }
    }
    Ok(now)
}

async fn write(connection: &mut PgConnection, standings: &[Standing]) -> Result<(), Failure> {
    let each = || standings.iter();
    let (scopes, ids): (Vec<&str>, Vec<Uuid>) = each()
        .map(|one| match one.whose {
            Backlogged::Destination(id) => ("destination", id),
            Backlogged::Tenant(id) => ("tenant", id),
            Backlogged::All => ("all", Uuid::nil()),
        })
        .unzip();
    let number = |pending: u64| i64::try_from(pending).unwrap_or(i64::MAX);
    sqlx::query(
        "-- standings: write
        with told as (
            insert into backlog_standings as b (
                scope, id, pending, counted_at, refusing, drained_per_second, retry_after_ms
            )
            select n.scope, n.id, n.pending, from_micros(n.counted_at), n.refusing,
                n.drained_per_second, n.retry_after_ms
            from unnest(
                $1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::boolean[],
                $6::double precision[], $7::bigint[]
            ) as n (scope, id, pending, counted_at, refusing, drained_per_second, retry_after_ms)
            on conflict (scope, id) do update
            set pending = excluded.pending, counted_at = excluded.counted_at,
                refusing = excluded.refusing, drained_per_second = excluded.drained_per_second,
                retry_after_ms = excluded.retry_after_ms
            returning b.scope, b.id
        )
        delete from backlog_standings b
        where not exists (select from told t where t.scope = b.scope and t.id = b.id)",
    )
    .bind(scopes)
    .bind(ids)
    .bind(each().map(|one| number(one.pending)).collect::<Vec<_>>())
    .bind(
        each()
            .map(|one| one.counted_at.as_micros())
            .collect::<Vec<_>>(),
    )
    .bind(each().map(|one| one.refusing).collect::<Vec<_>>())
    .bind(each().map(|one| one.drained_per_second).collect::<Vec<_>>())
    .bind(
        each()
            .map(|one| i64::try_from(one.retry_after.as_millis()).unwrap_or(i64::MAX))
            .collect::<Vec<_>>(),
    )
    .execute(connection)
    .await?;
    Ok(())
}
