//! Attempts that somebody looks for, of all destinations of a tenant or of one.

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, EventId, TenantId};
use domain::search::{Examined, Sought, SoughtStatus, each_place, newest};
use domain::time::{Timestamp, micros};
use engine::ports::{
    ATTEMPTS_IN_ORDER, AttemptFilter, AttemptPage, CatalogError, MAX_ATTEMPTS_EXAMINED, MAX_PLACES,
};
use rusqlite::{Row, Transaction};

use super::fault::Fault;
use super::found_events::sought;
use super::ledger::{NEWEST, of_ids};
use super::rows::{all, word};

/// What is there and what is deleted have an index each, and both together have none.
pub(super) const PLACES: &str = "
    -- find_attempts: where; one more than may be read
    select id from destinations where tenant_id = ?1 and deleted_at is null
    union all
    select id from destinations where tenant_id = ?1 and deleted_at is not null
    limit ?2";

/// Of its own: in the statement of all, all of them would be walked.
pub(super) const PLACE: &str = "
    -- find_attempts: whether that is a place
    select id from destinations where tenant_id = ?1 and id = ?2";

/// The ids of the newest attempts of an event (`?1`) before one of them (`?2`), as many as
/// `?3` of them, for as long as it is kept, if it is this tenant's (`?11`).
const OF_EVENT: &str = "
    select * from (
        select * from (
            select id from ledger indexed by ledger_of_event
            where event_id = ?1 and id < ?2 order by id desc limit ?3
        )
        union all
        select * from (
            select id from deliveries indexed by deliveries_of_event
            where event_id = ?1 and id < ?2 order by id desc limit ?3
        )
    )
    where exists (select 1 from events e where e.id = ?1 and e.tenant_id = ?11)
    order by id desc limit ?3";

/// Those of one place, or of one event: which of them are looked for.
fn of(what: &str, newest: &str) -> String {
    format!(
        "-- find_attempts: what is examined {what}
    select a.id,
        (?6 is null or a.state = ?6)
        and (?4 is null or a.created_at >= ?4)
        and (?5 is null or a.created_at < ?5)
        and (?9 is null or (a.status is not null and (a.status = ?9 or a.status / 100 = ?9)))
        and (?10 is null or instr(a.event_id, ?10) > 0)
        and (?7 is null or exists (
            select 1 from events e where e.id = a.event_id and e.event_type = ?7
        ))
        and a.tenant_id = ?11 and (?12 is null or a.destination_id = ?12),
        coalesce(a.created_at < ?4 - ?8, 0)
    from (
        select newest.id, coalesce(l.state, d.state) as state, l.status as status,
            coalesce(l.created_at, d.created_at) as created_at,
            coalesce(l.event_id, d.event_id) as event_id,
            coalesce(l.tenant_id, d.tenant_id) as tenant_id,
            coalesce(l.destination_id, d.destination_id) as destination_id
        from ({newest}) newest
        left join ledger l on l.id = newest.id
        left join deliveries d on d.id = newest.id
    ) a
    order by a.id desc"
    )
}

/// The newest of one place.
pub(super) fn examined() -> String {
    of("at one place", NEWEST)
}

/// Of what the newest are read.
enum Of {
    Place(DestinationId),
    Event(EventId),
}

/// A page of them.
pub(super) fn page(
    tx: &Transaction<'_>,
    now: Timestamp,
    tenant: TenantId,
    (filter, before): (&AttemptFilter, Option<AttemptId>),
    limit: u32,
) -> Result<AttemptPage, Fault> {
    let (part, one) = match sought(tx, now, tenant, filter.text.as_deref())? {
        None => (None, None),
        Some(Sought::Part(part)) => (Some(part), None),
        Some(Sought::One(event)) => (None, Some(event)),
        Some(Sought::Nothing) => return Ok(AttemptPage::default()),
    };
    let (sql, looked_at) = match one {
        Some(event) => (of("of one event", OF_EVENT), vec![Of::Event(event)]),
        None => (examined(), places(tx, tenant, filter.destination)?),
    };
    let each = each_place(MAX_ATTEMPTS_EXAMINED, looked_at.len());
    let (tenant, destination) = (tenant.to_string(), filter.destination);
    let destination = destination.map(|id| id.to_string());
    let mut examined = Vec::new();
    for one in looked_at {
        let (key, place) = match one {
            Of::Place(id) => (id.to_string(), id),
            // To whom each went is no matter then.
            Of::Event(id) => (id.to_string(), DestinationId(id.0)),
        };
        let params = (
            key,
            before.map_or(i64::MAX, |before| before.0),
            each,
            filter.since.map(Timestamp::as_micros),
            filter.until.map(Timestamp::as_micros),
            filter.state.map(AttemptState::as_str),
            &filter.event_type,
            micros(ATTEMPTS_IN_ORDER),
            filter.status.map(SoughtStatus::number),
            &part,
            &tenant,
            &destination,
        );
        examined.extend(all(tx, &sql, params, |row| {
            Ok(Examined {
                place,
                attempt: AttemptId(row.get(0)?),
                wanted: row.get(1)?,
                is_too_old: row.get(2)?,
            })
        })?);
    }
    let (ids, next) = newest(&examined, each, limit);
    Ok(AttemptPage {
        attempts: of_ids(tx, &ids)?,
        next,
    })
}

fn places(
    tx: &Transaction<'_>,
    tenant: TenantId,
    one: Option<DestinationId>,
) -> Result<Vec<Of>, Fault> {
    let tenant = tenant.to_string();
    let places: Vec<Of> = match one {
        Some(one) => all(tx, PLACE, (tenant, one.to_string()), place)?,
        None => all(tx, PLACES, (tenant, MAX_PLACES + 1), place)?,
    };
    match places.len() > MAX_PLACES as usize {
        true => Err(CatalogError::too_many_places().into()),
        false => Ok(places),
    }
}

fn place(row: &Row<'_>) -> Result<Of, Fault> {
    Ok(Of::Place(word(row, 0, ("destinations", "id"))?))
}
