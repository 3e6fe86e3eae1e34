//! A tenant's ingest: never more than the limit and one bucket in any time.

use std::num::NonZeroU32;
use std::time::Duration;

use domain::ingest_limit::{IngestBucket, IngestLimit};
use domain::time::Timestamp;
use proptest::prelude::*;

const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);

proptest! {
    /// Batches that fit into the bucket, at any times.
    #[test]
    fn no_time_takes_more_than_its_refill_and_one_bucket(
        limit in 1_u32..2_000,
        requests in prop::collection::vec((0_u64..3_000_000, 1_u32..2_000), 1..60),
    ) {
        let of = IngestLimit(NonZeroU32::new(limit).unwrap());
        let mut bucket = IngestBucket::full(T0);
        let mut now = T0;
        let mut taken: Vec<(Timestamp, u64)> = Vec::new();
        for (pause, events) in requests {
            now = now + Duration::from_micros(pause);
            if let Ok(next) = bucket.take(of, now, events.min(limit)) {
                bucket = next;
                taken.push((now, u64::from(events.min(limit))));
            }
        }
        for (first, (from, _)) in taken.iter().enumerate() {
            let mut sum = 0;
            for (until, events) in &taken[first..] {
                sum += events;
                let refill = until.micros_since(*from) as u64 * u64::from(limit) / 1_000_000 + 1;
                prop_assert!(sum <= u64::from(limit) + refill);
            }
        }
    }

    /// Who waits as long as told is taken; a moment earlier is too early.
    #[test]
    fn the_wait_is_right(limit in 1_u32..2_000, first in 1_u32..5_000, second in 1_u32..5_000) {
        let of = IngestLimit(NonZeroU32::new(limit).unwrap());
        let bucket = IngestBucket::full(T0).take(of, T0, first).expect("a full bucket takes all");
        if let Err(wait) = bucket.take(of, T0, second) {
            prop_assert!(bucket.take(of, T0 + wait, second).is_ok());
            let early = T0 + (wait - Duration::from_micros(1));
            prop_assert!(bucket.take(of, early, second).is_err());
        }
        prop_assert_eq!(bucket.at(of, T0 + bucket.full_after(of)).left(of), limit);
    }
}
