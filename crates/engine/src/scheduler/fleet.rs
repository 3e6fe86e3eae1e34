//! How many permits the live workers have room for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::admission::CROWDED_FLOOR;
use domain::share::{Load, Room};
use tokio::time::Instant;

use crate::ports::{Given, Store};

/// How long a count of the fleet is good for. Between two counts only this
/// process's own permits are added, so several schedulers together can
/// overshoot by what they admit in this time: of the fleet's room, and of a
/// tenant's `max_in_flight`. A count that is used up is not kept for so long:
/// places come free.
const FRESH: Duration = Duration::from_millis(100);

/// How long it is good for without room. One for every run would cost more than the run: it
/// looks at every permit that is out. What comes free meanwhile is given by the next.
///
/// The theorem does not know of it: however old a count is, room only takes away from what the
/// rule allows.
const FRESH_WITHOUT_ROOM: Duration = Duration::from_millis(20);

/// A small fleet is counted sooner, for all of its permits may be over sooner, and the count
/// is cheap: so long for each permit, but never more often than a crowded destination runs.
/// From 500 permits on it is the whole of [`FRESH_WITHOUT_ROOM`]: 25,000 starts a second.
const FRESH_FOR_EACH: Duration = Duration::from_micros(40);

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
    asked: Option<Instant>,
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
        if self.counted().is_good(Instant::now()) {
            return;
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_another) if self.counted().room.left() > 0 => return,
            Err(_another) => self.turn.lock().await,
        };
        {
            let mut counted = self.counted();
            if counted.is_good(Instant::now()) {
                return;
            }
            counted.since = Some(Vec::new());
        }
        let asked = Instant::now();
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
                counted.asked = Some(asked);
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

    /// When the last count was asked for: it knows what had come free by then.
    pub(super) fn asked(&self) -> Option<Instant> {
        self.counted().asked
    }

    /// How long until the fleet is counted again, at the earliest.
    pub(super) fn next_count(&self) -> Duration {
        let counted = self.counted();
        let next = counted.at.map(|at| at + counted.good_for());
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// The same, while there is no room as far as is known, and the next count is to come.
    pub(super) fn waits_for_room(&self) -> Option<Duration> {
        let next = self.next_count();
        (self.room().left() == 0 && !next.is_zero()).then_some(next)
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
    fn is_good(&self, now: Instant) -> bool {
        let is_good = |at: Instant| now.saturating_duration_since(at) < self.good_for();
        self.at.is_some_and(is_good)
    }

    fn good_for(&self) -> Duration {
        match self.room.left() {
            0 => (FRESH_FOR_EACH * self.room.capacity).clamp(CROWDED_FLOOR, FRESH_WITHOUT_ROOM),
            _ => FRESH,
        }
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
