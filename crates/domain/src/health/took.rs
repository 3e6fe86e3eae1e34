//! How long answers took, counted in few buckets: what a slot of the tallies keeps.

use std::ops::AddAssign;
use std::time::Duration;

use crate::time::micros;

const BOUND_COUNT: usize = 33;

/// Where buckets end, exclusive, in microseconds: two for each doubling, from a
/// millisecond to more than the longest request.
pub const LATENCY_BOUNDS: [i64; BOUND_COUNT] = bounds();

const fn bounds() -> [i64; BOUND_COUNT] {
    let mut bounds = [0; BOUND_COUNT];
    let mut at = 0;
    while at < BOUND_COUNT {
        // 1,414 is half-way to the next doubling.
        let first = if at.is_multiple_of(2) { 1_000 } else { 1_414 };
        bounds[at] = first << (at / 2);
        at += 1;
    }
    bounds
}

/// So many buckets: one ends at each bound, and the last one never.
const BUCKETS: usize = BOUND_COUNT + 1;

/// How many answers took how long.
///
/// ```
/// use domain::health::Took;
/// use std::time::Duration;
/// let mut took = Took::default();
/// (1..=100).for_each(|ms| took.add(Duration::from_millis(ms)));
/// let p50 = took.quantile(0.5).unwrap().as_secs_f64();
/// assert!((p50 / 0.050 - 1.0).abs() < 0.1, "{p50}");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took([u64; BUCKETS]);

impl Default for Took {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Took {
    /// Of counts as they are kept, bucket by bucket; what is beyond the last bucket is
    /// in it.
    pub fn of(counts: impl IntoIterator<Item = u64>) -> Self {
        let mut took = Self::default();
        for (bucket, count) in counts.into_iter().enumerate() {
            took.add_to(bucket, count);
        }
        took
    }

    /// Counts an answer.
    pub fn add(&mut self, latency: Duration) {
        let latency = micros(latency);
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound <= latency);
        self.add_to(bucket, 1);
    }

    /// Counts so many answers of one bucket.
    pub fn add_to(&mut self, bucket: usize, answers: u64) {
        let count = &mut self.0[bucket.min(BUCKETS - 1)];
        *count = count.saturating_add(answers);
    }

    /// How many answers.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The counts as they are kept: those at the end that are zero are left out.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        let used = self.0.iter().rposition(|count| *count > 0);
        &self.0[..used.map_or(0, |last| last + 1)]
    }

    /// The latency that this part of them (0 to 1) is not above: less than the width of
    /// its bucket wrong, which is by two fifths, and mostly by a few per cent. `None` if
    /// there are none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let answers = self.answers();
        let rank = ((part.clamp(0.0, 1.0) * answers as f64).ceil() as u64).max(1);
        let mut before = 0;
        for (bucket, count) in self.0.into_iter().enumerate() {
            if before + count >= rank {
                let within = ((rank - before) as f64 - 0.5) / count as f64;
                return Some(between(bucket, within));
            }
            before += count;
        }
        None
    }
}

/// As if what is in a bucket were spread over it evenly, on a scale of doublings.
fn between(bucket: usize, within: f64) -> Duration {
    let bound = |at: usize| LATENCY_BOUNDS.get(at).map(|bound| *bound as f64);
    let from = bucket.checked_sub(1).and_then(bound);
    let half = f64::sqrt(2.0);
    let to = bound(bucket).unwrap_or_else(|| from.unwrap_or_default() * half);
    let from = from.unwrap_or(to / half);
    Duration::from_secs_f64(from * (to / from).powf(within) / 1e6)
}

impl AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_grow_by_half_a_doubling_beyond_the_longest_request() {
        assert_eq!(LATENCY_BOUNDS[..5], [1_000, 1_414, 2_000, 2_828, 4_000]);
        assert_eq!(LATENCY_BOUNDS[BOUND_COUNT - 1], 65_536_000);
        assert!(LATENCY_BOUNDS.is_sorted());
    }

    #[test]
    fn counts_are_kept_without_the_empty_end_and_read_again() {
        let mut took = Took::default();
        assert_eq!((took.counts(), took.quantile(0.5)), (&[][..], None));
        took.add(Duration::ZERO);
        took.add(Duration::from_micros(2_000));
        took.add_to(3, 4);
        assert_eq!(took.counts(), [1, 0, 0, 5]);
        assert_eq!(Took::of(took.counts().iter().copied()), took);
        let mut both = took;
        both += took;
        assert_eq!((both.answers(), both.counts()), (12, &[2, 0, 0, 10][..]));
        took.add_to(usize::MAX, 1);
        assert_eq!(took.counts().len(), BUCKETS);
    }

    proptest! {
        /// However they are spread.
        #[test]
        fn a_quantile_is_in_the_bucket_of_the_true_one(
            mut micros in prop::collection::vec(0_u64..90_000_000, 1..200),
            part in 0.0_f64..=1.0,
        ) {
            let mut took = Took::default();
            micros.iter().for_each(|one| took.add(Duration::from_micros(*one)));
            micros.sort_unstable();
            let rank = ((part * micros.len() as f64).ceil() as usize).max(1);
            let truth = (micros[rank - 1] as f64).clamp(1_000.0 / 1.5, 92_000_000.0);
            let found = took.quantile(part).unwrap().as_secs_f64() * 1e6;
            let ratio = found / truth;
            prop_assert!((1.0 / 1.5..=1.5).contains(&ratio), "{found} of {truth}");
            prop_assert_eq!(took.answers(), micros.len() as u64);
        }
    }
}
