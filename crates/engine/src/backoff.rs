//! Waiting longer after each failure in a row, up to a cap.

use std::time::Duration;

/// Doubling delays from `first` to `cap`.
///
/// ```
/// use engine::backoff::Backoff;
/// use std::time::Duration;
/// let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(50));
/// assert_eq!(backoff.failed(), Duration::from_millis(20));
/// assert_eq!(backoff.failed(), Duration::from_millis(40));
/// assert_eq!(backoff.failed(), Duration::from_millis(50));
/// backoff.succeeded();
/// assert_eq!(backoff.failed(), Duration::from_millis(20));
/// ```
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    /// Delays of `first`, then twice as long each time, at most `cap`.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            cap,
            next: first,
        }
    }

    /// Another failure: how long to wait now.
    pub fn failed(&mut self) -> Duration {
        let delay = self.next.min(self.cap);
        self.next = self.next.saturating_mul(2).min(self.cap);
        delay
    }

    /// It works again: the next failure begins at the first delay.
    pub const fn succeeded(&mut self) {
        self.next = self.first;
    }
}
