//! A clock of its own for every part: it goes with tokio's, and can be stepped.

use std::time::Duration;

use domain::time::{Timestamp, micros};
use tokio::time::Instant;

/// How a clock is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockStep {
    /// Ahead by so long.
    Forward(Duration),
    /// Back by so long.
    Backward(Duration),
}

/// A clock that goes with the runtime's and is set at will.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelClock {
    base: Timestamp,
    origin: Instant,
    /// How far it is ahead of the runtime's, in microseconds.
    ahead: i64,
}

impl ModelClock {
    /// A clock that shows `base` now.
    #[must_use]
    pub fn new(base: Timestamp) -> Self {
        Self {
            base,
            origin: Instant::now(),
            ahead: 0,
        }
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = micros(Instant::now().saturating_duration_since(self.origin));
        let micros = self.base.as_micros() + elapsed + self.ahead;
        Timestamp::from_micros(micros)
    }

    /// Lets a microsecond pass, and what it shows then.
    ///
    /// Virtual time stands still while steps are taken, real time does not: of
    /// two steps one is later. Without this, a start and the change that
    /// forbids it could have the same time.
    pub(crate) fn tick(&mut self) -> Timestamp {
        self.ahead += 1;
        self.now()
    }

    /// Sets it.
    pub fn step(&mut self, step: ClockStep) {
        self.ahead += match step {
            ClockStep::Forward(by) => micros(by),
            ClockStep::Backward(by) => -micros(by),
        };
    }
}
