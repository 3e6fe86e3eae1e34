//! Whether a start is still sent: how long a worker may take from before its
//! claim to the first byte.
//!
//! Until its worker says when a request was sent, it is counted at the end of that
//! time ([`latest_start`](crate::admission::latest_start)). A worker that is later does
//! not send, and the delivery waits again with the same try number.

use std::time::Duration;

use crate::admission::MAX_CLAIM_TO_SEND;

/// The bound is never below this: a loaded machine's ordinary hiccup.
pub const AT_LEAST: Duration = Duration::from_millis(100);

/// Nor above this, however slow the claims are: until a start is known, it is counted
/// there.
pub const AT_MOST: Duration = MAX_CLAIM_TO_SEND;

/// The bound, where the slowest of the last thousand claims took so long: twice
/// that, which of a thousand is the 99.9th percentile. Of a worker that knows of
/// none, the longest.
#[must_use]
pub fn bound(slowest: Option<Duration>) -> Duration {
    let slowest = slowest.unwrap_or(AT_MOST);
    slowest.saturating_mul(2).clamp(AT_LEAST, AT_MOST)
}

/// How a request left later than its bound although its worker had looked just before:
/// it was held up in the sender, or the process was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// No later than it may be counted: the ledger says when.
    Recorded,
    /// Later than that: the ledger has it earlier than it was
    /// ([`start_of`](crate::admission::start_of)), and its limit may have been broken.
    DatedEarly,
}

impl Late {
    /// Of a request whose first byte left so long after its claim, with this bound, and
    /// counted at most so long after it. `None` if it was in time.
    #[must_use]
    pub fn of(sent_after: Duration, bound: Duration, counted_for: Duration) -> Option<Self> {
        if sent_after > counted_for {
            Some(Self::DatedEarly)
        } else {
            (sent_after > bound).then_some(Self::Recorded)
        }
    }

    /// The word, as in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::DatedEarly => "dated_early",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_later_than_it_is_counted_is_told_from_what_is_recorded() {
        let millis = Duration::from_millis;
        let late = |sent_after| Late::of(millis(sent_after), millis(100), millis(500));
        assert_eq!(late(100), None);
        assert_eq!(late(101), Some(Late::Recorded));
        assert_eq!(late(500), Some(Late::Recorded));
        assert_eq!(late(501), Some(Late::DatedEarly));
        let due = Late::of(millis(60), millis(100), millis(50));
        assert_eq!(due, Some(Late::DatedEarly), "its deadline came first");
    }

    #[test]
    fn the_bound_is_twice_the_slowest_within_its_limits() {
        let millis = Duration::from_millis;
        for (slowest, expected) in [
            (None, AT_MOST),
            (Some(millis(1)), AT_LEAST),
            (Some(millis(150)), millis(300)),
            (Some(millis(9_000)), AT_MOST),
        ] {
            assert_eq!(bound(slowest), expected, "{slowest:?}");
        }
    }
}
