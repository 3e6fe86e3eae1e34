//! Deleted destinations of which nothing is left.

use domain::time::Timestamp;
use rusqlite::Transaction;

use super::Stepped;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{all, execute, first};
use crate::sqlite::tenants;

const DELETED: &str = "
    -- retain: destinations that were deleted long enough ago, and what is left of them
    select d.rowid, d.deleted_at, d.id,
        exists (
            select 1 from ledger a indexed by ledger_of_destination
            where a.destination_id = d.id
        )
        or line_length(d.id) > 0
        or exists (
            select 1 from deliveries a indexed by deliveries_due
            where a.destination_id = d.id and a.permit is null and a.due_at is not null
        )
        or exists (
            select 1 from deliveries a indexed by deliveries_held
            where a.destination_id = d.id and a.permit is not null and a.carried_by is null
        )
        or exists (
            select 1 from deliveries a indexed by deliveries_carried
            where a.destination_id = d.id and a.carried_by is not null
        ),
        d.drained_at is not null and (
            line_length(d.id) > 0
            or exists (
                select 1 from deliveries a indexed by deliveries_due
                where a.destination_id = d.id and a.permit is null and a.due_at is not null
            )
        )
    from destinations d indexed by destinations_deleted
    where d.deleted_at is not null and d.deleted_at <= ?1 and (d.deleted_at, d.rowid) > (?2, ?3)
    order by d.deleted_at, d.rowid limit ?4";

const GIVE_BACK: &str = "
    -- retain: the reaper looks at it again
    update destinations set drained_at = null where id = ?1";

const TENANT: &str = "
    -- retain: whose it was
    select tenant_id from destinations where id = ?1";

/// What else is known of a destination, and may be many rows: so many of them go in
/// one step.
const LONG: [&str; 4] = [
    "
    -- retain: its limit history
    delete from limit_history where id in (
        select id from limit_history indexed by limit_history_of_destination
        where destination_id = ?1 limit ?2
    )",
    "
    -- retain: its effective limits
    delete from smart_history where id in (
        select id from smart_history indexed by smart_history_of_destination
        where destination_id = ?1 limit ?2
    )",
    "
    -- retain: its coarse starts
    delete from start_buckets where (destination_id, period, ends_at, shard) in (
        select destination_id, period, ends_at, shard from start_buckets
        where destination_id = ?1 limit ?2
    )",
    "
    -- retain: its tallies
    delete from tallies where (destination_id, slot, ends_at) in (
        select destination_id, slot, ends_at from tallies where destination_id = ?1 limit ?2
    )",
];

/// The rest, a row or few of each; the destination itself at the end.
const SHORT: [&str; 12] = [
    "-- retain: its pacing\ndelete from pacing where destination_id = ?1",
    "-- retain: its health\ndelete from health where destination_id = ?1",
    "-- retain: its response times\ndelete from response_times where destination_id = ?1",
    "-- retain: its effective limit\ndelete from smart_limits where destination_id = ?1",
    "-- retain: its watch\ndelete from watches where destination_id = ?1",
    "-- retain: its tally's mark\ndelete from tally_marks where destination_id = ?1",
    "-- retain: its mark\ndelete from destination_marks where destination_id = ?1",
    "-- retain: its requests\ndelete from limit_requests where destination_id = ?1",
    "-- retain: its groups\ndelete from limit_group_members where destination_id = ?1",
    "-- retain: its replays\ndelete from replays where destination_id = ?1",
    "-- retain: its secrets\ndelete from destination_secrets where destination_id = ?1",
    "-- retain: itself\ndelete from destinations where id = ?1",
];

/// Goes on after the one that was deleted then and has this rowid.
pub(super) fn step(
    tx: &Transaction<'_>,
    deleted_by: Timestamp,
    (after_at, after): (i64, i64),
    limit: u32,
) -> Result<Stepped, Fault> {
    let page = (deleted_by.as_micros(), after_at, after, limit);
    let deleted: Vec<(i64, i64, String, bool, bool)> = all(tx, DELETED, page, |row| {
        let place = (row.get(0)?, row.get(1)?);
        Ok((place.0, place.1, row.get(2)?, row.get(3)?, row.get(4)?))
    })?;
    let mut stepped = Stepped {
        more: deleted.len() >= limit as usize,
        ..Stepped::default()
    };
    let mut left = limit;
    for (rowid, deleted_at, id, is_in_ledger, waits) in deleted {
        stepped.examined += 1;
        if waits {
            execute(tx, GIVE_BACK, [&id])?;
        }
        if !is_in_ledger {
            left = forget(tx, &id, left)?;
            if left == 0 {
                // There may be more of it: the next step comes to it again.
                stepped.more = true;
                break;
            }
            stepped.removed += 1;
        }
        stepped.last = Some((rowid, deleted_at));
    }
    Ok(stepped)
}

/// How many rows of what is long the step may still delete; none: it is not gone.
fn forget(tx: &Transaction<'_>, id: &str, mut left: u32) -> Result<u32, Fault> {
    for sql in LONG {
        let deleted = execute(tx, sql, (id, left))?;
        left = left.saturating_sub(u32::try_from(deleted).unwrap_or(u32::MAX));
        if left == 0 {
            return Ok(0);
        }
    }
    let tenant = first(tx, TENANT, [id], |row| Ok(row.get::<_, String>(0)?))?;
    for sql in SHORT {
        execute(tx, sql, [id])?;
    }
    if let Some(tenant) = tenant {
        tenants::forget(tx, &tenant)?;
    }
    Ok(left)
}
