//! Every request beyond an event's first has a reason that is on record.
//!
//! A further attempt needs one before it that failed, was not sent, was replayed,
//! or was at some time recorded as unknown; the run's trigger remembers the last,
//! which a late outcome overwrites. And no attempt is one request more than once.

use std::collections::HashMap;

use domain::attempt::AttemptState;
use promises::{Followed, a_further_attempt_has_a_reason, a_try_is_one_request};

use super::{Case, Judgement};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, rows) in &case.rows {
        for pair in rows.windows(2) {
            let (before, again) = (pair[0], pair[1]);
            let followed = Followed {
                state: before.state,
                was_unknown: before.was_unknown,
                is_replayed: before.is_replayed,
            };
            let judged = a_further_attempt_has_a_reason(again.attempt, (before.attempt, followed));
            let judged = judged.map_err(|broken| broken.of(format_args!("event {event}")));
            judgement.keep("extra", judged);
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
            let of = format!("event {event}, try {try_number:?}");
            judgement.keep("extra", a_try_is_one_request(of, arrived, attempts));
        }
    }
}

/// By the ledger.
fn was_sent(row: &Row) -> bool {
    row.started_at.is_some() && row.state != AttemptState::NotSent
}
