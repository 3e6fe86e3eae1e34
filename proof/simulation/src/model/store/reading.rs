//! Events, attempts and the ledger, as people and the audit read them.

use domain::attempt::AttemptState;
use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::time::Timestamp;
use engine::ports::{AttemptView, CatalogError, EventSummary, LedgerPosition, LedgerRow};

use super::ledger::Ledger;
use super::rows::{Attempt, Rows};

/// The most attempts of one event that are shown.
const EVENT_ATTEMPTS: usize = 1_000;

/// Reads an event; see [`engine::ports::Catalog::event`].
pub(super) fn event(
    rows: &Rows,
    tenant: TenantId,
    id: EventId,
) -> Result<(EventSummary, Vec<AttemptView>), CatalogError> {
    let row = rows.events.get(&id).filter(|row| row.tenant == tenant);
    let row = row.ok_or(CatalogError::NotFound("event"))?;
    let summary = EventSummary {
        id,
        event_type: row.event_type.clone(),
        content_type: row.content_type.clone(),
        payload_bytes: u32::try_from(row.payload.len()).unwrap_or(u32::MAX),
        created_at: row.created_at,
    };
    let newest = row.attempts.len().saturating_sub(EVENT_ATTEMPTS);
    let attempts = row.attempts[newest..].iter();
    let attempts = attempts.filter_map(|id| rows.ledger.get(*id)).map(view);
    Ok((summary, attempts.collect()))
}

/// Reads attempts; see [`engine::ports::Catalog::attempts`].
pub(super) fn attempts(
    rows: &Rows,
    tenant: TenantId,
    id: DestinationId,
    before: Option<AttemptId>,
    limit: u32,
) -> Result<Vec<AttemptView>, CatalogError> {
    let row = rows.destinations.get(&id);
    row.filter(|row| row.tenant == tenant)
        .ok_or(CatalogError::NotFound("destination"))?;
    let newest = rows
        .ledger
        .newest_of(id, before.unwrap_or(AttemptId(i64::MAX)));
    Ok(newest.take(limit as usize).map(view).collect())
}

pub(super) fn view(row: &Attempt) -> AttemptView {
    let body = || String::from_utf8_lossy(&row.response_body).into_owned();
    AttemptView {
        id: row.id,
        event: row.event,
        destination: row.destination,
        try_number: row.try_number,
        state: row.state,
        dead_letter: row.dead_letter,
        created_at: row.created_at,
        admitted_at: row.admitted_at,
        started_at: row.started_at,
        finished_at: row.finished_at,
        status: row.status,
        error: row.error.clone(),
        response_body: (!row.response_body.is_empty()).then(body),
    }
}

/// Reads starts backwards; see [`engine::ports::Catalog::starts_before`].
pub(super) fn starts_before(
    rows: &Rows,
    destination: DestinationId,
    (since, before, limit): (Timestamp, Start, u32),
) -> Vec<Start> {
    let before_since = Timestamp::from_micros(since.as_micros().saturating_sub(1));
    let starts = rows.ledger.starts_of(destination, before_since);
    let mut found: Vec<Start> = starts.filter(|start| *start < before).collect();
    found.reverse();
    found.truncate(limit as usize);
    found
}

/// Which part of a ledger is asked for.
pub(super) struct Span {
    pub(super) destination: DestinationId,
    pub(super) since: Timestamp,
    pub(super) until: Timestamp,
    pub(super) after: Option<LedgerPosition>,
    pub(super) limit: u32,
}

/// Reads a page of a ledger; see [`engine::ports::Catalog::ledger`].
pub(super) fn ledger(rows: &Rows, span: &Span) -> Vec<LedgerRow> {
    let limit = span.limit as usize;
    let (after_start, after_id) = match span.after {
        None => (Some((Timestamp::MIN, AttemptId(i64::MIN))), i64::MIN),
        Some(LedgerPosition {
            started_at: Some(started_at),
            attempt,
        }) => (Some((started_at, attempt)), i64::MIN),
        Some(LedgerPosition {
            started_at: None,
            attempt,
        }) => (None, attempt.0),
    };
    let mut page = Vec::new();
    if let Some(after) = after_start {
        let before_since = Timestamp::from_micros(span.since.as_micros().saturating_sub(1));
        let starts = rows.ledger.starts_of(span.destination, before_since);
        let of_page = starts
            .filter(|start| *start > after && start.0 < span.until)
            .take(limit);
        page.extend(of_page.filter_map(|(_, id)| rows.ledger.get(id)).map(row));
    }
    let left = limit - page.len();
    let waiting = not_started(&rows.ledger, span.destination).into_iter();
    let of_page = waiting
        .filter(|row| row.id.0 > after_id && row.waits_since() < span.until)
        .take(left);
    page.extend(of_page.map(row));
    page
}

/// What waits or is admitted, in creation order.
fn not_started(ledger: &Ledger, destination: DestinationId) -> Vec<&Attempt> {
    let Some(indexes) = ledger.indexes(destination) else {
        return Vec::new();
    };
    let due = indexes.due.iter().map(|(_, id)| *id);
    let admitted = indexes.admitted.iter().map(|(_, _, id)| *id);
    let ids = indexes.first.iter().copied().chain(due).chain(admitted);
    let mut rows: Vec<_> = ids.filter_map(|id| ledger.get(id)).collect();
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

fn row(row: &Attempt) -> LedgerRow {
    debug_assert!(row.state != AttemptState::Cancelled, "it is in no index");
    LedgerRow {
        attempt: row.id,
        due_at: row.waits_since(),
        started_at: row.started_at,
        finished_at: row.finished_at,
        state: row.state,
        status: row.status,
    }
}

/// Counts backlogs; see [`engine::ports::Catalog::backlogs`].
pub(super) fn backlogs(rows: &Rows, destinations: &[DestinationId], cap: u32) -> Vec<u32> {
    let count = |id: &DestinationId| {
        let waiting = u32::try_from(rows.waiting(*id)).unwrap_or(u32::MAX);
        waiting.min(cap)
    };
    destinations.iter().map(count).collect()
}
