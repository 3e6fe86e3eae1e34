//! Events that somebody looks for, page by page.

use domain::attempt::AttemptState;
use domain::ids::{EventId, TenantId};
use domain::search::{IdRange, Sought, SoughtStatus};
use domain::time::Timestamp;
use engine::ports::{EventFilter, EventPage, FoundEvent, MAX_EVENTS_EXAMINED};
use rusqlite::{Row, Transaction};

use super::fault::Fault;
use super::rows::{first, maybe_time, parse, time, word};

const KEY: &str = "
    -- find_events: a key
    select event_id from idempotency_keys
    where tenant_id = ?1 and key = ?2 and expires_at > ?3";

const EVENTS: &str = "
    -- find_events: what is examined
    select e.id,
        (?5 is null or e.event_type is ?5)
        and (?6 is null or e.created_at >= ?6)
        and (?7 is null or e.created_at < ?7)
        and (?8 is null or instr(e.id, ?8) > 0)
        and ((?9 is null and ?10 is null and ?11 is null)
            or (?11 is null and exists (
                select 1 from deliveries a indexed by deliveries_of_event
                where a.event_id = e.id and (?9 is null or a.state = ?9)
                    and (?10 is null or a.destination_id = ?10)
            ))
            or exists (
                select 1 from ledger a indexed by ledger_of_event
                where a.event_id = e.id and (?9 is null or a.state = ?9)
                    and (?10 is null or a.destination_id = ?10)
                    and (?11 is null or a.status = ?11 or a.status / 100 = ?11)
            ))
    from events e indexed by events_of_tenant
    where e.tenant_id = ?1 and e.id >= ?2 and e.id < ?3 order by e.id desc limit ?4";

const EVENT: &str = "
    -- find_events: one
    select e.event_type, length(e.payload), e.created_at,
        (select count(*) from attempts a where a.event_id = ?1),
        (select a.state from attempts a where a.event_id = ?1 order by a.id desc limit 1),
        iif(?2 is null, null, (
            select count(*) from attempts a
            where a.event_id = ?1 and a.state = ?2 and (?3 is null or a.destination_id = ?3)
                and (?4 is null or a.status = ?4 or a.status / 100 = ?4)
        )),
        (select count(distinct a.destination_id) from attempts a where a.event_id = ?1),
        (select a.destination_id from attempts a where a.event_id = ?1 limit 1),
        e.urgent,
        (
            select min(a.due_at) from deliveries a indexed by deliveries_of_event
            where a.event_id = ?1 and a.state = 'waiting'
        ),
        (
            select min(a.expires_at) from deliveries a indexed by deliveries_of_event
            where a.event_id = ?1 and a.state = 'waiting'
        )
    from events e where e.id = ?1";

/// A page of them.
pub(super) fn page(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    (filter, before): (&EventFilter, Option<EventId>),
    limit: u32,
) -> Result<EventPage, Fault> {
    let (part, ids) = match sought(tx, now, tenant, filter.text.as_deref())? {
        None => (None, IdRange::ALL),
        Some(Sought::Part(part)) => (Some(part), IdRange::ALL),
        Some(Sought::One(id)) => (None, IdRange::only(id)),
        Some(Sought::Nothing) => return Ok(EventPage::default()),
    };
    let ids = (ids.below(before)).and(IdRange::between(filter.since, filter.until));
    let params = (
        tenant.to_string(),
        ids.from.to_string(),
        ids.before.to_string(),
        MAX_EVENTS_EXAMINED,
        &filter.event_type,
        filter.since.map(Timestamp::as_micros),
        filter.until.map(Timestamp::as_micros),
        part,
        filter.state.map(AttemptState::as_str),
        filter
            .destination
            .map(|destination| destination.to_string()),
        filter.status.map(SoughtStatus::number),
    );
    let mut page = EventPage::default();
    let mut statement = tx.prepare_cached(EVENTS)?;
    let mut rows = statement.query(params)?;
    let mut examined = 0;
    while let Some(row) = rows.next()? {
        examined += 1;
        let id: EventId = word(row, 0, ("events", "id"))?;
        if row.get(1)? {
            page.events.extend(event(tx, id, filter)?);
        }
        let full = page.events.len() >= limit as usize;
        if full || examined >= MAX_EVENTS_EXAMINED {
            page.next = Some(id);
            break;
        }
    }
    Ok(page)
}

/// What a filter's text says, if it has one.
pub(super) fn sought(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    text: Option<&str>,
) -> Result<Option<Sought>, Fault> {
    let Some(text) = text else {
        return Ok(None);
    };
    let key = (tenant.to_string(), text, now.as_micros());
    let of_key = first(tx, KEY, key, |row| {
        word(row, 0, ("idempotency_keys", "event_id"))
    })?;
    Ok(Some(Sought::by(text, of_key)))
}

fn event(
    tx: &Transaction<'_>,
    id: EventId,
    filter: &EventFilter,
) -> Result<Option<FoundEvent>, Fault> {
    let params = (
        id.to_string(),
        filter.state.map(AttemptState::as_str),
        filter
            .destination
            .map(|destination| destination.to_string()),
        filter.status.map(SoughtStatus::number),
    );
    first(tx, EVENT, params, |row| found(id, row))
}

fn found(id: EventId, row: &Row<'_>) -> Result<FoundEvent, Fault> {
    let last: Option<String> = row.get(4)?;
    let last = last.map(|last| parse(&last, ("attempts", "state")));
    let destination: Option<String> = row.get(7)?;
    let destination = destination.map(|id| parse(&id, ("attempts", "destination_id")));
    Ok(FoundEvent {
        id,
        event_type: row.get(0)?,
        payload_bytes: row.get(1)?,
        urgent: row.get(8)?,
        created_at: time(row, 2)?,
        attempts: row.get(3)?,
        matching: row.get(5)?,
        destinations: row.get(6)?,
        destination: destination.transpose()?,
        due_at: maybe_time(row, 9)?,
        expires_at: maybe_time(row, 10)?,
        last: last.transpose()?,
    })
}
