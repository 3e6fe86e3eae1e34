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

#[cfg(test)]
mod tests {
    use super::*;

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
