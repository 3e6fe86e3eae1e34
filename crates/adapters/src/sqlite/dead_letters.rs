//! Dead letters, as people look at them.

use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    CatalogError, DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetterPosition,
    DestinationPage, MAX_EXAMINED, MAX_EXAMINED_EACH,
};
use rusqlite::{Connection, Row};

use super::fault::Fault;
use super::ledger::view;
use super::rows::{all, first, maybe_time, time, word};

const ONE: &str = "
    -- dead_letter
    select a.id, a.event_id, a.destination_id, a.try_number, a.state, a.dead_letter, a.created_at,
        a.admitted_at, a.started_at, a.finished_at, a.status, a.error, substr(a.response_body, 1, 1024), a.replay_id,
        a.response_headers, a.due_at, a.expires_at, e.event_type,
        coalesce(a.finished_at, a.started_at), a.replayed_at
    from ledger a left join events e on e.id = a.event_id
    where a.id = ?1 and a.tenant_id = ?2 and a.dead_letter = 1";

const OF_DESTINATION: &str = "
    -- dead_letters: of one destination
    select a.id, coalesce(a.finished_at, a.started_at),
        (?6 is null or a.status is ?6) and (?7 is null or e.event_type is ?7)
    from ledger a indexed by ledger_dead
    join events e on e.id = a.event_id
    where a.tenant_id = ?1 and a.destination_id = ?9 and a.dead_letter = 1
        and a.replayed_at is null
        and coalesce(a.finished_at, a.started_at) >= ?2
        and coalesce(a.finished_at, a.started_at) < ?3
        and (coalesce(a.finished_at, a.started_at), a.id) < (?4, ?5)
    order by coalesce(a.finished_at, a.started_at) desc, a.id desc
    limit ?8";

const OF_TENANT: &str = "
    -- dead_letters: of all
    select a.id, coalesce(a.finished_at, a.started_at),
        (?6 is null or a.status is ?6) and (?7 is null or e.event_type is ?7)
    from ledger a indexed by ledger_dead_of_tenant
    join events e on e.id = a.event_id
    where a.tenant_id = ?1 and ?9 is null and a.dead_letter = 1
        and a.replayed_at is null
        and coalesce(a.finished_at, a.started_at) >= ?2
        and coalesce(a.finished_at, a.started_at) < ?3
        and (coalesce(a.finished_at, a.started_at), a.id) < (?4, ?5)
    order by coalesce(a.finished_at, a.started_at) desc, a.id desc
    limit ?8";

const DESTINATIONS: &str = "
    -- destinations_with_dead_letters: the first of each, by the index
    select d.id,
        exists (
            select 1 from (
                select a.event_id, a.status
                from ledger a indexed by ledger_dead
                where a.destination_id = d.id and a.dead_letter = 1 and a.replayed_at is null
                    and coalesce(a.finished_at, a.started_at) >= ?2
                    and coalesce(a.finished_at, a.started_at) < ?3
                order by coalesce(a.finished_at, a.started_at), a.id
                limit ?4
            ) examined
            join events e on e.id = examined.event_id
            where (?5 is null or examined.status is ?5) and (?6 is null or e.event_type is ?6)
        )
        or exists (
            select 1 from ledger a indexed by ledger_dead
            where a.destination_id = d.id and a.dead_letter = 1 and a.replayed_at is null
                and coalesce(a.finished_at, a.started_at) >= ?2
                and coalesce(a.finished_at, a.started_at) < ?3
            limit 1 offset ?4
        )
    from destinations d
    where d.tenant_id = ?1 and d.deleted_at is null and d.id > ?7
    order by d.id limit ?8";

/// Reads which destinations have some; see
/// [`engine::ports::Backlog::destinations_with_dead_letters`].
pub(super) fn destinations(
    connection: &Connection,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DestinationId>,
    limit: u32,
) -> Result<DestinationPage, Fault> {
    let params = (
        tenant.to_string(),
        filter.died_from.map_or(i64::MIN, Timestamp::as_micros),
        filter.died_before.map_or(i64::MAX, Timestamp::as_micros),
        MAX_EXAMINED_EACH,
        filter.status,
        &filter.event_type,
        after.map_or_else(String::new, |after| after.to_string()),
        limit,
    );
    let looked_at = all(connection, DESTINATIONS, params, |row| {
        Ok((word(row, 0, ("destinations", "id"))?, row.get(1)?))
    })?;
    Ok(DestinationPage::of(looked_at, limit))
}

/// Reads a page; see [`engine::ports::Backlog::dead_letters`].
pub(super) fn page(
    connection: &Connection,
    tenant: TenantId,
    filter: &DeadLetterFilter,
    after: Option<DeadLetterPosition>,
    limit: u32,
) -> Result<DeadLetterPage, Fault> {
    let sql = match filter.destination {
        Some(_) => OF_DESTINATION,
        None => OF_TENANT,
    };
    let bound = |at: Option<Timestamp>, other| at.map_or(other, Timestamp::as_micros);
    let most = MAX_EXAMINED.max(limit);
    let params = (
        tenant.to_string(),
        bound(filter.died_from, i64::MIN),
        bound(filter.died_before, i64::MAX),
        bound(after.map(|after| after.died_at), i64::MAX),
        after.map_or(i64::MAX, |after| after.attempt.0),
        filter.status,
        &filter.event_type,
        most,
        filter.destination.map(|id| id.to_string()),
    );
    let examined = all(connection, sql, params, |row| {
        let position = DeadLetterPosition {
            died_at: time(row, 1)?,
            attempt: AttemptId(row.get(0)?),
        };
        Ok((position, row.get::<_, bool>(2)?))
    })?;
    let matching = examined.iter().filter(|(_, matches)| *matches);
    let positions: Vec<_> = matching
        .take(limit as usize)
        .map(|(position, _)| *position)
        .collect();
    let dead_letters: Result<Vec<_>, Fault> = positions
        .iter()
        .map(|position| one(connection, tenant, position.attempt))
        .collect();
    let next = match positions.len() >= limit as usize {
        true => positions.last().copied(),
        false => (examined.last().filter(|_| examined.len() >= most as usize))
            .map(|(position, _)| *position),
    };
    Ok(DeadLetterPage {
        dead_letters: dead_letters?,
        next,
    })
}

/// Reads one; see [`engine::ports::Backlog::dead_letter`].
pub(super) fn one(
    connection: &Connection,
    tenant: TenantId,
    attempt: AttemptId,
) -> Result<DeadLetter, Fault> {
    let found = first(
        connection,
        ONE,
        (attempt.0, tenant.to_string()),
        dead_letter,
    )?;
    Ok(found.ok_or(CatalogError::NotFound("dead letter"))?)
}

fn dead_letter(row: &Row<'_>) -> Result<DeadLetter, Fault> {
    Ok(DeadLetter {
        attempt: view(row)?,
        event_type: row.get(17)?,
        died_at: time(row, 18)?,
        replayed_at: maybe_time(row, 19)?,
    })
}
