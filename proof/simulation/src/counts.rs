//! How often what really happened: the proof that a fault is not merely
//! written down.
//!
//! A simulation in which nothing ever goes wrong keeps every promise. So every
//! fault is counted where it strikes, and every rare answer of the engine and
//! the store where it is given; [`Counts::never`] names those of
//! [`SOMETIMES`] that a long run has not seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What every long enough run has to see at least once.
pub const SOMETIMES: &[&str] = &[
    // Faults of the parts.
    "store failed before the commit",
    "store failed after the commit",
    "store committed after it had failed",
    "commit held up",
    "store slow",
    "row locked",
    "admission forgotten in a crash",
    "schedule failed before",
    "schedule failed after",
    "schedule slow",
    "schedule wiped",
    "queue deleted",
    "queue purged",
    "broker down",
    "broker blocked",
    "connections broken",
    "message lost",
    "message duplicated",
    "message delayed",
    "messages reordered",
    "publish unconfirmed",
    "store clock stepped forward",
    "store clock stepped back",
    "schedule clock stepped",
    // Faults of processes.
    "process killed",
    "process killed before a call",
    "process killed after a call",
    "process paused",
    "process stopped in order",
    "pod clock stepped",
    // What owners do.
    "limit raised",
    "limit lowered",
    "limit set to 0",
    "limits set to NULL",
    "shape changed",
    "tier changed",
    "destination paused",
    "destination deleted",
    "handshake begun",
    "receiver allowed a rate",
    "limit group joined",
    "limit group left",
    "limit of a group changed",
    "smart delivery turned on",
    "effective limit lowered",
    "backlog cancelled",
    "events for later",
    "started when it was for",
    "replay begun",
    // What receivers do.
    "receiver refused the connection",
    "receiver failed",
    "receiver answered 429",
    "receiver answered 422",
    "receiver answered in parts",
    "receiver answered a batch with nonsense",
    "receiver answered with an odd status",
    "receiver hung",
    "response lost",
    "destination held",
    "breaker opened",
    "probe started",
    "breaker closed",
    // What the mechanisms answered.
    "a repeated request was the same event",
    "backlog counted as too long",
    "alert raised",
    "alert ended",
    "operational event told",
    "event refused for a backlog",
    "claim early",
    "claim refused",
    "claim skipped",
    "claim of a permit that had started",
    "lease lapsed",
    "permit expired",
    "start became unknown",
    "outcome overwrote unknown",
    "start not sent for being late",
    "message redelivered",
    "jobs rebuilt",
    "attempt cancelled",
    "attempt expired",
    "dead letter replayed",
    "first attempts and retries waited",
    "urgent and normal first attempts waited",
    "limit group used up",
    "event delivered twice after an unknown outcome",
];

/// Counters by what they count. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    /// It happened.
    pub fn note(&self, what: &'static str) {
        self.add(what, 1);
    }

    /// It happened so often.
    pub fn add(&self, what: &'static str, times: u64) {
        if times > 0 {
            let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(what).or_default() += times;
        }
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Those of [`SOMETIMES`] that never happened.
    #[must_use]
    pub fn never(&self) -> Vec<&'static str> {
        let all = self.all();
        (SOMETIMES.iter().copied())
            .filter(|what| !all.contains_key(what))
            .collect()
    }
}
