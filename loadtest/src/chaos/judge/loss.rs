//! Accepted ⊆ received ∪ visible dead letters ∪ cancelled.

use domain::attempt::AttemptState;

use super::{Case, Judgement};

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, post) in &case.accepted {
        let rows = case.rows(*event);
        let is_over = rows
            .last()
            .is_some_and(|last| last.dead_letter || last.state == AttemptState::Cancelled);
        if case.receipts(*event).is_empty() && !is_over {
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
