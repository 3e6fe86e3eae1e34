//! Seats in the hand for messages that have to wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ports::DeliveryTag;

/// So many messages may wait; the permits of one share its seat, whatever
/// destinations they are of.
pub(super) struct Bench {
    seats: usize,
    /// How many permits of each message sit.
    taken: Mutex<HashMap<DeliveryTag, usize>>,
}

/// A seat, until it is dropped.
pub(super) struct Seat {
    bench: Arc<Bench>,
    tag: DeliveryTag,
}

impl Bench {
    pub(super) fn new(seats: usize) -> Arc<Self> {
        Arc::new(Self {
            seats: seats.max(1),
            taken: Mutex::default(),
        })
    }

    /// `None` if other messages have all the seats.
    pub(super) fn sit(self: &Arc<Self>, tag: DeliveryTag) -> Option<Seat> {
        let mut taken = self.taken();
        if taken.len() >= self.seats && !taken.contains_key(&tag) {
            return None;
        }
        *taken.entry(tag).or_default() += 1;
        drop(taken);
        Some(Seat {
            bench: Arc::clone(self),
            tag,
        })
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<DeliveryTag, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.bench.taken();
        if let Some(permits) = taken.get_mut(&self.tag) {
            *permits -= 1;
            if *permits == 0 {
                taken.remove(&self.tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permits_of_a_message_share_its_seat() {
        let tag = |number| DeliveryTag {
            connection: 1,
            number,
        };
        let bench = Bench::new(2);
        let first = [bench.sit(tag(1)), bench.sit(tag(1))];
        assert!(first.iter().all(Option::is_some));
        let second = bench.sit(tag(2));
        assert!(second.is_some());
        assert!(bench.sit(tag(3)).is_none());
        let [one, other] = first;
        drop(one);
        assert!(bench.sit(tag(3)).is_none(), "one of it still sits");
        drop(other);
        assert!(bench.sit(tag(3)).is_some());
    }
}
