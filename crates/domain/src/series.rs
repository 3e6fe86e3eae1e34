//! A ledger, slot by slot: what charts are drawn from, and under-delivery is
//! judged by.
//!
//! Its size is bounded by the number of slots, whatever the ledger's: attempts
//! are added in any order, one at a time.

mod latencies;

use std::time::Duration;

pub use latencies::Latencies;

use crate::time::{Timestamp, micros};

/// The most slots of a series.
pub const MAX_SLOTS: usize = 1_440;

/// The shortest slot: a second, so that counts can be read as rates.
const SHORTEST: Duration = Duration::from_secs(1);

/// One attempt on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// When it could have started at the earliest.
    pub due_at: Timestamp,
    /// When it started, if it has.
    pub started_at: Option<Timestamp>,
    /// When its outcome was there, if it was.
    pub finished_at: Option<Timestamp>,
    /// The receiver answered 429.
    pub refused: bool,
}

/// What happened in one slot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slot {
    /// Attempts that became due.
    pub due: u64,
    /// Attempts that started.
    pub starts: u64,
    /// Starts that were answered 429.
    pub refused: u64,
    /// How long attempts were in flight, all together, in microseconds.
    pub in_flight_micros: u64,
    /// Attempts that were due and had not started, at its end.
    pub backlog: u64,
    /// Of those that were due and had not started, the fewest in it, at least:
    /// zero says nothing.
    pub backlog_throughout: u64,
    /// From when they were due to their outcomes, of those that started in it.
    pub latencies: Latencies,
}

/// What happened from a time on, slot by slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    from: Timestamp,
    step: Duration,
    /// Attempts that were due before and had not started.
    before: u64,
    slots: Vec<Slot>,
}

impl Series {
    /// An empty one for `[from, until)`, in as many slots of whole seconds as
    /// fit into `most`, and [`MAX_SLOTS`].
    #[must_use]
    pub fn new(from: Timestamp, until: Timestamp, most: usize) -> Self {
        let span = until.since(from);
        let most = most.clamp(1, MAX_SLOTS);
        let seconds = span.as_micros().div_ceil(most as u128 * 1_000_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        let step = Duration::from_secs(seconds).max(SHORTEST);
        let slots = span.as_micros().div_ceil(step.as_micros());
        let slots = usize::try_from(slots).unwrap_or(most).clamp(1, MAX_SLOTS);
        Self {
            from,
            step,
            before: 0,
            slots: vec![Slot::default(); slots],
        }
    }

    /// When it begins.
    #[must_use]
    pub const fn from(&self) -> Timestamp {
        self.from
    }

    /// How long a slot is.
    #[must_use]
    pub const fn step(&self) -> Duration {
        self.step
    }

    /// When a slot begins.
    #[must_use]
    pub fn begins_at(&self, slot: usize) -> Timestamp {
        let offset = micros(self.step).saturating_mul(i64::try_from(slot).unwrap_or(i64::MAX));
        Timestamp::from_micros(self.from.as_micros().saturating_add(offset))
    }

    /// Adds an attempt that did not start before this begins.
    pub fn add(&mut self, passage: &Passage) {
        match self.slot_of(passage.due_at) {
            Place::Before => self.before += 1,
            Place::In(slot) => self.slots[slot].due += 1,
            Place::After => {}
        }
        let Some(started_at) = passage.started_at else {
            return;
        };
        let Place::In(slot) = self.slot_of(started_at) else {
            return;
        };
        let slot = &mut self.slots[slot];
        slot.starts += 1;
        slot.refused += u64::from(passage.refused);
        if let Some(finished_at) = passage.finished_at {
            slot.latencies.add(finished_at.since(passage.due_at));
            self.add_flight(started_at, finished_at);
        }
    }

    /// The slots. Call once, after the last attempt.
    #[must_use]
    pub fn finish(mut self) -> Vec<Slot> {
        let mut backlog = self.before;
        for slot in &mut self.slots {
            slot.backlog_throughout = backlog.saturating_sub(slot.starts);
            backlog = (backlog + slot.due).saturating_sub(slot.starts);
            slot.backlog = backlog;
        }
        self.slots
    }

    fn slot_of(&self, at: Timestamp) -> Place {
        if at < self.from {
            return Place::Before;
        }
        let slot = at.since(self.from).as_micros() / self.step.as_micros();
        match usize::try_from(slot) {
            Ok(slot) if slot < self.slots.len() => Place::In(slot),
            _ => Place::After,
        }
    }

    /// One request is in few slots: its time is bounded.
    fn add_flight(&mut self, from: Timestamp, until: Timestamp) {
        let Place::In(first) = self.slot_of(from) else {
            return;
        };
        let mut begins = from;
        for slot in first..self.slots.len() {
            let ends = self.begins_at(slot + 1).min(until);
            let within = ends.since(begins).as_micros();
            let within = u64::try_from(within).unwrap_or(u64::MAX);
            let slot = &mut self.slots[slot].in_flight_micros;
            *slot = slot.saturating_add(within);
            if ends >= until {
                break;
            }
            begins = ends;
        }
    }
}

enum Place {
    Before,
    In(usize),
    After,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn passage(due: i64, started: Option<i64>, finished: Option<i64>) -> Passage {
        Passage {
            due_at: at(due),
            started_at: started.map(at),
            finished_at: finished.map(at),
            refused: false,
        }
    }

    #[test]
    fn slots_are_whole_seconds_and_no_more_than_asked_for() {
        let slots = |seconds: i64, most| {
            let series = Series::new(at(0), at(seconds * 1_000), most);
            (series.step().as_secs(), series.finish().len())
        };
        assert_eq!(slots(10, 100), (1, 10));
        assert_eq!(slots(3_600, 100), (36, 100));
        assert_eq!(slots(3_601, 100), (37, 98));
        assert_eq!(slots(0, 100), (1, 1));
        assert_eq!(slots(i64::MAX / 1_000_000_000, usize::MAX).1, MAX_SLOTS);
    }

    #[test]
    fn what_is_due_is_backlog_until_it_starts() {
        let mut series = Series::new(at(10_000), at(13_000), 10);
        series.add(&passage(9_000, Some(10_500), Some(10_700)));
        series.add(&passage(9_000, Some(12_100), Some(14_000)));
        series.add(&passage(11_000, None, None));
        series.add(&passage(99_000, None, None));
        let slots = series.finish();
        let counts = slots
            .iter()
            .map(|slot| (slot.due, slot.starts, slot.backlog, slot.backlog_throughout));
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [(0, 1, 1, 1), (1, 0, 2, 1), (0, 1, 1, 1)]
        );
        assert_eq!(slots[0].in_flight_micros, 200_000);
        assert_eq!(slots[2].in_flight_micros, 900_000, "what is in it");
        assert_eq!(slots[0].latencies.count(), 1);
    }

    #[test]
    fn a_request_is_in_flight_in_every_slot_that_it_touches() {
        let mut series = Series::new(at(0), at(4_000), 10);
        series.add(&passage(0, Some(500), Some(2_250)));
        let flights = series
            .finish()
            .into_iter()
            .map(|slot| slot.in_flight_micros);
        assert_eq!(
            flights.collect::<Vec<_>>(),
            [500_000, 1_000_000, 250_000, 0]
        );
    }
}
