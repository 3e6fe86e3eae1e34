//! Making a process quick before it is relied on.
//!
//! The first statement on a connection of the store costs tens of milliseconds:
//! dialling, preparing, planning, reading the catalogue. A burst whose first
//! claims take that long arrives late against its recorded starts, and the
//! receiver sees it move into the next one. So a process asks for nothing, on
//! several connections at once, before it takes its first work.

use domain::ids::WorkerId;
use domain::share::Room;
use futures_util::future::join_all;

use crate::ports::{Store, StoreError};

/// Connections made ready: claims, records, heartbeats and targets are asked
/// for side by side, and a pool that hands out the longest idle connection goes
/// round all that it has.
const CONNECTIONS: usize = 4;

/// How often each statement is asked for on each.
const ROUNDS: usize = 2;

/// Makes a worker's statements ready. A store that is away costs nothing but
/// the time: the worker is not introduced before it is back.
pub(crate) async fn warm_worker(store: &dyn Store, worker: WorkerId) {
    let one = async || -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            store.targets(&[]).await?;
            store.claim_starts(worker, &[]).await?;
            store.record_outcomes(worker, &[]).await?;
        }
        Ok(())
    };
    log(join_all((0..CONNECTIONS).map(|_| one())).await);
}

/// Makes a scheduler's statements ready.
pub(crate) async fn warm_scheduler(store: &dyn Store) {
    let one = async || -> Result<(), StoreError> {
        for _ in 0..ROUNDS {
            store.admit(&[], &Room::of(0)).await?;
        }
        Ok(())
    };
    log(join_all((0..CONNECTIONS).map(|_| one())).await);
}

fn log(results: Vec<Result<(), StoreError>>) {
    if let Some(error) = results.into_iter().find_map(Result::err) {
        tracing::debug!(%error, "not warmed up");
    }
}
