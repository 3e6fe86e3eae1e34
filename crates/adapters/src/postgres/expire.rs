//! Attempts that grew too old while they waited.

use sqlx::PgConnection;

use super::failure::Failure;
use super::rows::count;

/// A step of them, those first that expired first. What has a permit keeps it
/// until that ends.
pub(super) async fn expire(connection: &mut PgConnection, limit: u32) -> Result<u32, Failure> {
    let expired = sqlx::query(
        "-- reap: expire
        with clock as materialized (select clock_timestamp() as now),
        locked as materialized (
            select a.id from attempts a
            where a.state = 'waiting' and a.expires_at <= (select now from clock)
                and a.id >= (select o.attempt_id from attempts_horizon o where o.id = 1)
            order by a.expires_at
            limit $1
            for update skip locked
        )
        update attempts a
        set state = 'expired', dead_letter = true, finished_at = (select now from clock),
            error = 'it was older than the destination''s max_age'
        from locked l
        where a.id = l.id",
    )
    .bind(i64::from(limit))
    .execute(connection)
    .await?;
    Ok(count(
        i64::try_from(expired.rows_affected()).unwrap_or(i64::MAX),
    ))
}
