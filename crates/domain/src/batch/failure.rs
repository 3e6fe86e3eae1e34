//! What follows the failure of a batch.

use std::time::Duration;

use crate::retry::{AfterFailure, RetrySettings, Why};

/// What follows for one event of a batch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterBatch {
    /// It is tried again in a batch of its class, so long after the end.
    RetryAfter(Duration),
    /// The same, in a batch of at most so many.
    RetryHalved {
        /// The class that it comes back in.
        limit: u32,
        /// How long after the end.
        delay: Duration,
    },
    /// The batch is split: the same try again, in a batch of at most so many,
    /// so long after the end.
    Split {
        /// The class that it comes back in.
        limit: u32,
        /// How long after the end.
        delay: Duration,
    },
    /// It was alone: it is a dead letter.
    DeadLetter(Why),
}

/// What follows for an event that was tried `tries` times, this one included,
/// when the request of `size` events in which it was has failed with this
/// status, or without an answer. `jitter` is drawn once for the whole batch, so
/// that what goes together comes back together.
///
/// None but an event that was alone is given up. Where the status is final, one
/// of the events may be to blame for all: halves find it in nine rounds at
/// most. Where the tries are used up, each gets one more, alone.
///
/// A receiver that fails on one event may say 500 of all: from the second time
/// on they come back in halves, so that the others are through long before the
/// tries are used up, or all are too old. What only says that it is too much or
/// too early, or nothing at all, says nothing of an event.
#[must_use]
pub fn after_failure(
    policy: &RetrySettings,
    tries: u32,
    status: Option<u16>,
    jitter: f64,
    size: u32,
) -> AfterBatch {
    match policy.after_failure(tries, status, jitter) {
        AfterFailure::RetryAfter(delay) if tries > 1 && size > 1 && blames(status) => {
            AfterBatch::RetryHalved {
                limit: half(size),
                delay,
            }
        }
        AfterFailure::RetryAfter(delay) => AfterBatch::RetryAfter(delay),
        AfterFailure::DeadLetter(why) if size <= 1 => AfterBatch::DeadLetter(why),
        AfterFailure::DeadLetter(Why::Final) => AfterBatch::Split {
            limit: half(size),
            delay: Duration::ZERO,
        },
        AfterFailure::DeadLetter(Why::UsedUp) => AfterBatch::Split {
            limit: 1,
            delay: policy.last_delay(jitter),
        },
    }
}

/// Whether an event may be to blame for it.
const fn blames(status: Option<u16>) -> bool {
    !matches!(status, None | Some(429 | 503))
}

/// Half of a batch, rounded up: less than it as long as there are two.
#[must_use]
pub const fn half(size: u32) -> u32 {
    match size.div_ceil(2) {
        0 => 1,
        half => half,
    }
}
