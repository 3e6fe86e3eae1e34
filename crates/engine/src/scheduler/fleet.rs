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

/// Where so many requests are under way that counting them takes its time, a count
/// is good for so many times what it took, up to a second: schedulers that count are
/// at most one part in fifty of what the store does.
const BREATH: u32 = 50;
const FRESH_AT_MOST: Duration = Duration::from_secs(1);

/// Room for outstanding permits, counted now and then, estimated in between.
pub(super) struct Places {
    store: Arc<dyn Store>,
    permits_per_place: u32,
    room: Room,
    /// When the last count began, and for how long it is good.
    counted: Option<(Instant, Duration)>,
}

impl Places {
    pub(super) fn new(store: Arc<dyn Store>, permits_per_place: u32) -> Self {
        Self {
            store,
            permits_per_place,
            room: Room::default(),
            counted: None,
        }
    }

    /// Counts the fleet again, unless the last count is still good.
    pub(super) async fn count(&mut self) {
        let stale = (self.counted).is_none_or(|(at, fresh)| at.elapsed() > fresh);
        if !stale && self.room.left() > 0 {
            return;
        }
        let began = Instant::now();
        match self.store.fleet().await {
            Ok(fleet) => {
                self.room = Room {
                    capacity: fleet.places.saturating_mul(self.permits_per_place),
                    outstanding: fleet.outstanding,
                    loads: fleet.loads,
                };
                self.counted = Some((began, fresh(began.elapsed())));
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

/// For how long a count is good that took so long.
fn fresh(took: Duration) -> Duration {
    (took * BREATH).clamp(FRESH, FRESH_AT_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_takes_long_is_good_for_longer() {
        let millis = Duration::from_millis;
        let taking = [0, 1, 2, 10, 19, 20, 5_000].map(|took| fresh(millis(took)));
        assert_eq!(taking, [100, 100, 100, 500, 950, 1_000, 1_000].map(millis));
    }
}
