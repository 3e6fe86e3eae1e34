//! Where backlogs stand, counted from the indexes of what is pending.

use std::collections::HashSet;
use std::time::Duration;

use async_trait::async_trait;
use domain::backpressure::{
    BacklogBounds, Backlogged, Count, CountPace, LastCount, Standing, high_mark, noted_mark, stand,
};
use domain::event::NewEvent;
use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{Acceptance, Backpressure, Counted, MAX_STANDINGS, StoreError};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::destinations::read_destinations;
use super::failure::{Failure, retried};
use super::keys;
use crate::row::row;

#[async_trait]
impl Backpressure for PostgresStore {
    async fn standings(
        &self,
        bounds: &BacklogBounds,
        passed: &[Backlogged],
        pace: Option<&CountPace>,
    ) -> Result<Counted, StoreError> {
        Ok(retried(|| standings(&self.pool, bounds, passed, pace)).await?)
    }

    async fn repeated(&self, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, StoreError> {
        Ok(retried(|| repeated(&self.pool, events)).await?)
    }
}

async fn repeated(pool: &PgPool, events: &[NewEvent]) -> Result<Vec<Option<Acceptance>>, Failure> {
    let mut connection = pool.acquire().await?;
    let known = keys::known(&mut connection, events.iter()).await?;
    let mut answers = keys::answer(&mut connection, events, &known).await?;
    Ok((0..events.len()).map(|at| answers.remove(&at)).collect())
}

async fn standings(
    pool: &PgPool,
    bounds: &BacklogBounds,
    passed: &[Backlogged],
    pace: Option<&CountPace>,
) -> Result<Counted, Failure> {
    let mut transaction = pool.begin().await?;
    let (began, last, before) = read(&mut transaction).await?;
    let usual = CountPace::default();
    let known = Counted {
        standings: before,
        age: began.since(last.at),
        wait: pace.unwrap_or(&usual).wait(last.took),
    };
    let Some(pace) = pace.filter(|pace| pace.is_due(&last, began)) else {
        transaction.commit().await?;
        return Ok(known);
    };
    if !take_turn(&mut transaction, &last).await? {
        transaction.commit().await?;
        return Ok(known);
    }
    // Longer than a step of an event's way may take: it holds nothing up.
    sqlx::query("set local statement_timeout = '60s'")
        .execute(&mut *transaction)
        .await?;
    let mut counts = count(&mut transaction, bounds).await?;
    let before = &known.standings[..];
    let now = limit(&mut transaction, &mut counts, (before, passed, bounds)).await?;
    let after = stand(
        (before, passed),
        &counts,
        (began, bounds),
        MAX_STANDINGS + 1,
    );
    let last = LastCount {
        at: began,
        took: now.since(began),
    };
    write(&mut transaction, &after, (&last, bounds)).await?;
    transaction.commit().await?;
    Ok(Counted {
        standings: after,
        age: last.took,
        wait: pace.wait(last.took),
    })
}

/// Whether it is this one's turn to count: nobody else is at it, or has been
/// since.
async fn take_turn(connection: &mut PgConnection, last: &LastCount) -> Result<bool, Failure> {
    let turn: Option<i32> = sqlx::query_scalar(
        "-- standings: turn
        select 1 from backlog_standings b
        where b.scope = 'all' and micros(b.counted_at) = $1
        for update skip locked",
    )
    .bind(last.at.as_micros())
    .fetch_optional(connection)
    .await?;
    Ok(turn.is_some())
}

row! {
    struct StandingRow {
        now: i64,
        scope: String,
        id: Uuid,
        tenant_id: Option<Uuid>,
        pending: i64,
        refused_at: Option<i64>,
        refused_pending: Option<i64>,
        retry_after_ms: i64,
        counted_at: Option<i64>,
        took_ms: Option<i64>,
    }
}

/// The time, the last count, and where backlogs stood.
async fn read(
    connection: &mut PgConnection,
) -> Result<(Timestamp, LastCount, Vec<Standing>), Failure> {
    let rows: Vec<StandingRow> = sqlx::query_as(
        "-- standings: read
        select micros(clock_timestamp()) as now, b.scope, b.id, b.tenant_id, b.pending,
            micros(b.refused_at) as refused_at, b.refused_pending, b.retry_after_ms,
            micros(b.counted_at) as counted_at, b.took_ms
        from backlog_standings b
        order by b.scope = 'all' desc, b.refused_at is not null desc, b.pending desc",
    )
    .fetch_all(connection)
    .await?;
    let positive = |number: i64| u64::try_from(number).unwrap_or(0);
    let now = rows.first().map_or(0, |row| row.now);
    let whole = |column: fn(&StandingRow) -> Option<i64>| rows.first().and_then(column);
    let last = LastCount {
        at: Timestamp::from_micros(whole(|row| row.counted_at).unwrap_or(0)),
        took: Duration::from_millis(positive(whole(|row| row.took_ms).unwrap_or(0))),
    };
    let standing = |row: StandingRow| Standing {
        whose: whose(&row.scope, row.id, row.tenant_id),
        pending: positive(row.pending),
        refused: (row.refused_at.zip(row.refused_pending))
            .map(|(at, pending)| (Timestamp::from_micros(at), positive(pending))),
        retry_after: Duration::from_millis(positive(row.retry_after_ms)),
    };
    let standings = rows.into_iter().map(standing).collect();
    Ok((Timestamp::from_micros(now), last, standings))
}

/// The scope is one of three words: the table's constraint says so.
fn whose(scope: &str, id: Uuid, tenant: Option<Uuid>) -> Backlogged {
    match scope {
        "destination" => {
            Backlogged::Destination(TenantId(tenant.unwrap_or_default()), DestinationId(id))
        }
        "tenant" => Backlogged::Tenant(TenantId(id)),
        _ => Backlogged::All,
    }
}

/// What is pending: the whole, and what may be told of. A destination that is
/// disabled or deleted refuses by itself, and says so.
const COUNT: &str = "-- standings: count
    with pending as materialized (
        select u.destination_id, sum(u.pending)::bigint as pending
        from (
            select a.destination_id, count(*) as pending from deliveries a
            where a.permit is null and a.due_at is null
            group by a.destination_id
            union all
            select a.destination_id, count(*) from deliveries a
            where a.permit is null and a.due_at is not null
            group by a.destination_id
            union all
            select a.destination_id, count(*) from deliveries a
            where a.permit is not null and a.carried_by is null
            group by a.destination_id
            union all
            select a.destination_id, count(*) from deliveries a
            where a.carried_by is not null
            group by a.destination_id
        ) u
        group by u.destination_id
    ),
    whole as materialized (
        select coalesce(sum(p.pending), 0)::bigint as pending from pending p
    ),
    -- No tenant has more than all: most counts look nobody up.
    tenants as (
        select d.tenant_id, sum(p.pending)::bigint as pending
        from pending p join destinations d on d.id = p.destination_id
        where (select w.pending from whole w) >= $1
        group by d.tenant_id
    )
    select 'all', '00000000-0000-0000-0000-000000000000'::uuid, null::uuid, w.pending
    from whole w
    union all
    (
        select 'tenant', t.tenant_id, null::uuid, t.pending from tenants t
        where t.pending >= $1
        order by 4 desc limit $3
    )
    union all
    (
        select 'destination', p.destination_id, d.tenant_id, p.pending
        from pending p join destinations d on d.id = p.destination_id
        where p.pending >= $2 and d.deleted_at is null and d.state <> 'disabled'
        order by 4 desc limit $3
    )";

async fn count(
    connection: &mut PgConnection,
    bounds: &BacklogBounds,
) -> Result<Vec<Count>, Failure> {
    let noted = |bound: u64| i64::try_from(noted_mark(bound)).unwrap_or(i64::MAX);
    let rows: Vec<(String, Uuid, Option<Uuid>, i64)> = sqlx::query_as(COUNT)
        .bind(noted(bounds.tenant.get()))
        .bind(noted(bounds.destination.get()))
        .bind(MAX_STANDINGS as i64)
        .fetch_all(connection)
        .await?;
    let count = |(scope, id, tenant, pending): (String, Uuid, Option<Uuid>, i64)| Count {
        whose: whose(&scope, id, tenant),
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
    let refused: HashSet<Backlogged> = (before.iter().filter(|one| one.is_refusing()))
        .map(|one| one.whose)
        .chain(passed.iter().copied())
        .collect();
    let id = |count: &Count| match count.whose {
        Backlogged::Destination(_, id)
            if refused.contains(&count.whose)
                || count.pending > high_mark(bounds.destination.get()) =>
        {
            Some(id.0)
        }
        _ => None,
    };
    let ids: Vec<Uuid> = counts.iter().filter_map(id).collect();
    let known = read_destinations(connection, &ids).await?;
    for count in counts {
        if let Backlogged::Destination(_, id) = count.whose {
            let found = known.found.get(&id);
            count.limit_per_second = found.and_then(|found| found.policy.starts_per_second());
        }
    }
    Ok(known.now)
}

async fn write(
    connection: &mut PgConnection,
    standings: &[Standing],
    (last, bounds): (&LastCount, &BacklogBounds),
) -> Result<(), Failure> {
    let each = || standings.iter();
    let names = |one: &Standing| match one.whose {
        Backlogged::Destination(tenant, id) => ("destination", id.0, Some(tenant.0)),
        Backlogged::Tenant(id) => ("tenant", id.0, None),
        Backlogged::All => ("all", Uuid::nil(), None),
    };
    let number = |pending: u64| i64::try_from(pending).unwrap_or(i64::MAX);
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    sqlx::query(
        "-- standings: write
        insert into backlog_standings (
            scope, id, tenant_id, pending, refused_at, refused_pending, retry_after_ms,
            counted_at, took_ms, bound
        )
        select n.scope, n.id, n.tenant_id, n.pending, from_micros(n.refused_at),
            n.refused_pending, n.retry_after_ms, from_micros($8), $9,
            n.bound
        from unnest(
            $1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $10::bigint[]
        ) as n (
            scope, id, tenant_id, pending, refused_at, refused_pending, retry_after_ms, bound
        )
        on conflict (scope, id) do update
        set tenant_id = excluded.tenant_id, pending = excluded.pending,
            refused_at = excluded.refused_at, refused_pending = excluded.refused_pending,
            retry_after_ms = excluded.retry_after_ms, counted_at = excluded.counted_at,
            took_ms = excluded.took_ms,
            bound = excluded.bound",
    )
    .bind(each().map(|one| names(one).0).collect::<Vec<_>>())
    .bind(each().map(|one| names(one).1).collect::<Vec<_>>())
    .bind(each().map(|one| names(one).2).collect::<Vec<_>>())
    .bind(each().map(|one| number(one.pending)).collect::<Vec<_>>())
    .bind(
        each()
            .map(|one| one.refused.map(|(at, _)| at.as_micros()))
            .collect::<Vec<_>>(),
    )
    .bind(
        each()
            .map(|one| one.refused.map(|(_, pending)| number(pending)))
            .collect::<Vec<_>>(),
    )
    .bind(
        each()
            .map(|one| millis(one.retry_after))
            .collect::<Vec<_>>(),
    )
    .bind(last.at.as_micros())
    .bind(millis(last.took))
    .bind(
        each()
            .map(|one| number(bounds.of(one.whose)))
            .collect::<Vec<_>>(),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query(
        "-- standings: forget
        delete from backlog_standings b where micros(b.counted_at) <> $1",
    )
    .bind(last.at.as_micros())
    .execute(connection)
    .await?;
    Ok(())
}
