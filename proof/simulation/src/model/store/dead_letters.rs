//! Dead letters, as people look at them.

use domain::ids::{AttemptId, DestinationId, TenantId};
use engine::ports::{
    CatalogError, DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterPosition,
    DestinationPage, MAX_EXAMINED, MAX_EXAMINED_EACH,
};

use super::reading::view;
use super::rows::{Attempt, Rows};

/// Whether it matches beside its destination and the time when it died.
pub(super) fn matches(rows: &Rows, row: &Attempt, filter: &DeadLetterFilter) -> bool {
    let event_type = (rows.events.get(&row.event)).and_then(|event| event.event_type.as_ref());
    (filter.status.is_none() || row.status == filter.status)
        && (filter.event_type.is_none() || event_type == filter.event_type.as_ref())
}

/// Reads a page; see [`engine::ports::Backlog::dead_letters`].
pub(super) fn page(
    rows: &Rows,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DeadLetterPosition>,
    limit: u32,
) -> DeadLetterPage {
    let of_tenant = |row: &&Attempt| {
        rows.tenant_of(row.destination) == Some(tenant)
            && filter.destination.is_none_or(|id| id == row.destination)
    };
    let position = |row: &Attempt| {
        row.died_at().map(|died_at| DeadLetterPosition {
            died_at,
            attempt: row.id,
        })
    };
    let mut examined: Vec<_> = (rows.ledger.attempts())
        .filter(|row| row.is_open_dead_letter())
        .filter(of_tenant)
        .filter_map(|row| Some((position(row)?, row)))
        .filter(|(at, _)| {
            filter.died_from.is_none_or(|from| at.died_at >= from)
                && filter.died_before.is_none_or(|before| at.died_at < before)
                && after.is_none_or(|after| *at < after)
        })
        .collect();
    examined.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
    let most = MAX_EXAMINED.max(limit) as usize;
    examined.truncate(most);
    let found: Vec<_> = (examined.iter())
        .filter(|(_, row)| matches(rows, row, filter))
        .take(limit as usize)
        .collect();
    let next = match found.len() >= limit as usize {
        true => found.last().map(|(at, _)| *at),
        false => (examined.last().filter(|_| examined.len() >= most)).map(|(at, _)| *at),
    };
    let shown = found.iter().filter_map(|(_, row)| shown(rows, row));
    DeadLetterPage {
        dead_letters: shown.collect(),
        next,
    }
}

/// Reads one; see [`engine::ports::Backlog::dead_letter`].
pub(super) fn one(
    rows: &Rows,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<DeadLetter, CatalogError> {
    let row = rows.ledger.get(attempt);
    row.filter(|row| row.dead_letter && rows.tenant_of(row.destination) == Some(tenant))
        .and_then(|row| shown(rows, row))
        .ok_or(CatalogError::NotFound("dead letter"))
}

fn shown(rows: &Rows, row: &Attempt) -> Option<DeadLetter> {
    Some(DeadLetter {
        attempt: view(row),
        event_type: (rows.events.get(&row.event)).and_then(|event| event.event_type.clone()),
        died_at: row.died_at()?,
        replayed_at: row.replayed_at,
    })
}

/// Destinations that have some; see
/// [`engine::ports::Backlog::destinations_with_dead_letters`].
pub(super) fn destinations(
    rows: &Rows,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DestinationId>,
    limit: u32,
) -> DestinationPage {
    let in_its_times = |row: &&Attempt| {
        row.is_open_dead_letter()
            && row.died_at().is_some_and(|died| {
                filter.died_from.is_none_or(|from| died >= from)
                    && filter.died_before.is_none_or(|before| died < before)
            })
    };
    let has_some = |id: DestinationId| {
        let dead: Vec<_> = (rows.ledger.attempts_of(id)).filter(in_its_times).collect();
        dead.len() > MAX_EXAMINED_EACH as usize || dead.iter().any(|row| matches(rows, row, filter))
    };
    let own = rows.destinations.keys().copied().filter(|id| {
        let living = rows.living(*id);
        living.is_some_and(|row| row.tenant == tenant) && after.is_none_or(|after| *id > after)
    });
    let looked_at = own.take(limit as usize).map(|id| (id, has_some(id)));
    DestinationPage::of(looked_at.collect(), limit)
}
