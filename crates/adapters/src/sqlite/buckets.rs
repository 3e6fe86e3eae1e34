//! Coarse buckets of starts: each start is folded once, when its row becomes
//! final, into one bucket of each period.
//!
//! There is one writer, so one shard: Postgres spreads them over several.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::limit::Period;
use domain::policy::MAX_SAFETY_MARGIN;
use domain::time::{Timestamp, micros};
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{Held, all, execute, time};

const ADD: &str = "
    -- fold: add to a bucket
    insert into start_buckets (destination_id, period, ends_at, shard, starts)
    values (?1, ?2, ?3, 0, ?4)
    on conflict do update set starts = starts + excluded.starts";

const FINAL_ROWS: &str = "
    -- fold: starts that are final and in no bucket, the oldest first
    select id, started_at from ledger indexed by ledger_starts
    where destination_id = ?1 and folded = 0 and started_at > ?2 and carried_by is null
    order by started_at limit ?3";

const MARK_FOLDED: &str = "
    -- fold: it is in its buckets
    update ledger set folded = 1 where id = ?1";

const DELETE_OLD: &str = "
    -- reap: buckets that no window reaches any more
    delete from start_buckets where (destination_id, period, ends_at, shard) in (
        select destination_id, period, ends_at, shard from start_buckets
        where period = ?1 and ends_at < ?2 limit ?3
    )";

/// Kept for longer than any window reaches back.
const SPARE: Duration = Duration::from_secs(60);

/// Starts to be added to buckets, gathered so that each bucket is written
/// once a step.
#[derive(Default)]
pub(super) struct Buckets {
    starts: BTreeMap<(String, Period, Timestamp), u32>,
}

impl Buckets {
    /// Adds one start.
    pub(super) fn add(&mut self, destination: &str, started_at: Timestamp) {
        for period in Period::ALL {
            let key = (destination.to_owned(), period, ends_at(period, started_at));
            *self.starts.entry(key).or_default() += 1;
        }
    }

    /// Writes them, in key order.
    pub(super) fn write(self, tx: &Transaction<'_>) -> Result<(), Fault> {
        if self.starts.is_empty() {
            return Ok(());
        }
        let mut add = Held::of(tx, ADD)?;
        for ((destination, period, ends_at), starts) in self.starts {
            let row = (destination, period.as_str(), ends_at.as_micros(), starts);
            add.execute(row)?;
        }
        Ok(())
    }
}

/// The end, exclusive, of the bucket that contains a start.
fn ends_at(period: Period, started_at: Timestamp) -> Timestamp {
    let bucket = micros(period.bucket());
    let number = started_at.as_micros().div_euclid(bucket) + 1;
    Timestamp::from_micros(number.saturating_mul(bucket))
}

/// Folds up to `count` final rows that started after `since`.
pub(super) fn fold_rows(
    tx: &Transaction<'_>,
    destination: &str,
    since: Timestamp,
    count: usize,
    buckets: &mut Buckets,
) -> Result<(), Fault> {
    let params = (
        destination,
        since.as_micros(),
        i64::try_from(count).unwrap_or(i64::MAX),
    );
    let rows = all(tx, FINAL_ROWS, params, |row| {
        Ok((row.get::<_, i64>(0)?, time(row, 1)?))
    })?;
    let mut mark = Held::of(tx, MARK_FOLDED)?;
    for (id, started_at) in rows {
        mark.execute([id])?;
        buckets.add(destination, started_at);
    }
    Ok(())
}

/// Deletes old buckets, at most `limit` of each period. The longest window is
/// stretched by the largest safety margin.
pub(super) fn delete_old(tx: &Transaction<'_>, now: Timestamp, limit: u32) -> Result<(), Fault> {
    for period in Period::ALL {
        let kept = period.duration().mul_f64(1.0 + MAX_SAFETY_MARGIN) + SPARE;
        let params = (period.as_str(), (now - kept).as_micros(), limit);
        execute(tx, DELETE_OLD, params)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_ends_after_every_start_in_it() {
        for period in Period::ALL {
            let length = micros(period.bucket());
            for start in [0, 1, length - 1, length, 1_795_237_102_228_123] {
                let start = Timestamp::from_micros(start);
                let end = ends_at(period, start);
                assert!(end > start && end <= start + period.bucket());
                assert_eq!(end.as_micros() % length, 0);
            }
        }
    }
}
