//! The line of progress that is shown each second.

use super::receiver::Count;
use super::report::number;

/// What the line before said.
#[derive(Debug, Default)]
pub(super) struct Progress {
    at_us: i64,
    accepted: u64,
    taken: u64,
}

impl Progress {
    /// One more line.
    pub(super) fn line(&mut self, at_us: i64, accepted: u64, count: Count) -> String {
        let seconds = ((at_us - self.at_us) as f64 / 1_000_000.0).max(0.001);
        let rate = |now: u64, before: u64| number(((now - before) as f64 / seconds).round());
        let line = format!(
            "{:>5} s  accepted {}/s  delivered {}/s  backlog {}  p99 {}",
            at_us / 1_000_000,
            rate(accepted, self.accepted),
            rate(count.taken, self.taken),
            number(accepted.saturating_sub(count.taken) as f64),
            match count.p99_us {
                Some(p99_us) => format!("{} ms", number(p99_us as f64 / 1_000.0)),
                None => "-".to_owned(),
            },
        );
        (self.at_us, self.accepted, self.taken) = (at_us, accepted, count.taken);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_progress_has_rates_since_the_one_before() {
        let mut progress = Progress::default();
        let count = |taken, p99_us| Count {
            arrived: taken,
            taken,
            p99_us,
        };
        assert_eq!(
            progress.line(1_000_000, 15_003, count(14_000, Some(8_191))),
            "    1 s  accepted 15,003/s  delivered 14,000/s  backlog 1,003  p99 8.19 ms"
        );
        assert_eq!(
            progress.line(3_000_000, 16_003, count(16_000, None)),
            "    3 s  accepted 500/s  delivered 1,000/s  backlog 3  p99 -"
        );
    }
}
