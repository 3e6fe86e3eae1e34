//! A tenant's ingest: never more than the limit and one bucket in any time.

use std::num::NonZeroU32;
use std::time::Duration;

use domain::ingest_limit::{IngestBucket, IngestLimit, LONGEST_DEBT};
use domain::time::Timestamp;
use proptest::prelude::*;

const T0: Timestamp = Timestamp::from_millis(1_700_000_000_000);

proptest! {
    /// Whatever their size, at any times.
    #[test]
    fn no_time_takes_more_than_its_refill_a_bucket_and_a_request(
        limit in 1_u32..2_000,
        requests in prop::collection::vec((0_u64..3_000_000, 1_u32..=1_000), 1..60),
    ) {
        let of = IngestLimit(NonZeroU32::new(limit).unwrap());
        let mut bucket = IngestBucket::full(T0);
        let mut now = T0;
        let mut taken: Vec<(Timestamp, u64)> = Vec::new();
        for (pause, events) in requests {
            now = now + Duration::from_micros(pause);
            if let Ok(next) = bucket.take(of, now, events) {
                bucket = next;
                taken.push((now, u64::from(events)));
            }
        }
        for (first, (from, _)) in taken.iter().enumerate() {
            let mut sum = 0;
            for (until, events) in &taken[first..] {
                sum += events;
                let refill = until.micros_since(*from) as u64 * u64::from(limit) / 1_000_000 + 1;
                prop_assert!(sum <= u64::from(limit) + refill + 1_000);
            }
        }
    }

    /// Who waits as long as told is taken; a moment earlier is too early.
    #[test]
    fn the_wait_is_right(limit in 1_u32..2_000, first in 1_u32..=1_000, second in 1_u32..=1_000) {
        let of = IngestLimit(NonZeroU32::new(limit).unwrap());
        let bucket = IngestBucket::full(T0).take(of, T0, first).expect("a full bucket takes all");
        if let Err(wait) = bucket.take(of, T0, second) {
            prop_assert!(bucket.take(of, T0 + wait, second).is_ok());
            let early = T0 + (wait - Duration::from_micros(1));
            prop_assert!(bucket.take(of, early, second).is_err());
        }
        prop_assert_eq!(bucket.at(of, T0 + bucket.full_after(of)).left(of), limit);
    }

    /// Deliveries are charged when they are known, and waited for afterwards: at the
    /// limit, and never for longer than a minute and a bucket.
    #[test]
    fn what_is_charged_is_waited_for(limit in 20_u32..2_000, deliveries in 1_u32..10_000_000) {
        let of = IngestLimit(NonZeroU32::new(limit).unwrap());
        let bucket = IngestBucket::full(T0).charge(of, T0, deliveries);
        let wait = bucket.take(of, T0, 1).err().unwrap_or_default();
        let seconds = f64::from(deliveries.saturating_sub(limit - 1)) / f64::from(limit);
        let expected = seconds.min(60.0 + 1.0 / f64::from(limit));
        prop_assert!((wait.as_secs_f64() - expected).abs() < 0.001, "{wait:?}, {expected}");
    }

    /// A limit that is lowered is waited for as long as a minute, or a bucket and a
    /// request of its own, and what is given back is as if it had not been taken.
    #[test]
    fn a_debt_is_of_the_limit_in_force(
        high in 1_u32..1_000_000_000,
        low in 1_u32..2_000,
        times in 1_usize..100,
        events in 1_u32..=1_000,
    ) {
        let [high, low] = [high, low].map(|limit| IngestLimit(NonZeroU32::new(limit).unwrap()));
        let mut bucket = IngestBucket::full(T0);
        for _ in 0..times {
            bucket = bucket.take(high, T0, events).unwrap_or(bucket);
        }
        let request = Duration::from_secs(1_000) / low.0.get();
        let longest = Duration::from_secs(1) + request.max(LONGEST_DEBT);
        if let Err(wait) = bucket.take(low, T0, events) {
            prop_assert!(wait <= longest);
        }
        let full = IngestBucket::full(T0);
        let taken = full.take(low, T0, events).unwrap();
        prop_assert_eq!(taken.give_back(events), full);
    }
}
