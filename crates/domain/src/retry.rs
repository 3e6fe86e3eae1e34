//! When a failed attempt is tried again.

use std::time::Duration;

/// Tries of one event at one destination, the first included.
pub const DEFAULT_MAX_TRIES: u32 = 8;

/// The upper bound of the first retry's delay; each further one is
/// [`RETRY_FACTOR`] times longer, so that eight tries span 27 hours at most and half of that on average.
pub const RETRY_BASE: Duration = Duration::from_secs(5);

/// How much longer each retry's bound is than the one before.
pub const RETRY_FACTOR: u32 = 5;

/// No retry waits longer than this.
pub const RETRY_CAP: Duration = Duration::from_secs(24 * 3_600);

/// What follows a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// A new attempt, due this long after the failed one finished.
    RetryAfter(Duration),
    /// None: the tries are used up, and the event is a dead letter.
    DeadLetter,
}

/// What follows the failure of try `try_number` (1 is the first).
///
/// Exponential backoff with full jitter: the delay is `jitter` (0 to 1, drawn
/// by the caller) of a bound that grows with every try.
///
/// ```
/// use domain::retry::{AfterFailure, after_failure};
/// use std::time::Duration;
/// assert_eq!(after_failure(1, 1.0), AfterFailure::RetryAfter(Duration::from_secs(5)));
/// assert_eq!(after_failure(2, 0.5), AfterFailure::RetryAfter(Duration::from_millis(12_500)));
/// assert_eq!(after_failure(8, 0.5), AfterFailure::DeadLetter);
/// ```
#[must_use]
pub fn after_failure(try_number: u32, jitter: f64) -> AfterFailure {
    if try_number >= DEFAULT_MAX_TRIES {
        return AfterFailure::DeadLetter;
    }
    let factor = RETRY_FACTOR.saturating_pow(try_number.saturating_sub(1));
    let bound = RETRY_BASE.saturating_mul(factor).min(RETRY_CAP);
    AfterFailure::RetryAfter(bound.mul_f64(jitter.clamp(0.0, 1.0)))
}
