//! From an effective limit to what admission plans by.

use std::time::Duration;

use crate::admission::MAX_BATCH;
use crate::policy::{Policy, Rate};

use super::{Ceiling, SLOWEST};

/// What of the configured limits is lowered; `None` is as configured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Effective {
    /// Starts per second.
    pub per_second: Option<f64>,
    /// Queued and in flight.
    pub max_in_flight: Option<u32>,
}

impl Effective {
    /// What of it is lower than this policy.
    #[must_use]
    pub fn below(self, policy: &Policy) -> Self {
        let ceiling = Ceiling::of(policy).map_or(0.0, |ceiling| ceiling.per_second);
        let most = policy.max_in_flight;
        Self {
            per_second: self.per_second.filter(|rate| *rate < ceiling),
            max_in_flight: self.max_in_flight.filter(|lower| *lower < most),
        }
    }
}

/// A pace that slots are planned at, slower than the limits.
///
/// A window of a fiftieth of a second's worth, or of one start. It is counted by
/// slots and claims, not by deadlines and the latest start: it wants to be followed
/// closely and is no promise, so a permit that is late may bring two starts together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    per_second: f64,
}

impl Pace {
    /// How many starts its window holds.
    #[must_use]
    pub fn max(self) -> u32 {
        ((self.per_second / 50.0) as u32).clamp(1, MAX_BATCH)
    }

    /// How long its window is.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_secs_f64(f64::from(self.max()) / self.per_second)
    }

    /// Starts per second.
    #[must_use]
    pub const fn per_second(self) -> f64 {
        self.per_second
    }
}

impl Policy {
    /// The same under an effective limit: what of it is lower holds beside what
    /// is configured.
    #[must_use]
    pub fn slowed(self, to: Effective) -> Self {
        let to = to.below(&self);
        let max_in_flight = to.max_in_flight.unwrap_or(self.max_in_flight);
        Self {
            pace: to.per_second.map(|rate| Pace {
                per_second: rate.max(SLOWEST),
            }),
            max_in_flight: max_in_flight.max(1),
            ..self
        }
    }

    /// Starts per second in the long run, by limits and pace; infinite where
    /// nothing limits.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        let limits = match &self.rate {
            Rate::Paused => 0.0,
            Rate::Unlimited => f64::INFINITY,
            Rate::Limited(limited) => limited.per_second(),
        };
        (self.pace).map_or(limits, |pace| pace.per_second.min(limits))
    }
}
