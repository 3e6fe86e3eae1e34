//! Permits that wait for a connection apart from their messages.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::bulkhead::may_have;
use domain::ids::DestinationId;

/// So many may, and of no destination more than may go besides: who comes next still does.
pub(super) struct Apart {
    most: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    of: HashMap<DestinationId, usize>,
}

/// Leave to wait, until it is dropped.
pub(super) struct Leave {
    apart: Arc<Apart>,
    destination: DestinationId,
}

impl Apart {
    pub(super) fn new(most: u32) -> Arc<Self> {
        Arc::new(Self {
            most: most as usize,
            waiting: Mutex::default(),
        })
    }

    /// `None` if too many do.
    pub(super) fn go(self: &Arc<Self>, destination: DestinationId) -> Option<Leave> {
        let mut waiting = self.waiting();
        let has = waiting.of.get(&destination).copied().unwrap_or_default();
        if !may_have(has, 1, self.most - waiting.all) {
            return None;
        }
        waiting.all += 1;
        waiting.of.insert(destination, has + 1);
        drop(waiting);
        Some(Leave {
            apart: Arc::clone(self),
            destination,
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut waiting = self.apart.waiting();
        waiting.all -= 1;
        if let Some(permits) = waiting.of.get_mut(&self.destination) {
            *permits -= 1;
            if *permits == 0 {
                waiting.of.remove(&self.destination);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_destination_leaves_room_for_others() {
        let destination = |number| DestinationId(Uuid::from_u128(number));
        let apart = Apart::new(8);
        let mut leaves: Vec<_> = (0..8).map_while(|_| apart.go(destination(1))).collect();
        assert_eq!(leaves.len(), 4, "half");
        leaves.extend((0..8).map_while(|_| apart.go(destination(2))));
        assert_eq!(leaves.len(), 4 + 2, "half of the rest");
        leaves.extend((3..9).map_while(|number| apart.go(destination(number))));
        assert_eq!(leaves.len(), 8, "one each");
        assert!(apart.go(destination(9)).is_none());
        leaves.clear();
        assert!(apart.waiting().of.is_empty());
        assert!(apart.go(destination(9)).is_some());
    }
}
