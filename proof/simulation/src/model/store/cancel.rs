//! Cancelling what has not started, one or a step of a backlog.

use std::ops::Bound::{Excluded, Unbounded};

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, TenantId};
use domain::time::Timestamp;
use engine::ports::{CancelFrom, CancelStep, CancelledOne, CancelledStep, CatalogError, Wake};

use super::indexes::Indexes;
use super::rows::{Attempt, Rows};

/// One attempt; see [`engine::ports::Backlog::cancel_attempt`].
pub(super) fn attempt(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    id: AttemptId,
) -> Result<CancelledOne, CatalogError> {
    let found = rows.ledger.get(id);
    let found = found.filter(|row| rows.tenant_of(row.destination) == Some(tenant));
    let row = found.ok_or(CatalogError::NotFound("attempt"))?;
    let (state, destination) = (row.state, row.destination);
    match state {
        AttemptState::Waiting | AttemptState::Admitted => {}
        AttemptState::Cancelled => return Ok(CancelledOne::Cancelled(None)),
        other => return Ok(CancelledOne::TooLate(other)),
    }
    rows.ledger.change(now, id, Attempt::cancel);
    let freed = state == AttemptState::Admitted;
    let wake = freed.then(|| Wake::unblocked(destination));
    Ok(CancelledOne::Cancelled(wake))
}

/// A step of a backlog; see [`engine::ports::Backlog::cancel_step`].
pub(super) fn step(
    rows: &mut Rows,
    now: Timestamp,
    tenant: TenantId,
    step: &CancelStep,
) -> Result<CancelledStep, CatalogError> {
    if rows.tenant_of(step.destination) != Some(tenant) {
        return Err(CatalogError::NotFound("destination"));
    }
    let accepted_before = step.accepted_before.unwrap_or(now);
    let indexes = rows.ledger.indexes(step.destination);
    let candidates = indexes.map_or_else(Vec::new, |of| candidates(of, step));
    let held = rows.locked.contains(&step.destination);
    let mut cancelled = 0;
    for (_, id) in &candidates {
        let Some(row) = rows.ledger.get(*id) else {
            continue;
        };
        // Somebody's transaction holds what is admitted.
        let is_held = held && row.state == AttemptState::Admitted;
        let Some(event) = rows.events.get(&row.event).filter(|_| !is_held) else {
            continue;
        };
        let of_type = step.event_type.is_none() || event.event_type == step.event_type;
        if of_type && event.created_at < accepted_before {
            rows.ledger.change(now, *id, Attempt::cancel);
            cancelled += 1;
        }
    }
    let more = candidates.len() >= step.limit as usize;
    let freed = matches!(step.from, CancelFrom::Admitted(_)) && cancelled > 0;
    Ok(CancelledStep {
        cancelled,
        accepted_before,
        next: match candidates.last().filter(|_| more) {
            Some((at, id)) => Some(step.from.at(*at, *id)),
            None => step.from.next_part(),
        },
        wakes: (freed.then(|| Wake::unblocked(step.destination)).into_iter()).collect(),
    })
}

/// The rows that a step looks at, in their order.
fn candidates(indexes: &Indexes, step: &CancelStep) -> Vec<(Timestamp, AttemptId)> {
    let limit = step.limit as usize;
    let unordered = |ids: Vec<AttemptId>, after: AttemptId| {
        let mut ids: Vec<_> = ids.into_iter().filter(|id| *id > after).collect();
        ids.sort_unstable();
        ids.truncate(limit);
        ids.into_iter().map(|id| (Timestamp::MIN, id)).collect()
    };
    match step.from {
        CancelFrom::First(after) => {
            let ids = indexes
                .first
                .range((Excluded(after), Unbounded))
                .take(limit);
            ids.map(|id| (Timestamp::MIN, *id)).collect()
        }
        CancelFrom::Admitted(after) => {
            unordered(indexes.admitted.iter().map(|one| one.2).collect(), after)
        }
        CancelFrom::Due(at, id) => {
            let after = indexes.due.range((Excluded((at, id)), Unbounded));
            after.take(limit).copied().collect()
        }
    }
}
