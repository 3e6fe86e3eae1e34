//! To how many destinations the events of a tenant go: known for certain only when they
//! are written, and rarely another number than last time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::event::NewEvent;
use domain::ids::TenantId;

use crate::ports::Acceptance;

/// Tenants that are remembered.
const MOST: usize = 10_000;

/// Of each tenant the most destinations that an event of its last request for
/// subscribers went to, where that was more than one.
#[derive(Default)]
pub(super) struct Widths(Mutex<HashMap<TenantId, u32>>);

impl Widths {
    /// For each event of a tenant's that is for subscribers, at least one.
    pub(super) fn of(&self, tenant: TenantId) -> u32 {
        self.known().get(&tenant).copied().unwrap_or(1)
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
        if most <= 1 {
            known.remove(&tenant);
        } else if known.len() < MOST || known.contains_key(&tenant) {
            known.insert(tenant, most);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<TenantId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
