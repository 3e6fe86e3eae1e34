//! Promises about what is taken in and what is refused.

use std::fmt;
use std::time::Duration;

use super::{Promise, keep};

/// What is pending when an event is let in, and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LetIn {
    /// Attempts.
    pub pending: u64,
    /// Above it events are refused.
    pub mark: u64,
    /// What has come since the count that the process knows, and that it cannot
    /// know of: accepted by others, or without an answer, or still on its way.
    pub unknown: i64,
}

/// "A process adds what it has accepted since the count, so alone it passes a
/// mark by what is on its way in; several pass it by what the others accept
/// between two counts."
pub fn a_backlog_is_bounded(whose: impl fmt::Debug, let_in: LetIn) -> Promise {
    let most = i64::try_from(let_in.mark).unwrap_or(i64::MAX);
    let most = most.saturating_add(let_in.unknown.max(0));
    let kept = i64::try_from(let_in.pending).is_ok_and(|pending| pending <= most);
    keep("a_backlog_is_bounded", kept, || {
        format!("an event was let in at {whose:?}: {let_in:?}")
    })
}

/// "Until there are fewer than 50 %": what three counts have found below the low
/// mark is taken again, unless so many have come since that it is full. Not two:
/// where the store is slow to answer, it may count again before the process has
/// closed the slice of what it accepted before the first count, which it then adds
/// to the second as well.
pub fn what_is_short_again_is_taken(
    whose: impl fmt::Debug,
    (counted, since): ([u64; 3], u64),
    (low, high): (u64, u64),
) -> Promise {
    let is_short = counted.iter().all(|one| *one < low) && since <= high - low;
    keep("what_is_short_again_is_taken", !is_short, || {
        format!("{whose:?} refuses: counted {counted:?}, {since} since, low mark {low}")
    })
}

/// "Nothing of what is refused was written."
pub fn what_is_refused_is_not_stored(event: impl fmt::Display, is_stored: bool) -> Promise {
    keep("what_is_refused_is_not_stored", !is_stored, || {
        format!("event {event} was refused, and is there")
    })
}

/// "The same request is taken later": nobody is refused for ever.
pub fn every_client_is_answered(clients: usize, (after, bound): (Duration, Duration)) -> Promise {
    let kept = clients == 0 || after <= bound;
    keep("every_client_is_answered", kept, || {
        format!("{clients} clients are not done after {after:?}, bound {bound:?}")
    })
}
