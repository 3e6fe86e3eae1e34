//! The destinations of all tenants, as an operator looks at them; see
//! [`engine::ports::Overview::all_destinations`].

use domain::ids::{DestinationId, TenantId};
use domain::time::Timestamp;
use engine::ports::{
    AllDestinations, FAILS_FOR, MAX_OF_ALL, MAX_SKIPPED, OfTenant, TroubleState, WantedOfAll,
};
use rusqlite::Transaction;

use super::fault::Fault;
use super::harm::{BY_HARM, IS_FAILING, IS_TROUBLED};
use super::rows::{all, first, word};
use super::{destinations, health_book};

/// In one transaction; what they are and how they are is read by their keys, for those
/// on the page alone.
pub(super) fn page(
    tx: &Transaction<'_>,
    now: Timestamp,
    wanted: &WantedOfAll,
) -> Result<AllDestinations, Fault> {
    let mut found = AllDestinations::default();
    for (id, tenant, tenant_name, matching) in ranked(tx, now, wanted)? {
        found.matching = matching;
        if let Some(health) = health_book::view(tx, now, tenant, id)? {
            found.page.push(OfTenant {
                destination: destinations::read(tx, tenant, id)?,
                tenant_name,
                health,
            });
        }
    }
    let sql = format!(
        "-- all_destinations: counts
        select count(*), count(*) filter (where {IS_FAILING}) from destinations d
        left join health h on h.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        where d.deleted_at is null"
    );
    let unused = rusqlite::types::Null;
    let params = (unused, unused, unused, (now - FAILS_FOR).as_micros());
    let counts = first(tx, &sql, params, |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
    })?;
    let (count, failing) = counts.unwrap_or_default();
    found.count = count.unsigned_abs();
    found.failing = failing.unsigned_abs();
    Ok(found)
}

type Ranked = (DestinationId, TenantId, String, u64);

fn ranked(
    tx: &Transaction<'_>,
    now: Timestamp,
    wanted: &WantedOfAll,
) -> Result<Vec<Ranked>, Fault> {
    let is_wanted = match wanted.state {
        None => "1",
        Some(TroubleState::Attention) => IS_TROUBLED,
        Some(TroubleState::Failing) => IS_FAILING,
        Some(TroubleState::Held) => "h.held_until > ?2",
        Some(TroubleState::Paused) => "d.state = 'paused'",
        Some(TroubleState::Disabled) => "d.state = 'disabled'",
    };
    let sql = format!(
        "-- all_destinations
        select d.id, d.tenant_id, n.name, count(*) over () from destinations d
        join tenants n on n.id = d.tenant_id
        left join health h on h.destination_id = d.id
        left join watches w on w.destination_id = d.id
        left join tally_marks m on m.destination_id = d.id
        where d.deleted_at is null and {is_wanted}
            and (?1 = '' or instr(lower(d.name), ?1) > 0 or instr(lower(d.url), ?1) > 0
                or instr(d.id, ?1) > 0 or instr(lower(n.name), ?1) > 0 or instr(n.id, ?1) > 0)
        order by not {IS_TROUBLED}, {BY_HARM}
        limit ?3 offset ?5"
    );
    let params = (
        wanted.text.trim().to_lowercase(),
        now.as_micros(),
        wanted.limit.min(MAX_OF_ALL),
        (now - FAILS_FOR).as_micros(),
        wanted.skip.min(MAX_SKIPPED),
    );
    all(tx, &sql, params, |row| {
        let matching: i64 = row.get(3)?;
        Ok((
            word(row, 0, ("destinations", "id"))?,
            word(row, 1, ("destinations", "tenant_id"))?,
            row.get(2)?,
            matching.unsigned_abs(),
        ))
    })
}
