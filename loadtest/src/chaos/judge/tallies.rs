//! The tally and the ledger tell the same: each start is counted once, in slots of all
//! lengths, by what came of it. Two things may differ: what was given up is counted as
//! unknown although its outcome came later, and a destination that is deleted is counted
//! no further.

use std::collections::HashMap;

use domain::attempt::AttemptState;
use uuid::Uuid;

use super::{Case, Judgement};
use crate::chaos::log::{Row, Tallied};

/// Starts of one destination in the ledger.
#[derive(Debug, Clone, Copy, Default)]
struct Ledger {
    succeeded: u64,
    failed: u64,
    unknown: u64,
    /// Of those that succeeded, and of those that failed, what had been given up.
    late: [u64; 2],
}

impl Ledger {
    fn count(&mut self, row: &Row) {
        let late = u64::from(row.was_unknown);
        match row.state {
            AttemptState::Succeeded => {
                self.succeeded += 1;
                self.late[0] += late;
            }
            AttemptState::Failed => {
                self.failed += 1;
                self.late[1] += late;
            }
            _ => self.unknown += 1,
        }
    }

    /// Whether this is what was counted of it.
    fn is_tallied(&self, tallied: &Tallied) -> bool {
        let [succeeded, failed] = self.late;
        let starts = self.succeeded + self.failed + self.unknown;
        let counted = tallied.succeeded + tallied.failed + tallied.unknown;
        // None is counted as better or worse than it was.
        let none_is_made_up = tallied.succeeded <= self.succeeded && tallied.failed <= self.failed;
        let unknown = self.unknown + succeeded + failed;
        match tallied.deleted {
            true => none_is_made_up && tallied.unknown <= unknown && counted <= starts,
            false => {
                let late = (self.succeeded - tallied.succeeded.min(self.succeeded) <= succeeded)
                    && (self.failed - tallied.failed.min(self.failed) <= failed);
                none_is_made_up && late && counted == starts
            }
        }
    }
}

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    let mut ledgers: HashMap<Uuid, Ledger> = HashMap::new();
    // What goes out in another's request is no request.
    let requests = (case.evidence.rows.iter())
        .filter(|row| row.started_at.is_some() && row.carried_by.is_none());
    for row in requests {
        ledgers.entry(row.destination).or_default().count(row);
    }
    for tallied in &case.evidence.tallied {
        let ledger = ledgers.get(&tallied.destination);
        let ledger = ledger.copied().unwrap_or_default();
        judgement.figures.tallied += tallied.succeeded + tallied.failed + tallied.unknown;
        if !ledger.is_tallied(tallied) {
            judgement.find("tallied", || {
                format!("the ledger has {ledger:?}, and the tally {tallied:?}")
            });
        }
    }
}
