//! To how many destinations the events of a tenant go: known for certain only when they
//! are written, and rarely another number than last time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::event::{MAX_DESTINATIONS, NewEvent};
use domain::ids::TenantId;

use crate::ports::Acceptance;

/// Tenants that are remembered.
const MOST: usize = 10_000;

/// Of each tenant the most destinations that an event of its last request for
/// subscribers went to.
#[derive(Default)]
pub(super) struct Widths(Mutex<HashMap<TenantId, u32>>);

impl Widths {
    /// For each event of a tenant's that is for subscribers, at least one.
    pub(super) fn of(&self, tenant: TenantId) -> u32 {
        self.known().get(&tenant).map_or(1, |width| (*width).max(1))
    }

    /// How many of these, the first ones, add at most so many deliveries; at least one.
    /// Of a tenant that nothing is known of, each may go to all that an event can.
    pub(super) fn fit(&self, tenant: TenantId, events: &[NewEvent], deliveries: u32) -> usize {
        let all = u32::try_from(MAX_DESTINATIONS).unwrap_or(u32::MAX);
        let width = self
            .known()
            .get(&tenant)
            .map_or(all, |width| (*width).max(1));
        let mut sum = 0_u32;
        let fits = |event: &&NewEvent| {
            sum = sum.saturating_add(event.audience.named().map_or(width, |_| 1));
            sum <= deliveries
        };
        events
            .iter()
            .take_while(fits)
            .count()
            .max(1)
            .min(events.len())
    }

    /// How many deliveries these events will add, all together.
    pub(super) fn expected(&self, tenant: TenantId, events: &[NewEvent]) -> u32 {
        let width = self.of(tenant);
        let each = (events.iter()).map(|event| event.audience.named().map_or(width, |_| 1));
        each.fold(0, u32::saturating_add)
    }

    /// What became of some.
    pub(super) fn learn<'a>(
        &self,
        tenant: TenantId,
        written: impl Iterator<Item = (&'a NewEvent, &'a Acceptance)>,
    ) {
        let to_subscribers =
            written.filter_map(|(event, answer)| match (event.audience.named(), answer) {
                (None, Acceptance::Accepted(to)) => u32::try_from(to.len()).ok(),
                _ => None,
            });
        let Some(most) = to_subscribers.max() else {
            return;
        };
        let mut known = self.known();
        if known.len() >= MOST && !known.contains_key(&tenant) {
            // Anybody's: whoever it was is learned again.
            let other = known.keys().next().copied();
            other.map(|other| known.remove(&other));
        }
        known.insert(tenant, most);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
