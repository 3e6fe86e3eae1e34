//! What outcomes make of effective limits, in the transaction that records
//! them, and what people see of it; see [`engine::ports::SmartBook`].
//!
//! Only destinations with smart delivery come here, each once a batch. Their
//! rows are locked after destinations and health. A user's transaction may hold
//! one for as long as it likes, by a change of the URL; outcomes do not wait for
//! it. What they say of how much the receiver takes is lost then, and what the
//! next ones say is not.

use std::collections::{BTreeMap, HashMap};

use async_trait::async_trait;
use domain::health::Health;
use domain::ids::{DestinationId, TenantId};
use domain::policy::Policy;
use domain::smart::{Ceiling, Effective, Sample, SmartDelivery, Verdict};
use domain::time::Timestamp;
use engine::ports::{CatalogError, SMART_HISTORY_DAYS, SmartBook, SmartChange, SmartView};
use sqlx::{Connection, PgConnection, PgPool};
use uuid::Uuid;

use super::PostgresStore;
use super::failure::{Failure, retried};
use super::rows::{LimitColumns, count, integer, word};
use crate::row::row;
use crate::smart_memory;

/// The answers of a batch, by destination.
pub(super) type Samples = BTreeMap<Uuid, Vec<Sample>>;

row! {
    /// A destination with smart delivery.
    struct Row {
        now: i64,
        id: Uuid,
        numbers: Vec<Option<i32>>,
        unlimited: bool,
        shape: Option<String>,
        safety_margin: Option<f64>,
        margin_cap: Option<f64>,
        count: Option<String>,
        tier_numbers: Vec<Option<i32>>,
        tier_unlimited: bool,
        tier_shape: Option<String>,
        begun_at: i64,
        memory: Option<String>,
    }
}

impl Row {
    fn policy(&self) -> Result<Policy, Failure> {
        let own = LimitColumns {
            table: "destinations",
            row: &self.id,
            numbers: &self.numbers,
            unlimited: self.unlimited,
            shape: self.shape.as_deref(),
            safety_margin: self.safety_margin,
            margin_cap: self.margin_cap,
            count: self.count.as_deref(),
        };
        let tier = LimitColumns {
            table: "tiers",
            row: &self.id,
            numbers: &self.tier_numbers,
            unlimited: self.tier_unlimited,
            shape: self.tier_shape.as_deref(),
            safety_margin: None,
            margin_cap: None,
            count: None,
        };
        Ok(own.settings()?.or_tier(&tier.settings()?).policy())
    }
}

/// What the batch came to for one destination.
struct Judged {
    id: Uuid,
    effective: Effective,
    verdict: Verdict,
}

/// Judges, and writes it down.
pub(super) async fn judge(
    connection: &mut PgConnection,
    samples: &Samples,
    health: &HashMap<Uuid, Health>,
) -> Result<(), Failure> {
    if samples.is_empty() {
        return Ok(());
    }
    let ids: Vec<Uuid> = samples.keys().copied().collect();
    let ids = lock(connection, &ids).await?;
    let mut judged = Vec::new();
    for row in read(connection, &ids).await? {
        let Some(ceiling) = Ceiling::of(&row.policy()?) else {
            continue;
        };
        let now = Timestamp::from_micros(row.now);
        let begun_at = Timestamp::from_micros(row.begun_at);
        let smart = smart_memory::read(row.memory.as_deref(), &ceiling, begun_at);
        let held_until = health.get(&row.id).and_then(Health::held_until);
        let of_one = samples.get(&row.id).map_or(&[][..], Vec::as_slice);
        let verdict = smart.observe(&ceiling, of_one, (now, held_until));
        judged.push(Judged {
            id: row.id,
            effective: verdict.smart.effective(&ceiling),
            verdict,
        });
    }
    write(connection, &judged).await?;
    judged.retain(|one| one.verdict.is_news);
    note(connection, &judged).await
}

