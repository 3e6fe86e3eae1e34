//! Every request beyond an event's first has a reason that is on record.
//!
//! A further attempt needs one before it that failed, was not sent, was replayed,
//! or was at some time recorded as unknown; the run's trigger remembers the last,
//! which a late outcome overwrites. And no attempt is one request more than once.

use std::collections::HashMap;

use domain::attempt::AttemptState;

use super::{Case, Judgement};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, rows) in &case.rows {
        for pair in rows.windows(2) {
            if !is_reason(pair[0]) {
                judgement.find("extra", || {
                    format!(
                        "attempt {} of event {event} follows attempt {}, which {}",
                        pair[1].attempt,
                        pair[0].attempt,
                        pair[0].state.as_str()
                    )
                });
            }
        }
    }
    for (event, receipts) in &case.receipts {
        let mut by_try: HashMap<Option<u32>, u64> = HashMap::new();
        for receipt in receipts {
            *by_try.entry(receipt.try_number).or_default() += 1;
        }
        for (try_number, arrived) in by_try {
            let attempts = (case.rows(*event).iter())
                .filter(|row| Some(row.try_number) == try_number && was_sent(row))
                .count() as u64;
            if arrived > attempts {
                judgement.find("extra", || {
                    format!(
                        "event {event}: {arrived} requests of try {try_number:?}, which has \
                         {attempts} attempts"
                    )
                });
            }
        }
    }
}

fn is_reason(row: &Row) -> bool {
    use AttemptState::{Failed, NotSent, Unknown};
    row.was_unknown || row.is_replayed || matches!(row.state, Failed | NotSent | Unknown)
}

/// By the ledger.
fn was_sent(row: &Row) -> bool {
    row.started_at.is_some() && row.state != AttemptState::NotSent
}
