//! How often an event may still be tried.

use domain::retry::{AfterFailure, RetrySettings, Why};

use crate::ports::Start;

/// How often an event was tried, and how often it may be.
pub(super) struct Tries {
    /// Since it was accepted, or last replayed; with the one that starts.
    so_far: u32,
    policy: RetrySettings,
}

impl Tries {
    pub(super) fn of(start: &Start) -> Self {
        Self {
            so_far: start.try_number.saturating_sub(start.tries_before),
            policy: start.retry.clone(),
        }
    }

    pub(super) fn after_failure(&self, status: Option<u16>, jitter: f64) -> AfterFailure {
        self.policy.after_failure(self.so_far, status, jitter)
    }

    /// The error of a try that none follows.
    pub(super) fn last_words(&self, why: Why, error: &str) -> String {
        match why {
            Why::Final => format!("{error}, which is final"),
            Why::UsedUp => format!("{error}; {} tries are used up", self.so_far),
        }
    }
}
