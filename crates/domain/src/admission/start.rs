//! When a permit that was claimed starts: its request's first byte.

use std::time::Duration;

use crate::time::Timestamp;

/// How long after its claim a request's first byte may leave at the latest. A worker
/// that is later does not send. Long enough for a slow claim on a busy machine; until
/// a start is known, its limit is that much longer.
pub const MAX_CLAIM_TO_SEND: Duration = Duration::from_millis(500);

/// The longest time-out of a request: from its first byte to the end of its answer.
pub const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// How long after its claim a request has been answered, or given up, at the latest: where
/// answers count, that of which nobody says how it ended is counted there.
pub const LONGEST_ANSWER: Duration = MAX_CLAIM_TO_SEND.saturating_add(MAX_REQUEST_TIMEOUT);

/// The latest instant at which a permit that was claimed then may still start: its
/// `end(q)`, until its start is known. Never after its deadline, where it was counted
/// before it was claimed, so an end only ever comes nearer.
///
/// ```
/// use domain::admission::latest_start;
/// use domain::time::Timestamp;
///
/// let at = Timestamp::from_millis;
/// assert_eq!(latest_start(at(1_000), at(3_000)), at(1_500));
/// assert_eq!(latest_start(at(2_900), at(3_000)), at(3_000));
/// ```
#[must_use]
pub fn latest_start(claimed_at: Timestamp, deadline: Timestamp) -> Timestamp {
    (claimed_at + MAX_CLAIM_TO_SEND)
        .min(deadline)
        .max(claimed_at)
}

/// Starts before this are known, if they ever will be. One that was claimed later may
/// stand at its latest, and nobody has said yet when it was.
#[must_use]
pub fn known_until(now: Timestamp) -> Timestamp {
    now - MAX_CLAIM_TO_SEND
}

/// The start of a request whose first byte left so long after its claim, where
/// `latest` is what was counted until now. What a worker says can only bring it
/// nearer: said twice, or too late, it changes nothing.
#[must_use]
pub fn start_of(claimed_at: Timestamp, sent_after: Duration, latest: Timestamp) -> Timestamp {
    (claimed_at + sent_after).min(latest)
}
