//! Who was sent away for want of a place, and is called back when there are places
//! again: pure, and told the time.
//!
//! Each is told when to come back by itself, later each time. Without a call, places
//! that come free together stay empty until then: behind a receiver that takes ten
//! seconds, for eight of them.

use std::collections::{HashMap, VecDeque};

use domain::ids::DestinationId;
use tokio::time::Instant;

/// So many are remembered; the others come back by themselves. As many as places, at
/// the most that are usual: each call is for one place at least.
const MOST: usize = 4_096;

/// Those that are away, the one that left first before the others.
#[derive(Debug, Default)]
pub(super) struct Away {
    order: VecDeque<DestinationId>,
    until: HashMap<DestinationId, Instant>,
}

impl Away {
    /// It comes back by itself at `until`.
    pub(super) fn leaves(&mut self, destination: DestinationId, until: Instant) {
        if self.until.len() >= MOST && !self.until.contains_key(&destination) {
            return;
        }
        if self.until.insert(destination, until).is_none() {
            self.order.push_back(destination);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// The first of those that are still away, this many at most.
    pub(super) fn come_back(&mut self, most: usize, now: Instant) -> Vec<DestinationId> {
        let mut back = Vec::new();
        while back.len() < most {
            let Some(destination) = self.order.pop_front() else {
                break;
            };
            let until = self.until.remove(&destination);
            if until.is_some_and(|until| until > now) {
                back.push(destination);
            }
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    fn destination(number: u128) -> DestinationId {
        DestinationId(Uuid::from_u128(number))
    }

    #[test]
    fn who_left_first_is_called_first_and_once() {
        let now = Instant::now();
        let later = now + Duration::from_secs(8);
        let mut away = Away::default();
        for number in [3, 1, 2, 1] {
            away.leaves(destination(number), later);
        }
        assert_eq!(away.come_back(2, now), [destination(3), destination(1)]);
        assert_eq!(away.come_back(2, now), [destination(2)]);
        assert!(away.is_empty());
    }

    #[test]
    fn who_is_back_by_itself_is_not_called() {
        let now = Instant::now();
        let mut away = Away::default();
        away.leaves(destination(1), now + Duration::from_secs(1));
        away.leaves(destination(2), now + Duration::from_secs(8));
        let later = now + Duration::from_secs(1);
        assert_eq!(away.come_back(1, later), [destination(2)]);
    }

    #[test]
    fn a_crowd_is_not_remembered_whole() {
        let now = Instant::now();
        let later = now + Duration::from_secs(8);
        let mut away = Away::default();
        let most = MOST as u128;
        (0..2 * most).for_each(|number| away.leaves(destination(number), later));
        away.leaves(destination(0), later + Duration::from_secs(1));
        assert_eq!(away.come_back(usize::MAX, now).len(), MOST);
    }
}
