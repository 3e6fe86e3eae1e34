//! How many permits the live workers have room for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::share::{Load, Room};
use tokio::time::Instant;

use crate::ports::{Given, Store};

/// How long a count of the fleet is good for. Between two counts only this
/// process's own permits are added, so several schedulers together can
/// overshoot by what they admit in this time: of the fleet's room, and of a
/// tenant's `max_in_flight`. A count that is used up is not kept for so long: a
/// run may come because a place has just come free.
const FRESH: Duration = Duration::from_millis(100);

/// Room for outstanding permits, counted now and then, estimated in between. The
/// loops of a process share one: a count is not free, and each of them would
/// know nothing of the other's permits.
pub(super) struct Places {
    store: Arc<dyn Store>,
    permits_per_place: u32,
    /// Whoever counts has it.
    turn: tokio::sync::Mutex<()>,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    room: Arc<Room>,
    at: Option<Instant>,
    /// Permits since the count under way began: it may have come before them.
    since: Option<Vec<Given>>,
}

impl Places {
    pub(super) fn new(store: Arc<dyn Store>, permits_per_place: u32) -> Self {
        Self {
            store,
            permits_per_place,
            turn: tokio::sync::Mutex::default(),
            counted: Mutex::default(),
        }
    }

    /// Counts the fleet again, unless the last count is still good, or another
    /// loop is at it and there is room left meanwhile.
    pub(super) async fn count(&self) {
        if self.counted().is_good() {
            return;
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_another) if self.counted().room.left() > 0 => return,
            Err(_another) => self.turn.lock().await,
        };
        {
            let mut counted = self.counted();
            if counted.is_good() {
                return;
            }
            counted.since = Some(Vec::new());
        }
        let fleet = self.store.fleet().await;
        let mut counted = self.counted();
        let since = counted.since.take().unwrap_or_default();
        match fleet {
            Ok(fleet) => {
                counted.room = Arc::new(Room {
                    capacity: fleet.places.saturating_mul(self.permits_per_place),
                    outstanding: fleet.outstanding,
                    loads: fleet.loads,
                });
                counted.at = Some(Instant::now());
                counted.add(&since);
            }
            Err(error) => tracing::debug!(%error, "fleet not counted"),
        }
    }

    /// What may be added now. Overload waits in the backlog, and does not
    /// expire in the queue.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.counted().room)
    }

    /// Notes permits that a loop of this process has admitted.
    pub(super) fn used(&self, given: &[Given]) {
        let mut counted = self.counted();
        counted.add(given);
        if let Some(since) = &mut counted.since {
            since.extend_from_slice(given);
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn is_good(&self) -> bool {
        self.at.is_some_and(|at| at.elapsed() <= FRESH) && self.room.left() > 0
    }

    fn add(&mut self, given: &[Given]) {
        if given.is_empty() {
            return;
        }
        let room = Arc::make_mut(&mut self.room);
        for one in given {
            room.outstanding = room.outstanding.saturating_add(one.permits);
            let of = |load: &&mut Load| load.tenant == one.tenant;
            match room.loads.iter_mut().find(of) {
                Some(load) => load.outstanding = load.outstanding.saturating_add(one.permits),
                None => room.loads.push(Load {
                    tenant: one.tenant,
                    outstanding: one.permits,
                    in_flight: 0,
                }),
            }
        }
    }
}
