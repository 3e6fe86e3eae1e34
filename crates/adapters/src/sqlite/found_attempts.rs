//! Attempts that somebody looks for, of all destinations of a tenant or of one.

use domain::attempt::AttemptState;
use domain::ids::{AttemptId, DestinationId, TenantId};
use domain::search::{Examined, each_place, newest};
use domain::time::{Timestamp, micros};
use engine::ports::{
    ATTEMPTS_IN_ORDER, AttemptFilter, AttemptPage, CatalogError, MAX_ATTEMPTS_EXAMINED, MAX_PLACES,
};
use rusqlite::Transaction;

use super::fault::Fault;
use super::ledger::{NEWEST, of_ids};
use super::rows::{all, word};

const PLACES: &str = "
    -- find_attempts: where; one more than may be read
    select id from destinations where tenant_id = ?1 and (?2 is null or id = ?2) limit ?3";

/// The newest of one place.
pub(super) fn examined() -> String {
    format!(
        "-- find_attempts: what is examined at one place
    select a.id,
        (?6 is null or a.state = ?6)
        and (?4 is null or a.created_at >= ?4)
        and (?5 is null or a.created_at < ?5)
        and (?7 is null or exists (
            select 1 from events e where e.id = a.event_id and e.event_type = ?7
        )),
        coalesce(a.created_at < ?4 - ?8, 0)
    from (
        select newest.id, coalesce(l.state, d.state) as state,
            coalesce(l.created_at, d.created_at) as created_at,
            coalesce(l.event_id, d.event_id) as event_id
        from ({NEWEST}) newest
        left join ledger l on l.id = newest.id
        left join deliveries d on d.id = newest.id
    ) a
    order by a.id desc"
    )
}

/// A page of them.
pub(super) fn page(
    tx: &Transaction<'_>,
    tenant: TenantId,
    (filter, before): (&AttemptFilter, Option<AttemptId>),
    limit: u32,
) -> Result<AttemptPage, Fault> {
    let wanted = filter.destination.map(|id| id.to_string());
    let params = (tenant.to_string(), wanted, MAX_PLACES + 1);
    let places: Vec<DestinationId> = all(tx, PLACES, params, |row| {
        word(row, 0, ("destinations", "id"))
    })?;
    if places.len() > MAX_PLACES as usize {
        return Err(CatalogError::too_many_places().into());
    }
    let each = each_place(MAX_ATTEMPTS_EXAMINED, places.len());
    let sql = examined();
    let mut examined = Vec::new();
    for place in places {
        let params = (
            place.to_string(),
            before.map_or(i64::MAX, |before| before.0),
            each,
            filter.since.map(Timestamp::as_micros),
            filter.until.map(Timestamp::as_micros),
            filter.state.map(AttemptState::as_str),
            &filter.event_type,
            micros(ATTEMPTS_IN_ORDER),
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
