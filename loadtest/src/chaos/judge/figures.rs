//! What a run amounted to, in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Case;
use crate::chaos::log::Said;

/// What a run amounted to.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figures {
    /// Events that the client was answered 202 for.
    pub(crate) accepted: u64,
    /// Posts without an answer, or that were answered 503.
    pub(crate) in_doubt: u64,
    /// Requests that arrived.
    pub(crate) receipts: u64,
    /// Requests beyond one per event.
    pub(crate) extra_receipts: u64,
    /// Requests that were answered with what nobody can mean.
    pub(crate) nonsense: u64,
    /// Attempts by their state at the end.
    pub(crate) attempts: BTreeMap<String, u64>,
    /// Attempts that were ever `unknown`.
    pub(crate) were_unknown: u64,
    pub(crate) dead_letters: u64,
    /// Attempts that replays have made.
    pub(crate) replayed: u64,
    /// The fullest share of a one-second limit in any second of the ledger.
    pub(crate) fullest_window_percent: u64,
    /// Requests at destinations without a proxy that were read while the receivers did
    /// not stand still: when these arrived is known to the microsecond.
    pub(crate) timely_receipts_percent: usize,
    /// Requests beyond a limit in a window of the wire that the receivers' own stalls, or
    /// a step of the store's clock, explain.
    pub(crate) explained_by_stalls: u64,
    /// The longest that a destination waited while others were served.
    pub(crate) longest_wait_seconds: u64,
    /// Operational events that the store noted.
    pub(crate) news: u64,
    /// Events that they became, at those that are told.
    pub(crate) notes: u64,
    /// Holds, counted anew each time that one became longer.
    pub(crate) holds: u64,
    pub(crate) breakers_opened: u64,
    pub(crate) breakers_closed: u64,
    /// Starts while a breaker was open.
    pub(crate) probes: u64,
    /// Limits that smart delivery had in force below the configured ones.
    pub(crate) effective_limits: u64,
    /// Starts that the tally has counted, in slots of both lengths.
    pub(crate) tallied: u64,
    /// Secrets that came to another one.
    pub(crate) rotations: u64,
    /// Events that were inserted into the outbox and rolled back.
    pub(crate) rolled_back: u64,
    /// Events that were posted with another tenant's key.
    pub(crate) intruding: u64,
    /// Requests that carried a signature.
    pub(crate) signed: u64,
    /// Those whose signature verified.
    pub(crate) verified: u64,
}

impl Figures {
    /// What can be told from the logs without judging.
    pub(super) fn count(&mut self, case: &Case<'_>) {
        let evidence = case.evidence;
        self.accepted = case.accepted.len() as u64;
        let posts = evidence.posts.iter();
        let answered = posts
            .clone()
            .filter(|post| post.said != Said::Posted)
            .count();
        self.in_doubt = (posts.len() - 2 * answered) as u64;
        let intruding = posts.filter(|post| post.intruding && post.said == Said::Posted);
        self.intruding = intruding.count() as u64;
        self.receipts = evidence.receipts.len() as u64;
        let nonsense = evidence.receipts.iter().filter(|one| one.nonsense);
        self.nonsense = nonsense.count() as u64;
        self.extra_receipts = self.receipts.saturating_sub(case.receipts.len() as u64);
        for row in &evidence.rows {
            *self
                .attempts
                .entry(row.state.as_str().to_owned())
                .or_default() += 1;
            self.were_unknown += u64::from(row.was_unknown);
            self.dead_letters += u64::from(row.dead_letter);
            self.replayed += u64::from(row.is_replay);
        }
    }
}
