//! How many permits the live workers have room for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::admission::{Blocked, CROWDED_FLOOR, LOOK_WHEN_CROWDED, LOOK_WHEN_NONE_WAKES};
use domain::share::{Load, Room};
use tokio::time::Instant;

use crate::ports::{Admitted, Given, NextRun, RunResult, Store};

/// How long a count of the fleet is good for. Between two counts only this
/// process's own permits are added, so several schedulers together can
/// overshoot by what they admit in this time: of the fleet's room, and of a
/// tenant's `max_in_flight`. A count that stops somebody is not kept for so long:
/// places come free.
const FRESH: Duration = Duration::from_millis(100);

/// How long it is good for without room, or where there is some and a tenant's bound has
/// stopped a destination. One for every run would cost more than the run: it looks at every
/// permit that is out. What comes free meanwhile is given by the next.
///
/// The theorem does not know of it: however old a count is, room only takes away from what the
/// rule allows.
const FRESH_WITHOUT_ROOM: Duration = Duration::from_millis(20);

/// A small fleet is counted sooner, for all of its permits may be over sooner, and the count
/// is cheap: so long for each permit, but never more often than a crowded destination runs.
/// From 500 permits on it is the whole of [`FRESH_WITHOUT_ROOM`]: 25,000 starts a second.
const FRESH_FOR_EACH: Duration = Duration::from_micros(40);

/// So many look again with one count, and as many with each after it: of those whom places
/// have stopped and perhaps nothing wakes. Most are given nothing, so what these runs cost is
/// bounded however many they are.
const LOOKS_FOR_EACH_COUNT: u32 = 8;

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
    /// It has stopped somebody, whatever room it leaves to others.
    stopped: bool,
    /// How many look again, of those that it and counts before it have stopped: their turn is
    /// still to come.
    looks: u32,
}

/// What a run goes by.
pub(super) struct Known {
    /// What may be added now. Overload waits in the backlog, and does not expire in the queue.
    pub(super) room: Arc<Room>,
    /// When the count was asked for: it knows what had come free by then.
    asked: Option<Instant>,
}

/// Whether the fleet's places have stopped it, or its tenant's.
pub(super) fn is_short_of_places(result: &RunResult) -> bool {
    let places = Some(Blocked::Places);
    matches!(result, RunResult::Decided { blocked, .. } if *blocked == places)
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

    /// The same as [`Places::count`] while jobs are being taken. Not where somebody waits for
    /// places: that count is to come after the take, to know of what had woken them.
    pub(super) async fn count_ahead(&self) {
        if self.counted().has_room() {
            self.count_again().await;
        }
    }

    /// Counts the fleet again, unless the last count is still good, or another
    /// loop is at it and there is room left meanwhile. What is known then.
    pub(super) async fn count(&self) -> Known {
        self.count_again().await;
        let counted = self.counted();
        Known {
            room: Arc::clone(&counted.room),
            asked: counted.asked,
        }
    }

    async fn count_again(&self) {
        if self.counted().is_good(Instant::now()) {
            return;
        }
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_another) if self.counted().has_room() => return,
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
                counted.stopped = false;
                counted.looks = counted.looks.saturating_sub(LOOKS_FOR_EACH_COUNT);
                counted.add(&since);
            }
            Err(error) => tracing::debug!(%error, "fleet not counted"),
        }
    }

    /// When whoever was stopped by what was `known` looks again. Its job had been taken by
    /// `taken_at`.
    ///
    /// Not before the next count, whatever wakes it: until then there is nothing for it, and
    /// then all who wait share what has come free. It looks by itself with that count or one
    /// soon after it, where else nothing may tell of a place that is free by now: it was
    /// woken, by a job that was due already and is this one, after the count and before the
    /// take; or none of its outcomes wakes, so that it asks for a look sooner than usual. Not
    /// while no worker lives: then all would ask again and again, for no place.
    pub(super) fn look_again(&self, next: NextRun, known: &Known, taken_at: Instant) -> NextRun {
        let NextRun::After { delay, floor } = next else {
            return next;
        };
        let mut counted = self.counted();
        let count = counted.next_count().max(CROWDED_FLOOR);
        let knew_all = known.asked.is_some_and(|asked| asked >= taken_at);
        let is_far = knew_all && delay > LOOK_WHEN_NONE_WAKES;
        let delay = match (counted.room.capacity, is_far) {
            (0, _) => LOOK_WHEN_CROWDED,
            (_, true) => delay,
            (_, false) => (count + counted.turn_to_look()).min(LOOK_WHEN_CROWDED),
        };
        NextRun::After {
            delay,
            floor: floor.max(Some(count)),
        }
    }

    /// Notes what a loop of this process has admitted, and whom places have stopped.
    pub(super) fn note(&self, admitted: &Admitted) {
        let mut counted = self.counted();
        counted.add(&admitted.given);
        if let Some(since) = &mut counted.since {
            since.extend_from_slice(&admitted.given);
        }
        counted.stopped |= admitted.results.iter().any(is_short_of_places);
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

    /// Nobody has to wait for places, as far as is known.
    fn has_room(&self) -> bool {
        self.room.left() > 0 && !self.stopped
    }

    fn good_for(&self) -> Duration {
        match self.has_room() {
            true => FRESH,
            false => (FRESH_FOR_EACH * self.room.capacity).clamp(CROWDED_FLOOR, FRESH_WITHOUT_ROOM),
        }
    }

    /// How long until the fleet is counted again, at the earliest.
    fn next_count(&self) -> Duration {
        let next = self.at.map(|at| at + self.good_for());
        next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now())
        })
    }

    /// How long after the next count it is the turn of one more that looks again.
    fn turn_to_look(&mut self) -> Duration {
        let counts = self.looks / LOOKS_FOR_EACH_COUNT;
        let turn = self.good_for() * counts;
        // Everybody looks by then, whoever's turn it is.
        if turn < LOOK_WHEN_CROWDED {
            self.looks = self.looks.saturating_add(1);
        }
        turn
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
