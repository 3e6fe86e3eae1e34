//! Workers' signs of life.

use domain::time::{Timestamp, micros};
use engine::ports::{Fleet, HEARTBEAT_TIMEOUT, Heartbeat};
use sqlx::{PgExecutor, PgPool};

use super::failure::Failure;
use super::rows::count;

/// Notes the heartbeat, unless the worker has lapsed or retired: what was
/// given up stays given up.
pub(super) async fn heartbeat(pool: &PgPool, heartbeat: &Heartbeat) -> Result<Fleet, Failure> {
    sqlx::query(
        "-- heartbeat
        insert into workers as w (id, places, seen_at, retired)
        values ($1, $2, clock_timestamp(), $2 = 0)
        on conflict (id) do update
        set places = excluded.places, seen_at = excluded.seen_at, retired = excluded.retired
        where not w.retired
            and w.seen_at >= excluded.seen_at - $3::bigint * interval '1 microsecond'",
    )
    .bind(heartbeat.worker.0)
    .bind(i32::try_from(heartbeat.places).unwrap_or(i32::MAX))
    .bind(micros(HEARTBEAT_TIMEOUT))
    .execute(pool)
    .await?;
    fleet(pool).await
}

/// The fleet as it is now.
pub(super) async fn fleet(reader: impl PgExecutor<'_>) -> Result<Fleet, Failure> {
    let (now, workers, places, outstanding): (i64, i64, i64, i64) = sqlx::query_as(
        "-- fleet
        with clock as materialized (select clock_timestamp() as now)
        select micros(clock.now), live.workers, live.places,
            (select count(*) from attempts where state = 'admitted')
        from clock
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
    Ok(Fleet {
        now: Timestamp::from_micros(now),
        workers: count(workers),
        places: count(places),
        outstanding: count(outstanding),
    })
}
