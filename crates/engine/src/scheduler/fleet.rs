//! How many permits the live workers have room for.

use std::sync::Arc;
use std::time::Duration;

use domain::share::{Load, Room};
use tokio::time::Instant;

use crate::ports::{Given, Store};

/// How long a count of the fleet is good for. Between two counts only this
/// scheduler's own permits are added, so several schedulers together can
/// overshoot by what they admit in this time: of the fleet's room, and of a
/// tenant's `max_in_flight`. A count that is used up is not kept for so long: a
/// run may come because a place has just come free.
const FRESH: Duration = Duration::from_millis(100);

/// Room for outstanding permits, counted now and then, estimated in between.
pub(super) struct Places {
    store: Arc<dyn Store>,
    permits_per_place: u32,
    room: Room,
    counted_at: Option<Instant>,
}

impl Places {
    pub(super) fn new(store: Arc<dyn Store>, permits_per_place: u32) -> Self {
        Self {
            store,
            permits_per_place,
            room: Room::default(),
            counted_at: None,
        }
    }

    /// Counts the fleet again, unless the last count is still good.
    pub(super) async fn count(&mut self) {
        let stale = self.counted_at.is_none_or(|at| at.elapsed() > FRESH);
        if !stale && self.room.left() > 0 {
            return;
        }
        match self.store.fleet().await {
            Ok(fleet) => {
                self.room = Room {
                    capacity: fleet.places.saturating_mul(self.permits_per_place),
                    outstanding: fleet.outstanding,
                    loads: fleet.loads,
                };
                self.counted_at = Some(Instant::now());
            }
            Err(error) => tracing::debug!(%error, "fleet not counted"),
        }
    }

    /// What may be added now. Overload waits in the backlog, and does not
    /// expire in the queue.
    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    /// Notes permits that this scheduler admitted since.
    pub(super) fn used(&mut self, given: &[Given]) {
        for one in given {
            let room = &mut self.room;
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
