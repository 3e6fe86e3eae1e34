//! The workers that live.

use domain::share::Load;
use domain::time::Timestamp;
use engine::ports::{Fleet, HEARTBEAT_TIMEOUT, Heartbeat};
use rusqlite::Transaction;

use super::fault::Fault;
use super::rows::{all, execute, first, word};

/// A worker that lapsed stays lapsed: its starts may have been given up.
const BEAT: &str = "
    -- heartbeat
    insert into workers (id, places, seen_at, retired) values (?1, ?2, ?3, ?4)
    on conflict do update
    set places = excluded.places, seen_at = excluded.seen_at, retired = excluded.retired
    where retired = 0 and seen_at >= ?5";

const FLEET: &str = "
    -- fleet
    select count(*), coalesce(sum(places), 0)
    from workers where retired = 0 and seen_at >= ?1";

/// Bounded by the permits that are out and by what the workers have in hand.
const LOADS: &str = "
    -- fleet: loads
    select tenant_id, sum(state = 'admitted'), sum(state = 'started')
    from deliveries indexed by deliveries_held
    where permit is not null and carried_by is null
    group by tenant_id order by tenant_id";

/// Notes a sign of life; see [`engine::ports::Store::heartbeat`].
pub(super) fn heartbeat(
    tx: &Transaction<'_>,
    now: Timestamp,
    heartbeat: &Heartbeat,
) -> Result<Timestamp, Fault> {
    let row = (
        heartbeat.worker.to_string(),
        heartbeat.places,
        now.as_micros(),
        heartbeat.places == 0,
        (now - HEARTBEAT_TIMEOUT).as_micros(),
    );
    execute(tx, BEAT, row)?;
    Ok(now)
}

/// Reads the fleet; see [`engine::ports::Store::fleet`].
pub(super) fn fleet(tx: &Transaction<'_>, now: Timestamp) -> Result<Fleet, Fault> {
    let fresh = (now - HEARTBEAT_TIMEOUT).as_micros();
    let loads = all(tx, LOADS, [], |row| {
        Ok(Load {
            tenant: word(row, 0, ("attempts", "tenant_id"))?,
            outstanding: row.get(1)?,
            in_flight: row.get(2)?,
        })
    })?;
    let fleet = first(tx, FLEET, [fresh], |row| {
        Ok(Fleet {
            now,
            workers: row.get(0)?,
            places: row.get(1)?,
            outstanding: loads.iter().map(|load| load.outstanding).sum(),
            loads,
        })
    })?;
    Ok(fleet.unwrap_or_default())
}
