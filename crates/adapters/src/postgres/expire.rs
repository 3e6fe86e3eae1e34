//! Attempts that grew too old while they waited.

use engine::ports::TOO_OLD;
use sqlx::PgConnection;

use super::failure::Failure;
use super::over::moving;
use super::rows::count;

/// A step of them, those first that expired first. What has a permit keeps it
/// until that ends.
pub(super) async fn expire(connection: &mut PgConnection, limit: u32) -> Result<u32, Failure> {
    let expired = sqlx::query(moving(
        "-- reap: expire
        with clock as materialized (select clock_timestamp() as now),
        locked as materialized (
            select a.id from deliveries a
            where a.permit is null and a.expires_at <= (select now from clock)
            order by a.expires_at
            limit $1
            for update skip locked
        ),
        gone as (
            delete from deliveries a using locked l where a.id = any (array[l.id]) returning a.*
        )
        insert into ledger ({kept}, state, dead_letter, finished_at, error)
        select {kept}, 'expired', true, (select now from clock), $2 from gone",
    ))
    .bind(i64::from(limit))
    .bind(TOO_OLD)
    .execute(connection)
    .await?;
    Ok(count(
        i64::try_from(expired.rows_affected()).unwrap_or(i64::MAX),
    ))
}
