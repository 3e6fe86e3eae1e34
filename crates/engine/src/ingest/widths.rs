//! To how many destinations the events of a tenant go: known for certain only when they
//! are written, and rarely another number than last time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::event::{MAX_DESTINATIONS, NewEvent};
use domain::ids::TenantId;

use crate::ports::Acceptance;

/// Types that are remembered, each of its tenant.
const MOST: usize = 10_000;

/// Of each type of a tenant's the most destinations that an event of it went to, of those
/// that were written last.
#[derive(Default)]
pub(super) struct Widths(Mutex<HashMap<(TenantId, String), u32>>);

/// Of a type of which nothing is known: it may go to as many as an event can.
pub(super) const UNKNOWN: u32 = {
    assert!(MAX_DESTINATIONS <= u32::MAX as usize);
    MAX_DESTINATIONS as u32
};

impl Widths {
    /// How many deliveries these events will add, all together, where one of an unknown
    /// type goes to one destination.
    pub(super) fn expected(&self, events: &[NewEvent]) -> u32 {
        let known = self.known();
        let each = events.iter().map(|event| width(&known, event, 1));
        each.fold(0, u32::saturating_add)
    }

    /// How many of these, the first ones, add at most so many deliveries, where one of an
    /// unknown type goes to `unknown` destinations; at least one.
    pub(super) fn fit(&self, events: &[NewEvent], deliveries: u32, unknown: u32) -> usize {
        let known = self.known();
        let mut sum = 0_u32;
        let fits = |event: &&NewEvent| {
            sum = sum.saturating_add(width(&known, event, unknown));
            sum <= deliveries
        };
        let fitting = events.iter().take_while(fits).count();
        fitting.max(1).min(events.len())
    }

    /// What became of some.
    pub(super) fn learn<'a>(&self, written: impl Iterator<Item = (&'a NewEvent, &'a Acceptance)>) {
        let mut learned: HashMap<(TenantId, String), u32> = HashMap::new();
        for (event, answer) in written.filter(|(event, _)| event.audience.named().is_none()) {
            let Acceptance::Accepted(to) = answer else {
                continue;
            };
            let went_to = u32::try_from(to.len()).unwrap_or(u32::MAX);
            let most = learned.entry(key(event)).or_default();
            *most = (*most).max(went_to);
        }
        let mut known = self.known();
        for (of, most) in learned {
            if known.len() >= MOST && !known.contains_key(&of) {
                // Anybody's: whichever it was is learned again.
                let other = known.keys().next().cloned();
                other.map(|other| known.remove(&other));
            }
            known.insert(of, most);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(TenantId, String), u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One at least: an event costs its row.
fn width(known: &HashMap<(TenantId, String), u32>, event: &NewEvent, unknown: u32) -> u32 {
    match event.audience.named() {
        Some(_) => 1,
        None => known
            .get(&key(event))
            .map_or(unknown, |width| (*width).max(1)),
    }
}

fn key(event: &NewEvent) -> (TenantId, String) {
    let event_type = event.event_type.clone().unwrap_or_default();
    (event.tenant, event_type)
}
