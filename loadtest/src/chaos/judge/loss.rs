//! Accepted ⊆ received ∪ visible dead letters ∪ cancelled.

use domain::attempt::AttemptState;
use promises::{Accepted, Left, all_is_drained, nothing_is_lost};
use uuid::Uuid;

use super::{Case, Judgement, holds};
use crate::chaos::log::Row;

pub(super) fn judge(case: &Case<'_>, judgement: &mut Judgement) {
    for (event, post) in &case.accepted {
        let rows = case.rows(*event);
        // One that goes on is not lost; it is `left`.
        if rows.iter().any(|row| !row.state.is_final()) {
            continue;
        }
        let last = rows.last();
        let accepted = Accepted {
            was_taken: !case.receipts(*event).is_empty(),
            is_dead_letter: last.is_some_and(|last| is_open_dead_letter(last)),
            is_cancelled: last.is_some_and(|last| last.state == AttemptState::Cancelled),
        };
        let judged = nothing_is_lost(event, accepted).map_err(|broken| {
            let states: Vec<_> = rows.iter().map(|row| row.state.as_str()).collect();
            broken.of(format_args!(
                "post {} of destination {}, attempts {states:?}",
                post.number, post.destination
            ))
        });
        judgement.keep("lost", judged);
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
            let (attempt, event) = (row.attempt, row.event);
            let judged = all_is_drained(row.destination, Left::at_the_end(1, Some(row.state)));
            let of_it = format!("attempt {attempt} of event {event}");
            judgement.keep("left", judged.map_err(|broken| broken.of(of_it)));
        }
    }
}

/// Whether it ended in a dead letter that can be seen, or was cancelled.
pub(super) fn is_over(rows: &[&Row]) -> bool {
    rows.last()
        .is_some_and(|last| is_open_dead_letter(last) || last.state == AttemptState::Cancelled)
}

fn is_open_dead_letter(row: &Row) -> bool {
    row.dead_letter && !row.is_replayed
}
