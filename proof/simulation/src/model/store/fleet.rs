//! The workers that live.

use std::collections::BTreeMap;

use domain::ids::{TenantId, WorkerId};
use domain::share::Load;
use domain::time::Timestamp;
use engine::ports::{Fleet, HEARTBEAT_TIMEOUT, Heartbeat};

use super::rows::{Rows, WorkerRow};

impl WorkerRow {
    fn is_alive(&self, now: Timestamp) -> bool {
        !self.retired && self.seen_at >= now - HEARTBEAT_TIMEOUT
    }
}

/// Whether a worker's claims are taken.
pub(super) fn is_alive(rows: &Rows, now: Timestamp, worker: WorkerId) -> bool {
    let retired_unseen = rows.seen_alive == Some(worker);
    (rows.workers.get(&worker)).is_some_and(|row| retired_unseen || row.is_alive(now))
}

/// Notes a sign of life; see [`engine::ports::Store::heartbeat`]. A worker
/// that lapsed stays lapsed: its starts may have been given up.
pub(super) fn heartbeat(rows: &mut Rows, now: Timestamp, heartbeat: &Heartbeat) -> Fleet {
    let known = rows.workers.get(&heartbeat.worker);
    if known.is_none_or(|row| row.is_alive(now)) {
        let row = WorkerRow {
            places: heartbeat.places,
            seen_at: now,
            retired: heartbeat.places == 0,
        };
        rows.workers.insert(heartbeat.worker, row);
    }
    fleet(rows, now)
}

/// Reads the fleet; see [`engine::ports::Store::fleet`].
pub(super) fn fleet(rows: &Rows, now: Timestamp) -> Fleet {
    let mut fleet = Fleet {
        now,
        outstanding: u32::try_from(rows.ledger.by_deadline.len()).unwrap_or(u32::MAX),
        loads: loads(rows),
        ..Fleet::default()
    };
    for worker in rows.workers.values().filter(|row| row.is_alive(now)) {
        fleet.workers += 1;
        fleet.places = fleet.places.saturating_add(worker.places);
    }
    fleet
}

/// What each tenant has queued and in flight.
fn loads(rows: &Rows) -> Vec<Load> {
    let mut loads: BTreeMap<TenantId, Load> = BTreeMap::new();
    for (id, row) in &rows.destinations {
        let Some(indexes) = rows.ledger.indexes(*id) else {
            continue;
        };
        let outstanding = u32::try_from(indexes.admitted.len()).unwrap_or(u32::MAX);
        if outstanding + indexes.in_flight == 0 {
            continue;
        }
        let load = loads.entry(row.tenant).or_insert(Load {
            tenant: row.tenant,
            outstanding: 0,
            in_flight: 0,
        });
        load.outstanding += outstanding;
        load.in_flight += indexes.in_flight;
    }
    loads.into_values().collect()
}
