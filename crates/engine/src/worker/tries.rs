//! How often an event may still be tried.

use domain::batch::{self, AfterBatch};
use domain::retry::{AfterFailure, RetrySettings, Why};

use crate::ports::{Member, NextTry, Start};

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

    /// Of one event of a batch.
    pub(super) fn of_member(member: &Member, policy: &RetrySettings) -> Self {
        Self {
            so_far: member.try_number.saturating_sub(member.tries_before),
            policy: policy.clone(),
        }
    }

    /// What follows the failure of a request with so many events, and the error
    /// in words.
    pub(super) fn after_batch(
        &self,
        status: Option<u16>,
        jitter: f64,
        size: u32,
        error: &str,
    ) -> (NextTry, String) {
        let after = batch::after_failure(&self.policy, self.so_far, status, jitter, size);
        let error = match after {
            AfterBatch::RetryAfter(_) => error.to_owned(),
            AfterBatch::RetryHalved { limit, .. } => {
                format!("{error}: the batch of {size} is tried again in at most {limit} each")
            }
            AfterBatch::Split { limit: 1, .. } => format!("{error}: each goes alone now"),
            AfterBatch::Split { limit, .. } => {
                format!("{error}: the batch of {size} is split into at most {limit} each")
            }
            AfterBatch::DeadLetter(why) => self.last_words(why, error),
        };
        (after.into(), error)
    }

    /// What follows the failure of a request with this event alone, and the error
    /// in words.
    pub(super) fn after_failure(
        &self,
        status: Option<u16>,
        jitter: f64,
        error: String,
    ) -> (NextTry, String) {
        let after = self.policy.after_failure(self.so_far, status, jitter);
        let error = match after {
            AfterFailure::RetryAfter(_) => error,
            AfterFailure::DeadLetter(why) => self.last_words(why, &error),
        };
        (after.into(), error)
    }

    /// The error of a try that none follows.
    fn last_words(&self, why: Why, error: &str) -> String {
        match why {
            Why::Final => format!("{error}, which is final"),
            Why::UsedUp => format!("{error}; {} tries are used up", self.so_far),
        }
    }
}