/// So that of two batches one counts after the other. Which of the rows are ours
/// now: most of the time all, at once.
async fn lock(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Uuid>, Failure> {
    let mut locked: Vec<Uuid> = sqlx::query_scalar(
        "-- record_outcomes: lock_smart
        select s.destination_id from smart_limits s
        where s.destination_id = any ($1)
        order by s.destination_id
        for update skip locked",
    )
    .bind(ids)
    .fetch_all(&mut *connection)
    .await?;
    let is_left = |id: &&Uuid| locked.binary_search(id).is_err();
    let left: Vec<Uuid> = ids.iter().filter(is_left).copied().collect();
    if !left.is_empty() {
        locked.extend(lock_soon(connection, &left).await?);
    }
    Ok(locked)
}

/// Waits for other batches, not for a transaction that stays open. Two that
/// wait for each other give up as well: these rows are not locked in one order
/// with the first ones.
async fn lock_soon(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Uuid>, Failure> {
    let mut waiting = connection.begin().await?;
    sqlx::query("-- record_outcomes: wait_a_little\nset local lock_timeout = '50ms'")
        .execute(&mut *waiting)
        .await?;
    let locked: Result<Vec<Uuid>, sqlx::Error> = sqlx::query_scalar(
        "-- record_outcomes: lock_smart_soon
        select s.destination_id from smart_limits s
        where s.destination_id = any ($1)
        order by s.destination_id
        for update",
    )
    .bind(ids)
    .fetch_all(&mut *waiting)
    .await;
    match locked.map_err(Failure::from) {
        Ok(locked) => {
            sqlx::query("-- record_outcomes: wait_as_ever\nset local lock_timeout to default")
                .execute(&mut *waiting)
                .await?;
            waiting.commit().await?;
            Ok(locked)
        }
        Err(failure) if failure.is_lock_timeout() => {
            waiting.rollback().await?;
            Ok(Vec::new())
        }
        Err(failure) => Err(failure),
    }
}

async fn read(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<Row>, Failure> {
    Ok(sqlx::query_as(
        "-- record_outcomes: read_smart
        with clock as materialized (select micros(clock_timestamp()) as now)
        select clock.now, d.id,
            array[
                d.limit_per_second, d.limit_per_minute, d.limit_per_hour, d.limit_per_day,
                d.burst, d.max_in_flight, d.allowed_per_minute
            ] as numbers,
            d.unlimited, d.shape, d.safety_margin, d.margin_cap, d.count,
            array[
                t.limit_per_second, t.limit_per_minute, t.limit_per_hour, t.limit_per_day,
                t.burst, t.max_in_flight
            ] as tier_numbers,
            t.unlimited as tier_unlimited, t.shape as tier_shape,
            micros(s.begun_at) as begun_at, s.memory
        from clock
        join smart_limits s on s.destination_id = any ($1)
        join destinations d on d.id = any (array[s.destination_id])
        join tenants n on n.id = any (array[d.tenant_id])
        join tiers t on t.name = n.tier",
    )
    .bind(ids)
    .fetch_all(connection)
    .await?)
}

async fn write(connection: &mut PgConnection, judged: &[Judged]) -> Result<(), Failure> {
    sqlx::query(
        "-- record_outcomes: write_smart
        update smart_limits s
        set per_second = n.per_second, max_in_flight = n.max_in_flight, reason = n.reason,
            memory = n.memory
        from unnest(
            $1::uuid[], $2::double precision[], $3::integer[], $4::text[], $5::text[]
        ) as n (id, per_second, max_in_flight, reason, memory)
        where s.destination_id = any (array[n.id])",
    )
    .bind(of(judged, |one| one.id))
    .bind(of(judged, |one| one.effective.per_second))
    .bind(of(judged, |one| one.effective.max_in_flight.map(integer)))
    .bind(of(judged, |one| one.verdict.smart.reason.as_str()))
    .bind(of(judged, |one| smart_memory::write(&one.verdict.smart)))
    .execute(connection)
    .await?;
    Ok(())
}

/// Writes history, and forgets what is old of it.
async fn note(connection: &mut PgConnection, news: &[Judged]) -> Result<(), Failure> {
    if news.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "-- record_outcomes: note_smart
        with forgotten as (
            delete from smart_history h
            using unnest($1::uuid[]) as n (id)
            where h.destination_id = any (array[n.id])
                -- What was in force then stays.
                and h.in_force_from < (
                    select max(o.in_force_from) from smart_history o
                    where o.destination_id = n.id
                        and o.in_force_from < clock_timestamp() - make_interval(days => $5)
                )
        )
        insert into smart_history (
            destination_id, in_force_from, per_second, max_in_flight, reason
        )
        select n.id, clock_timestamp(), n.per_second, n.max_in_flight, n.reason
        from unnest($1::uuid[], $2::double precision[], $3::integer[], $4::text[])
            as n (id, per_second, max_in_flight, reason)",
    )
    .bind(of(news, |one| one.id))
    .bind(of(news, |one| one.effective.per_second))
    .bind(of(news, |one| one.effective.max_in_flight.map(integer)))
    .bind(of(news, |one| one.verdict.smart.reason.as_str()))
    .bind(integer(SMART_HISTORY_DAYS))
    .execute(connection)
    .await?;
    Ok(())
}

fn of<T>(judged: &[Judged], column: impl Fn(&Judged) -> T) -> Vec<T> {
    judged.iter().map(column).collect()
}

#[async_trait]
impl SmartBook for PostgresStore {
    async fn smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
    ) -> Result<SmartView, CatalogError> {
        let found = retried(|| view(&self.pool, tenant, destination)).await?;
        found.ok_or(CatalogError::NotFound("destination"))
    }

    async fn set_smart_delivery(
        &self,
        tenant: TenantId,
        destination: DestinationId,
        to: SmartDelivery,
    ) -> Result<(), CatalogError> {
        let found = retried(|| set(&self.pool, tenant, destination, to)).await?;
        let there = found.then_some(());
        there.ok_or(CatalogError::NotFound("destination"))
    }

    async fn smart_history(
        &self,
        destination: DestinationId,
        until: Timestamp,
        limit: u32,
    ) -> Result<Vec<SmartChange>, CatalogError> {
        Ok(retried(|| history(&self.pool, destination, until, limit)).await?)
    }
}

fn effective(per_second: Option<f64>, max_in_flight: Option<i32>) -> Effective {
    Effective {
        per_second,
        max_in_flight: max_in_flight.map(|number| count(i64::from(number))),
    }
}

async fn view(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
) -> Result<Option<SmartView>, Failure> {
    let row: Option<(bool, Option<f64>, Option<i32>, String)> = sqlx::query_as(
        "-- smart_delivery
        select d.smart_delivery, s.per_second, s.max_in_flight,
            coalesce(s.reason, 'configured') as reason
        from destinations d
        left join smart_limits s on s.destination_id = any (array[d.id])
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .fetch_optional(pool)
    .await?;
    let view = |(is_on, per_second, max_in_flight, reason): (bool, _, _, String)| {
        Ok(SmartView {
            delivery: match is_on {
                true => SmartDelivery::On,
                false => SmartDelivery::Off,
            },
            effective: effective(per_second, max_in_flight),
            reason: word("smart_limits", "reason", id, &reason)?,
        })
    };
    row.map(view).transpose()
}

/// The trigger does the rest. Whether it is there.
async fn set(
    pool: &PgPool,
    tenant: TenantId,
    id: DestinationId,
    to: SmartDelivery,
) -> Result<bool, Failure> {
    let set = sqlx::query(
        "-- set_smart_delivery
        update destinations d set smart_delivery = $3
        where d.id = $1 and d.tenant_id = $2 and d.deleted_at is null",
    )
    .bind(id.0)
    .bind(tenant.0)
    .bind(to == SmartDelivery::On)
    .execute(pool)
    .await?;
    Ok(set.rows_affected() > 0)
}

async fn history(
    pool: &PgPool,
    id: DestinationId,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<SmartChange>, Failure> {
    let rows: Vec<(i64, Option<f64>, Option<i32>, String)> = sqlx::query_as(
        "-- smart_history
        select micros(h.in_force_from), h.per_second, h.max_in_flight, h.reason
        from smart_history h
        where h.destination_id = $1
            and h.in_force_from < coalesce(from_micros($2), 'infinity')
        order by h.in_force_from desc, h.id desc
        limit $3",
    )
    .bind(id.0)
    // The last time there is has no interval in SQL.
    .bind((until < Timestamp::MAX).then(|| until.as_micros()))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await?;
    let change = |(at, per_second, max_in_flight, reason): (i64, _, _, String)| {
        Ok(SmartChange {
            in_force_from: Timestamp::from_micros(at),
            effective: effective(per_second, max_in_flight),
            reason: word("smart_history", "reason", id, &reason)?,
        })
    };
    rows.into_iter().map(change).collect()
}
