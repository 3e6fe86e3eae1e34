//! Events, attempts and the ledger, as people and the audit read them.

use domain::compliance::Start;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::response_headers::ResponseHeaders;
use domain::time::Timestamp;
use engine::ports::{AttemptView, CatalogError, EventSummary, LedgerPosition, LedgerRow};
use rusqlite::{Connection, Params, Row};

use super::fault::Fault;
use super::rows::{all, first, maybe_time, parse, time, word};

/// The most attempts of one event that are shown.
const EVENT_ATTEMPTS: u32 = 1_000;

const VIEW: &str = "
    select id, event_id, destination_id, try_number, state, dead_letter, created_at, admitted_at,
        started_at, finished_at, status, error, substr(response_body, 1, 1024), replay_id,
        response_headers,
        due_at, expires_at
    from attempts";

const EVENT: &str = "
    -- event
    select event_type, content_type, length(payload), created_at, urgent
    from events where id = ?1 and tenant_id = ?2";

const OF_EVENT: &str = "
    -- event: its newest attempts
    select * from (
        select * from (
            select id from ledger indexed by ledger_of_event
            where event_id = ?1 order by id desc limit ?2
        )
        union all
        select * from (
            select id from deliveries indexed by deliveries_of_event
            where event_id = ?1 order by id desc limit ?2
        )
    )
    order by id desc limit ?2";

const OWNED: &str = "
    -- attempts: is it the tenant's, deleted or not
    select 1 from destinations where id = ?1 and tenant_id = ?2";

/// By start. The two halves of the index, and what is under way, are in the same order,
/// and merged.
const STARTED: &str = "
    -- ledger: what started
    select * from (
        select * from (
            select id, coalesce(due_at, created_at), started_at, finished_at, state, status
            from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and started_at >= ?2 and started_at < ?3
                and (started_at, id) > (?4, ?5) and carried_by is null
            order by started_at, id limit ?6
        )
        union all
        select * from (
            select id, coalesce(due_at, created_at), started_at, finished_at, state, status
            from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and started_at >= ?2 and started_at < ?3
                and (started_at, id) > (?4, ?5) and carried_by is null
            order by started_at, id limit ?6
        )
        union all
        select * from (
            select id, coalesce(due_at, created_at), started_at, null, state, null
            from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'started' and started_at >= ?2
                and started_at < ?3 and (started_at, id) > (?4, ?5)
                and permit is not null and carried_by is null
            order by started_at, id limit ?6
        )
    )
    order by 3, 1 limit ?6";

/// The same backwards, from the indexes alone.
const STARTS_BEFORE: &str = "
    -- starts_before
    select * from (
        select * from (
            select started_at, id from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 0 and started_at >= ?2 and started_at <= ?3
                and (started_at, id) < (?3, ?4) and carried_by is null
            order by started_at desc, id desc limit ?5
        )
        union all
        select * from (
            select started_at, id from ledger indexed by ledger_starts
            where destination_id = ?1 and folded = 1 and started_at >= ?2 and started_at <= ?3
                and (started_at, id) < (?3, ?4) and carried_by is null
            order by started_at desc, id desc limit ?5
        )
        union all
        select * from (
            select started_at, id from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'started' and started_at >= ?2
                and started_at <= ?3 and (started_at, id) < (?3, ?4)
                and permit is not null and carried_by is null
            order by started_at desc, id desc limit ?5
        )
    )
    order by 1 desc, 2 desc limit ?5";

const NOT_STARTED: &str = "
    -- ledger: what waits
    select id, due, null, null, state, null from (
        select * from (
            select a.id, a.created_at as due, a.state from json_each(line(?1, ?3, ?4)) l
            cross join deliveries a on a.id = l.value
            where a.permit is null and a.due_at is null and a.created_at < ?2
            order by l.key
        )
        union all
        select * from (
            select id, due_at, state from deliveries indexed by deliveries_due_by_id
            where destination_id = ?1 and permit is null and due_at is not null
                and due_at < ?2 and id > ?3
            order by id limit ?4
        )
        union all
        select * from (
            select id, coalesce(due_at, created_at), state
            from deliveries indexed by deliveries_held
            where destination_id = ?1 and state = 'admitted'
                and permit is not null and carried_by is null
                and coalesce(due_at, created_at) < ?2 and id > ?3
            order by id limit ?4
        )
    )
    order by 1 limit ?4";

