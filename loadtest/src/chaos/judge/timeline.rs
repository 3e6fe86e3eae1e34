//! The store's clock against the one that all processes share.
//!
//! On one machine they differ by a constant and by the steps that the run
//! made. The **wire's clock** is the shared one plus all forward steps so far:
//! it never goes back, and a window of it that contains a forward step by J is
//! a real one that is shorter by J. That is how a forward step enters the
//! judgement of the wire: what had been admitted before it may start early by
//! as much, and nothing more. A backward step excuses nothing.

use domain::compliance::Arrival;
use domain::time::Timestamp;

use super::Evidence;

/// How far a step of the store's clock may be from when it was noted, and how
/// much longer a statement may take than between two readings of a clock.
const BESIDE: i64 = 1_000_000;

/// Steps, and what the clocks differ by without them.
pub(super) struct Timeline {
    /// Store minus shared, in microseconds, before any step.
    base: i64,
    /// When, by the shared clock, and by how much; in order.
    steps: Vec<(i64, i64)>,
}

impl Timeline {
    pub(super) fn new(evidence: &Evidence) -> Self {
        let mut steps: Vec<(i64, i64)> = (evidence.happenings.iter())
            .filter(|one| one.what == "clock_step")
            .map(|one| (one.at_us, one.by_us))
            .collect();
        steps.sort_unstable();
        let mut timeline = Self { base: 0, steps };
        // The quickest answers say it best.
        let mut samples: Vec<_> = (evidence.clock.iter())
            .map(|sample| {
                let middle = sample.before_us.midpoint(sample.after_us);
                let offset = sample.store_us - middle - timeline.stepped(middle);
                (sample.after_us - sample.before_us, offset)
            })
            .collect();
        samples.sort_unstable();
        samples.truncate((samples.len() / 4).max(1));
        let mut offsets: Vec<i64> = samples.into_iter().map(|(_, offset)| offset).collect();
        offsets.sort_unstable();
        timeline.base = offsets.get(offsets.len() / 2).copied().unwrap_or(0);
        timeline
    }

    /// All steps up to this time of the shared clock.
    fn stepped(&self, shared: i64) -> i64 {
        self.before(shared).map(|(_, by)| by).sum()
    }

    fn before(&self, shared: i64) -> impl Iterator<Item = (i64, i64)> {
        self.steps
            .iter()
            .copied()
            .take_while(move |(at, _)| *at <= shared)
    }

    /// The wire's clock at a time of the shared one.
    pub(super) fn wire(&self, shared: i64) -> i64 {
        shared + self.before(shared).map(|(_, by)| by.max(0)).sum::<i64>()
    }

    /// What was seen between two instants of the shared clock, by the wire's. A step is
    /// noted before it is made, so of what was seen in the moments after the note nobody
    /// knows whether it was before.
    pub(super) fn seen(&self, arrival: Arrival) -> Arrival {
        let wire = |at: Timestamp, noted_by: i64| {
            let at = at.as_micros();
            let stepped = self.wire(noted_by) - noted_by;
            Timestamp::from_micros(at + stepped)
        };
        let (earliest, read_at) = (arrival.earliest, arrival.read_at);
        Arrival {
            earliest: wire(earliest, earliest.as_micros() - BESIDE),
            read_at: wire(read_at, read_at.as_micros()),
        }
    }

    /// Whether the store's clock said so twice, or nearly: what happened first is
    /// not to be told from it.
    pub(super) fn was_twice(&self, store: i64) -> bool {
        let mut before = self.base;
        self.steps.iter().any(|(at, by)| {
            let (first, last) = (at + before + by, at + before);
            before += by;
            *by < 0 && (first - BESIDE..=last + BESIDE).contains(&store)
        })
    }

    /// The shared clock when the store's said `store`; the latest such time if
    /// there are several, and the step's if it was skipped.
    pub(super) fn shared(&self, store: i64) -> i64 {
        let mut found = store - self.base;
        let mut total = 0;
        for (at, by) in &self.steps {
            total += by;
            let after = store - self.base - total;
            if after >= *at {
                found = after;
            } else if found > *at {
                found = *at;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::log::{ClockSample, Happening};

    fn timeline(steps: &[(i64, i64)], samples: &[(i64, i64, i64)]) -> Timeline {
        let happenings = steps.iter().map(|(at_us, by_us)| Happening {
            at_us: *at_us,
            what: "clock_step".to_owned(),
            kind: String::new(),
            detail: String::new(),
            by_us: *by_us,
        });
        let clock = samples
            .iter()
            .map(|(before_us, after_us, store_us)| ClockSample {
                before_us: *before_us,
                after_us: *after_us,
                store_us: *store_us,
            });
        Timeline::new(&Evidence {
            happenings: happenings.collect(),
            clock: clock.collect(),
            ..Evidence::default()
        })
    }

    #[test]
    fn steps_are_told_from_the_difference_of_the_clocks() {
        let steps = [(100, 30), (200, -50)];
        // 1,000 ahead; the slow one would say 1,040.
        let samples = [
            (10, 12, 1_011),
            (110, 112, 1_141),
            (210, 212, 1_191),
            (0, 90, 1_085),
        ];
        let timeline = timeline(&steps, &samples);
        assert_eq!(timeline.base, 1_000);
        assert_eq!([50, 150, 250].map(|at| timeline.wire(at)), [50, 180, 280]);
        assert_eq!(timeline.shared(1_050), 50);
        // Skipped by the step forward.
        assert_eq!(timeline.shared(1_115), 100);
        assert_eq!(timeline.shared(1_160), 130);
        // Passed twice, at 190 and at 240.
        assert_eq!(timeline.shared(1_220), 240);
        let around = [-9, -1, 1, 9].map(|away| timeline.was_twice(1_220 + away * BESIDE));
        assert_eq!(around, [false, true, true, false]);
        assert!(timeline.was_twice(1_220));
    }

    #[test]
    fn what_is_seen_right_after_a_step_was_noted_may_be_of_before() {
        let noted = 5 * BESIDE;
        let timeline = timeline(&[(noted, 30), (noted + 7, -50)], &[]);
        let seen = |at: i64| {
            let seen = timeline.seen(Arrival::at(Timestamp::from_micros(at)));
            (seen.earliest.as_micros(), seen.read_at.as_micros())
        };
        assert_eq!(seen(noted - 1), (noted - 1, noted - 1));
        assert_eq!(seen(noted), (noted, noted + 30));
        assert_eq!(
            seen(noted + 20),
            (noted + 20, noted + 50),
            "a step back is none"
        );
        let later = noted + BESIDE;
        assert_eq!(seen(later), (later + 30, later + 30));
    }
}
