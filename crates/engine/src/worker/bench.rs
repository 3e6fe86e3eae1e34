//! Seats for permits that have to wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::bulkhead::may_have;
use domain::ids::DestinationId;

/// So many permits may wait, and of no destination more than are free besides: who comes
/// next still finds one.
pub(super) struct Bench {
    seats: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    of: HashMap<DestinationId, usize>,
}

/// A seat, until it is dropped.
pub(super) struct Seat {
    bench: Arc<Bench>,
    destination: DestinationId,
}

impl Bench {
    pub(super) fn new(seats: usize) -> Arc<Self> {
        Arc::new(Self {
            seats: seats.max(1),
            taken: Mutex::default(),
        })
    }

    /// `None` if others have the seats, or this destination has its part of them.
    pub(super) fn sit(self: &Arc<Self>, destination: DestinationId) -> Option<Seat> {
        let mut taken = self.taken();
        let has = taken.of.get(&destination).copied().unwrap_or_default();
        if !may_have(has, 1, self.seats - taken.all) {
            return None;
        }
        taken.all += 1;
        taken.of.insert(destination, has + 1);
        drop(taken);
        Some(Seat {
            bench: Arc::clone(self),
            destination,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.bench.taken();
        taken.all -= 1;
        if let Some(permits) = taken.of.get_mut(&self.destination) {
            *permits -= 1;
            if *permits == 0 {
                taken.of.remove(&self.destination);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_destination_leaves_seats_for_others() {
        let destination = |number| DestinationId(Uuid::from_u128(number));
        let bench = Bench::new(8);
        let mut seats: Vec<_> = (0..8).map_while(|_| bench.sit(destination(1))).collect();
        assert_eq!(seats.len(), 4, "half");
        seats.extend((0..8).map_while(|_| bench.sit(destination(2))));
        assert_eq!(seats.len(), 4 + 2, "half of the rest");
        seats.extend((3..9).map_while(|number| bench.sit(destination(number))));
        assert_eq!(seats.len(), 8, "one each");
        assert!(bench.sit(destination(9)).is_none());
        seats.clear();
        assert!(bench.taken().of.is_empty());
        assert!(bench.sit(destination(9)).is_some());
    }

    #[test]
    fn there_is_one_seat_at_least() {
        let bench = Bench::new(0);
        let seat = bench.sit(DestinationId(Uuid::nil()));
        assert!(seat.is_some());
    }
}