const BACKLOG: &str = "
    -- backlogs
    select (
        select min(line_length(?1), ?2)
    ) + (
        select count(*) from (
            select 1 from deliveries indexed by deliveries_due
            where destination_id = ?1 and permit is null and due_at is not null limit ?2
        )
    )";

/// The ids of the newest attempts of a destination (`?1`) before one of them (`?2`), as
/// many as `?3` of them: by each index that has some, merged.
pub(super) const NEWEST: &str = "
    select * from (
        select * from (
            select id from ledger indexed by ledger_of_destination
            where destination_id = ?1 and id < ?2 order by id desc limit ?3
        )
        union all
        select * from (
            select a.id from json_each(line_before(?1, ?2, ?3)) l
            cross join deliveries a on a.id = l.value
            where a.permit is null and a.due_at is null
            order by l.key
        )
        union all
        select * from (
            select id from deliveries indexed by deliveries_due_by_id
            where destination_id = ?1 and permit is null and due_at is not null and id < ?2
            order by id desc limit ?3
        )
        union all
        select * from (
            select id from deliveries indexed by deliveries_held
            where destination_id = ?1 and permit is not null and carried_by is null and id < ?2
            order by id desc limit ?3
        )
        union all
        select * from (
            select id from deliveries indexed by deliveries_carried
            where destination_id = ?1 and carried_by is not null and id < ?2
            order by id desc limit ?3
        )
    )
    order by id desc limit ?3";

#[cfg(test)]
pub(super) const OF_WHAT_WAITS: [&str; 1] = [NOT_STARTED];

/// Reads an event; see [`engine::ports::Catalog::event`].
pub(super) fn event(
    connection: &Connection,
    tenant: TenantId,
    id: EventId,
) -> Result<(EventSummary, Vec<AttemptView>), Fault> {
    let key = id.to_string();
    let summary = first(connection, EVENT, (&key, tenant.to_string()), |row| {
        Ok(EventSummary {
            id,
            event_type: row.get(0)?,
            content_type: row.get(1)?,
            payload_bytes: row.get(2)?,
            created_at: time(row, 3)?,
            urgent: row.get(4)?,
        })
    })?;
    let summary = summary.ok_or(CatalogError::NotFound("event"))?;
    let mut attempts = newest(connection, OF_EVENT, (&key, EVENT_ATTEMPTS))?;
    attempts.reverse();
    Ok((summary, attempts))
}

/// Reads attempts; see [`engine::ports::Catalog::attempts`].
pub(super) fn attempts(
    connection: &Connection,
    tenant: TenantId,
    id: DestinationId,
    before: Option<AttemptId>,
    limit: u32,
) -> Result<Vec<AttemptView>, Fault> {
    let key = id.to_string();
    let owned = first(connection, OWNED, (&key, tenant.to_string()), |_| Ok(()))?;
    owned.ok_or(CatalogError::NotFound("destination"))?;
    let before = before.map_or(i64::MAX, |before| before.0);
    newest(connection, &newest_of_destination(), (&key, before, limit))
}

pub(super) fn newest_of_destination() -> String {
    format!("-- attempts: which{NEWEST}")
}

/// Reads those whose ids a statement finds.
pub(super) fn newest(
    connection: &Connection,
    which: &str,
    params: impl Params,
) -> Result<Vec<AttemptView>, Fault> {
    let ids = all(connection, which, params, |row| Ok(AttemptId(row.get(0)?)))?;
    of_ids(connection, &ids)
}

/// Reads some, in their order; what has gone meanwhile is left out.
pub(super) fn of_ids(
    connection: &Connection,
    ids: &[AttemptId],
) -> Result<Vec<AttemptView>, Fault> {
    let read = |id: &AttemptId| one(connection, *id).transpose();
    ids.iter().filter_map(read).collect()
}

