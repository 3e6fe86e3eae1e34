//! What answers say, and what they come to while it watches.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::noise;
use crate::time::Timestamp;

/// What an answer says about how much the receiver takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When the attempt was claimed.
    pub claimed_at: Timestamp,
    /// From its start to its answer.
    pub latency: Duration,
    /// What it was.
    pub answer: Answer,
}

/// Whether it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The receiver dealt with it.
    Taken,
    /// 429: so many are too many.
    Refused,
    /// 503: it is overloaded, or this one failed and others do not.
    Unavailable,
}

impl Answer {
    /// By the status of the response. `None` where it says nothing about how
    /// much the receiver takes: no response at all, and its own errors.
    #[must_use]
    pub const fn of(status: Option<u16>) -> Option<Self> {
        match status {
            Some(429) => Some(Self::Refused),
            Some(503) => Some(Self::Unavailable),
            Some(..500) => Some(Self::Taken),
            _ => None,
        }
    }
}

/// What was answered since the last verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    pub(super) since: Timestamp,
    pub(super) taken: u32,
    /// So many were answered with 503 beside them.
    #[serde(default)]
    unavailable: u32,
    /// Of all of them together, in microseconds.
    latency: f64,
}

impl Watch {
    pub(super) fn from(since: Timestamp) -> Self {
        Self {
            since,
            taken: 0,
            unavailable: 0,
            latency: 0.0,
        }
    }

    pub(super) fn seconds(&self, now: Timestamp) -> f64 {
        now.since(self.since).as_secs_f64()
    }

    /// Answers per second.
    pub(super) fn rate(&self, now: Timestamp) -> f64 {
        f64::from(self.taken) / self.seconds(now).max(1e-3)
    }

    /// Of one of them.
    pub(super) fn latency(&self) -> f64 {
        self.latency / f64::from(self.taken)
    }

    /// Whether what was watched is more than noise.
    pub(super) fn is_overloaded(&self) -> bool {
        let asked = f64::from(self.taken) + f64::from(self.unavailable);
        noise::is_overload_of_a_second(f64::from(self.unavailable), asked)
    }

    /// Counts what was taken of these. What is longer than `idle` without a start
    /// was not watched: nothing was asked for.
    pub(super) fn count(&mut self, samples: &[Sample], idle: Duration) {
        let of = |answer| samples.iter().filter(move |one| one.answer == answer);
        let (taken, unavailable) = (of(Answer::Taken), of(Answer::Unavailable));
        let first = taken.clone().map(|one| one.claimed_at).min();
        let begun = first.filter(|first| self.taken == 0 && first.since(self.since) > idle);
        let unavailable = u32::try_from(unavailable.count()).unwrap_or(u32::MAX);
        self.unavailable = self.unavailable.saturating_add(unavailable);
        self.since = begun.unwrap_or(self.since);
        for one in taken {
            self.taken = self.taken.saturating_add(1);
            self.latency += one.latency.as_secs_f64() * 1e6;
        }
    }
}
