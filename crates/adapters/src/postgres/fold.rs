//! Starts that coarse limits count, in buckets.
//!
//! A start is folded once, by its row: whoever sets `folded` adds it here, in
//! the same transaction.

use domain::ids::DestinationId;
use domain::limit::Period;
use domain::time::{Timestamp, micros};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::failure::Failure;

/// How many rows share a bucket, so that workers seldom wait for each other.
const SHARDS: u8 = 8;

/// The shard of a worker, or of nobody in particular.
pub(super) fn shard(worker: Option<Uuid>) -> i16 {
    worker.map_or(0, |id| i16::from(id.as_bytes()[15] % SHARDS))
}

/// The part of a statement that counts the starts of `from` in all periods: a destination
/// each, and an instant in microseconds. From `$first` on it is bound a shard and what
/// [`periods`] says.
///
/// The end of a bucket is exclusive. They are written in the order of the key: two that add
/// to the same buckets lock them in the same order. `offset 0`: where nothing has started,
/// no period is looked at.
pub(super) fn count_of(from: &str, first: usize) -> String {
    let (periods, widths) = (first + 1, first + 2);
    format!(
        "insert into start_buckets as b (destination_id, period, ends_at, shard, starts)
        select s.destination_id, p.period, p.ends_at, ${first}::smallint, count(*)::integer
        from {from} as s (destination_id, at)
        cross join lateral (
            select p.period, from_micros((s.at / p.width + 1) * p.width) as ends_at
            from unnest(${periods}::text[], ${widths}::bigint[]) as p (period, width)
            offset 0
        ) p
        group by 1, 2, 3
        order by 1, 2, 3
        on conflict (destination_id, period, ends_at, shard)
        do update set starts = b.starts + excluded.starts"
    )
}

/// The periods, and how long a bucket of each is.
pub(super) fn periods() -> (Vec<&'static str>, Vec<i64>) {
    let each = |period: Period| (period.as_str(), micros(period.bucket()));
    Period::ALL.map(each).into_iter().unzip()
}

/// Counts these starts in all periods.
pub(super) async fn add_starts(
    connection: &mut PgConnection,
    starts: impl IntoIterator<Item = (DestinationId, Timestamp)>,
    shard: i16,
) -> Result<(), Failure> {
    let (destinations, instants): (Vec<Uuid>, Vec<i64>) = (starts.into_iter())
        .map(|(destination, start)| (destination.0, start.as_micros()))
        .unzip();
    if destinations.is_empty() {
        return Ok(());
    }
    let (periods, widths) = periods();
    let counting = count_of("unnest($1::uuid[], $2::bigint[])", 3);
    sqlx::query(AssertSqlSafe(format!("-- fold: add_starts\n{counting}")))
        .bind(destinations)
        .bind(instants)
        .bind(shard)
        .bind(periods)
        .bind(widths)
        .execute(connection)
        .await?;
    Ok(())
}
