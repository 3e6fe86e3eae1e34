//! What is stated of single calls and rows, whatever the order.

use std::collections::{BTreeMap, BTreeSet};

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, EventId};
use engine::ports::{Acceptance, AttemptView, Outcome, Wake};

use super::calls::{Answer, Call};
use crate::bridge::linear::Called;

/// The attempts of a store.
pub(crate) type Attempts = BTreeMap<AttemptId, AttemptView>;

/// Fails with words, if not.
pub(crate) fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// A call of a destination that another has just deleted.
pub(crate) fn is_gone(call: &Call) -> bool {
    matches!(call, Call::Change(..) | Call::Delete(_))
}

pub(crate) fn accepted(event: EventId, answer: &Acceptance, rows: &Attempts) -> Result<(), String> {
    let Acceptance::Accepted(destinations) = answer else {
        return Ok(());
    };
    for destination in destinations {
        let of_it = (rows.values())
            .filter(|row| row.event == event && row.destination == *destination)
            .count();
        ensure(of_it > 0, || {
            format!("{event:?} at {destination:?} is lost")
        })?;
    }
    Ok(())
}

/// An outcome of a start that its worker recorded is in the row, or another
/// that was there before.
pub(crate) fn recorded_in(outcome: &Outcome, rows: &Attempts) -> Result<(), String> {
    let row = rows.get(&outcome.attempt);
    let is_in = |row: &AttemptView| {
        row.state.is_final() && row.state != AttemptState::Unknown && row.finished_at.is_some()
    };
    ensure(row.is_some_and(is_in), || {
        format!("{outcome:?} is lost: {row:?}")
    })
}

/// Whom the answers of a batch say to wake.
pub(crate) fn woken(batch: &[Called<Call, Answer>]) -> BTreeSet<DestinationId> {
    let of = |one: &Called<Call, Answer>| -> Vec<Wake> {
        match &one.answer {
            Answer::Claims(claims) => claims.wakes.clone(),
            Answer::Woken(wakes) => wakes.clone(),
            Answer::Recorded(recorded) => recorded.wakes.clone(),
            Answer::Reaped(reaped) => reaped.wakes.clone(),
            _ => Vec::new(),
        }
    };
    let wakes = batch.iter().flat_map(of);
    wakes.map(|wake| wake.destination).collect()
}

/// Whom a change of a batch may have revoked, which leaves a mark.
pub(crate) fn changed(batch: &[Called<Call, Answer>]) -> BTreeSet<DestinationId> {
    let of = |one: &Called<Call, Answer>| match &one.call {
        Call::Change(id, _) | Call::Delete(id) => Some(*id),
        _ => None,
    };
    batch.iter().filter_map(of).collect()
}

pub(crate) const fn has_started(state: AttemptState) -> bool {
    use AttemptState::{Admitted, Cancelled, Expired, Waiting};
    !matches!(state, Waiting | Admitted | Cancelled | Expired)
}

/// Whether any number of steps leads from one state to another.
pub(crate) fn may_become(before: AttemptState, after: AttemptState) -> bool {
    use AttemptState::{Admitted, Started, Unknown, Waiting};
    match before {
        Waiting | Admitted => true,
        Started => has_started(after),
        Unknown => has_started(after) && after != Started,
        _ => before == after,
    }
}
