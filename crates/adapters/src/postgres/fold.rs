//! Starts that coarse limits count, in buckets.
//!
//! A start is folded once, by its row: whoever sets `folded` adds it here, in
//! the same transaction.

use std::collections::BTreeMap;

use domain::ids::DestinationId;
use domain::limit::Period;
use domain::time::{Timestamp, micros};
use sqlx::PgConnection;
use uuid::Uuid;

use super::failure::Failure;

/// How many rows share a bucket, so that workers seldom wait for each other.
const SHARDS: u8 = 8;

/// The shard of a worker, or of nobody in particular.
pub(super) fn shard(worker: Option<Uuid>) -> i16 {
    worker.map_or(0, |id| i16::from(id.as_bytes()[15] % SHARDS))
}

/// Counts these starts in all periods.
pub(super) async fn add_starts(
    connection: &mut PgConnection,
    starts: impl IntoIterator<Item = (DestinationId, Timestamp)>,
    shard: i16,
) -> Result<(), Failure> {
    // In the order of the key: two that add to the same buckets lock them in
    // the same order.
    let mut buckets: BTreeMap<(Uuid, &'static str, i64), i32> = BTreeMap::new();
    for (destination, start) in starts {
        for period in Period::ALL {
            let key = (destination.0, period.as_str(), bucket_end(period, start));
            *buckets.entry(key).or_default() += 1;
        }
    }
    if buckets.is_empty() {
        return Ok(());
    }
    let (mut ids, mut periods, mut ends, mut counts) = (vec![], vec![], vec![], vec![]);
    for ((id, period, end), starts) in buckets {
        ids.push(id);
        periods.push(period);
        ends.push(end);
        counts.push(starts);
    }
    sqlx::query(
        "-- fold: add_starts
        insert into start_buckets as b (destination_id, period, ends_at, shard, starts)
        select n.destination_id, n.period, from_micros(n.ends_at), $5, n.starts
        from unnest($1::uuid[], $2::text[], $3::bigint[], $4::integer[])
            as n (destination_id, period, ends_at, starts)
        on conflict (destination_id, period, ends_at, shard)
        do update set starts = b.starts + excluded.starts",
    )
    .bind(ids)
    .bind(periods)
    .bind(ends)
    .bind(counts)
    .bind(shard)
    .execute(connection)
    .await?;
    Ok(())
}

/// The end, exclusive, of the bucket that holds `start`.
fn bucket_end(period: Period, start: Timestamp) -> i64 {
    let width = micros(period.bucket());
    (start.as_micros().div_euclid(width) + 1) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_after_every_start_in_it() {
        for start in [0, 1, 4_999, 5_000, 1_790_000_000_123_456] {
            let end = bucket_end(Period::Second, Timestamp::from_micros(start));
            assert!(
                end > start && end - start <= 5_000,
                "{start} in the one until {end}"
            );
        }
    }
}
