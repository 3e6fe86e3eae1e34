//! Latencies, counted in buckets: bounded, and true to a few per cent.

use std::time::Duration;

/// Buckets of each doubling: one is at most an eighth wide.
const PER_DOUBLING: u32 = 8;

/// Doublings from a microsecond on: up to a year and a half.
const DOUBLINGS: u32 = 46;

/// How many took how long.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Latencies {
    /// Empty until there is one.
    buckets: Vec<u64>,
    count: u64,
}

impl Latencies {
    /// Counts one.
    pub fn add(&mut self, latency: Duration) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; (PER_DOUBLING * DOUBLINGS) as usize];
        }
        let last = self.buckets.len() - 1;
        self.buckets[bucket(latency).min(last)] += 1;
        self.count += 1;
    }

    /// How many.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The latency that this part of them (0 to 1) is not above, within a
    /// sixteenth; `None` if there are none.
    ///
    /// ```
    /// use domain::series::Latencies;
    /// use std::time::Duration;
    /// let mut latencies = Latencies::default();
    /// (1..=100).for_each(|ms| latencies.add(Duration::from_millis(ms)));
    /// let p50 = latencies.quantile(0.5).unwrap().as_secs_f64();
    /// assert!((p50 / 0.050 - 1.0).abs() < 0.07, "{p50}");
    /// ```
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = (part.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map(middle)
    }
}

fn bucket(latency: Duration) -> usize {
    let micros = u64::try_from(latency.as_micros())
        .unwrap_or(u64::MAX)
        .max(1);
    let doubling = micros.ilog2();
    // The bits below the first, as eighths.
    let eighth = match doubling {
        0..3 => (micros << (3 - doubling)) & 7,
        _ => (micros >> (doubling - 3)) & 7,
    };
    (doubling * PER_DOUBLING) as usize + eighth as usize
}

fn middle(bucket: usize) -> Duration {
    let doubling = bucket / PER_DOUBLING as usize;
    let eighth = (bucket % PER_DOUBLING as usize) as f64;
    let lower = 2_f64.powi(i32::try_from(doubling).unwrap_or(i32::MAX));
    Duration::from_secs_f64(lower * (1.0 + (eighth + 0.5) / 8.0) / 1e6)
}
