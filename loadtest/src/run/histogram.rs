//! A histogram of microseconds in little memory, for the line of progress; the
//! report's percentiles are exact.

/// Each power of two is cut into so many buckets: none is wider than a
/// sixteenth of its values.
const PARTS: u64 = 16;
const BUCKETS: usize = 64 * PARTS as usize;

/// Counts by size.
pub(crate) struct Histogram {
    counts: Box<[u32; BUCKETS]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            total: 0,
        }
    }
}

impl Histogram {
    /// Counts one.
    pub(crate) fn note(&mut self, value: u64) {
        let bucket = &mut self.counts[bucket(value)];
        *bucket = bucket.saturating_add(1);
        self.total += 1;
    }

    /// What so many per cent do not exceed, to a sixteenth; `None` of none.
    /// Begins anew.
    pub(crate) fn take_percentile(&mut self, percent: u64) -> Option<u64> {
        let wanted = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += u64::from(*count);
            seen >= wanted
        });
        *self.counts = [0; BUCKETS];
        self.total = 0;
        found.map(top)
    }
}

fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let power = u64::from(value.ilog2());
    let part = (value >> (power - 4)) - PARTS;
    ((power - 3) * PARTS + part) as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let (power, part) = (bucket as u64 / PARTS, bucket as u64 % PARTS);
    if power == 0 {
        return part;
    }
    ((PARTS + part + 1) << (power - 1)).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_a_bucket_that_is_hardly_larger() {
        for value in (0..100_000).chain([1 << 40, (1 << 62) + 12_345]) {
            let top = top(bucket(value));
            assert!(top >= value && top - value <= value / 16, "{value} {top}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_begin_anew_when_taken() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.take_percentile(99), None);
        (1..=1_000).for_each(|value| histogram.note(value));
        assert_eq!(histogram.take_percentile(50), Some(511));
        assert_eq!(histogram.take_percentile(99), None);
        histogram.note(3);
        assert_eq!(histogram.take_percentile(99), Some(3));
    }
}
