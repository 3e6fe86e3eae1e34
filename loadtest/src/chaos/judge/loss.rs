//! Accepted ⊆ received ∪ visible dead letters ∪ cancelled.

use domain::attempt::AttemptState;

use super::{Case, Judgement};

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, post) in &case.accepted {
        let rows = case.rows(*event);
        let is_over = rows.last().is_some_and(|last| {
            (last.dead_letter && !last.is_replayed) || last.state == AttemptState::Cancelled
        });
        // One that goes on is not lost; it is `left`.
        let goes_on = rows.iter().any(|row| !row.state.is_final());
        if case.receipts(*event).is_empty() && !is_over && !goes_on {
            judgement.find("lost", || {
                let states: Vec<_> = rows.iter().map(|row| row.state.as_str()).collect();
                format!(
                    "event {event} (post {}) of destination {}: attempts {states:?}, no receipt",
                    post.number, post.destination
                )
            });
        }
    }
    for row in &case.evidence.rows {
        if !row.state.is_final() {
            judgement.find("left", || {
                format!(
                    "attempt {} of event {} is {}",
                    row.attempt,
                    row.event,
                    row.state.as_str()
                )
            });
        }
    }
}