/// Reads one, whosever it is.
pub(super) fn one(connection: &Connection, id: AttemptId) -> Result<Option<AttemptView>, Fault> {
    let sql = format!("{VIEW} where id = ?1");
    first(connection, &sql, [id.0], view)
}

pub(super) fn view(row: &Row<'_>) -> Result<AttemptView, Fault> {
    let body: Option<Vec<u8>> = row.get(12)?;
    let replay: Option<String> = row.get(13)?;
    let replay = replay.map(|id| parse(&id, ("attempts", "replay_id")));
    Ok(AttemptView {
        id: AttemptId(row.get(0)?),
        event: word(row, 1, ("attempts", "event_id"))?,
        destination: word(row, 2, ("attempts", "destination_id"))?,
        try_number: row.get(3)?,
        state: word(row, 4, ("attempts", "state"))?,
        dead_letter: row.get(5)?,
        created_at: time(row, 6)?,
        due_at: maybe_time(row, 15)?,
        expires_at: maybe_time(row, 16)?,
        admitted_at: maybe_time(row, 7)?,
        started_at: maybe_time(row, 8)?,
        finished_at: maybe_time(row, 9)?,
        status: row.get(10)?,
        error: row.get(11)?,
        response_body: body.map(|body| String::from_utf8_lossy(&body).into_owned()),
        replay: replay.transpose()?,
        response_headers: ResponseHeaders::stored(row.get(14)?),
    })
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
pub(super) fn ledger(connection: &Connection, span: &Span) -> Result<Vec<LedgerRow>, Fault> {
    let key = span.destination.to_string();
    let (since, until) = (span.since.as_micros(), span.until.as_micros());
    let after_start = match span.after {
        None => Some((i64::MIN, i64::MIN)),
        Some(LedgerPosition {
            started_at: Some(started_at),
            attempt,
        }) => Some((started_at.as_micros(), attempt.0)),
        Some(LedgerPosition {
            started_at: None, ..
        }) => None,
    };
    let mut rows = Vec::new();
    if let Some((started_at, id)) = after_start {
        let params = (&key, since, until, started_at, id, span.limit);
        rows = all(connection, STARTED, params, ledger_row)?;
    }
    let left = usize::try_from(span.limit).unwrap_or(usize::MAX) - rows.len();
    if left > 0 {
        let after = match (after_start, span.after) {
            (None, Some(position)) => position.attempt.0,
            _ => i64::MIN,
        };
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        rows.extend(all(
            connection,
            NOT_STARTED,
            (&key, until, after, left),
            ledger_row,
        )?);
    }
    Ok(rows)
}

/// Reads starts backwards; see [`engine::ports::Catalog::starts_before`].
pub(super) fn starts_before(
    connection: &Connection,
    destination: DestinationId,
    (since, before, limit): (Timestamp, Start, u32),
) -> Result<Vec<Start>, Fault> {
    let key = destination.to_string();
    let (since, before_at) = (since.as_micros(), before.0.as_micros());
    let params = (&key, since, before_at, before.1.0, limit);
    all(connection, STARTS_BEFORE, params, |row| {
        Ok((time(row, 0)?, AttemptId(row.get(1)?)))
    })
}

fn ledger_row(row: &Row<'_>) -> Result<LedgerRow, Fault> {
    Ok(LedgerRow {
        attempt: AttemptId(row.get(0)?),
        due_at: time(row, 1)?,
        started_at: maybe_time(row, 2)?,
        finished_at: maybe_time(row, 3)?,
        state: word(row, 4, ("attempts", "state"))?,
        status: row.get(5)?,
    })
}

/// Counts backlogs; see [`engine::ports::Catalog::backlogs`].
pub(super) fn backlogs(
    connection: &Connection,
    destinations: &[DestinationId],
    cap: u32,
) -> Result<Vec<u32>, Fault> {
    let count = |destination: &DestinationId| {
        let params = (destination.to_string(), cap);
        let waiting = first(connection, BACKLOG, params, |row| Ok(row.get::<_, u32>(0)?))?;
        Ok(waiting.unwrap_or(0).min(cap))
    };
    destinations.iter().map(count).collect()
}
