//! Accepted ⊆ received ∪ visible dead letters ∪ cancelled.

use domain::attempt::AttemptState;
use uuid::Uuid;

use super::{Case, Judgement, holds};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, post) in &case.accepted {
        let rows = case.rows(*event);
        let is_over = is_over(rows);
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
    let destinations = case.evidence.run.destinations.iter();
    let given_up: Vec<Uuid> = destinations
        .filter(|tried| tried.doomed && holds::is_disabled(case, tried.id))
        .map(|tried| tried.id)
        .collect();
    for row in &case.evidence.rows {
        // What waited when its destination was disabled waits for ever.
        let stays = row.state == AttemptState::Waiting && given_up.contains(&row.destination);
        if !row.state.is_final() && !stays {
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

/// Whether it ended in a dead letter that can be seen, or was cancelled.
pub(super) fn is_over(rows: &[&Row]) -> bool {
    rows.last().is_some_and(|last| {
        (last.dead_letter && !last.is_replayed) || last.state == AttemptState::Cancelled
    })
}
