//! Workers' signs of life.

use domain::ids::TenantId;
use domain::share::Load;
use domain::time::{Timestamp, micros};
use engine::ports::{Fleet, HEARTBEAT_TIMEOUT, Heartbeat};
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::failure::Failure;
use super::rows::count;

/// Notes the heartbeat, unless the worker has lapsed or retired: what was
/// given up stays given up.
pub(super) async fn heartbeat(pool: &PgPool, heartbeat: &Heartbeat) -> Result<Timestamp, Failure> {
    let now: i64 = sqlx::query_scalar(
        "-- heartbeat
        with clock as materialized (select clock_timestamp() as now),
        beaten as (
            insert into workers as w (id, places, seen_at, retired)
            select $1::uuid, $2::int, clock.now, $2::int = 0 from clock
            on conflict (id) do update
            set places = excluded.places, seen_at = excluded.seen_at, retired = excluded.retired
            where not w.retired
                and w.seen_at >= excluded.seen_at - $3::bigint * interval '1 microsecond'
        )
        select micros(clock.now) from clock",
    )
    .bind(heartbeat.worker.0)
    .bind(i32::try_from(heartbeat.places).unwrap_or(i32::MAX))
    .bind(micros(HEARTBEAT_TIMEOUT))
    .fetch_one(pool)
    .await?;
    Ok(Timestamp::from_micros(now))
}

/// The fleet as it is now.
pub(super) async fn fleet(reader: impl PgExecutor<'_>) -> Result<Fleet, Failure> {
    type Row = (i64, i64, i64, Vec<Uuid>, Vec<i64>, Vec<i64>);
    let (now, workers, places, tenants, outstanding, in_flight): Row = sqlx::query_as(
        "-- fleet
        with clock as materialized (select clock_timestamp() as now)
        select micros(clock.now), live.workers, live.places,
            loads.tenants, loads.outstanding, loads.in_flight
        from clock
        cross join lateral (
            select coalesce(array_agg(l.tenant_id order by l.tenant_id), '{}') as tenants,
                coalesce(array_agg(l.outstanding order by l.tenant_id), '{}') as outstanding,
                coalesce(array_agg(l.in_flight order by l.tenant_id), '{}') as in_flight
            from (
                select b.tenant_id, b.outstanding, b.in_flight
                from (
                    select a.tenant_id, count(*) filter (where a.state = 'admitted') as outstanding,
                        count(*) filter (where a.state = 'started') as in_flight
                    from deliveries a where a.permit is not null and a.carried_by is null
                    group by a.tenant_id
                ) b
                where b.outstanding + b.in_flight > 0
            ) l
        ) loads
        cross join lateral (
            select count(*) as workers, coalesce(sum(w.places), 0)::bigint as places
            from workers w
            where not w.retired
                and w.seen_at >= clock.now - $1::bigint * interval '1 microsecond'
        ) live",
    )
    .bind(micros(HEARTBEAT_TIMEOUT))
    .fetch_one(reader)
    .await?;
    let held = outstanding.iter().zip(in_flight);
    let loads = tenants.into_iter().zip(held);
    Ok(Fleet {
        now: Timestamp::from_micros(now),
        workers: count(workers),
        places: count(places),
        outstanding: count(outstanding.iter().sum()),
        loads: loads
            .map(|(tenant, (outstanding, in_flight))| Load {
                tenant: TenantId(tenant),
                outstanding: count(*outstanding),
                in_flight: count(in_flight),
            })
            .collect(),
    })
}
