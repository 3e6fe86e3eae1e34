//! Permits: leave to start one attempt once.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use crate::time::Timestamp;

/// How many permits travel in one message at most. Groups of this size cost
/// the broker a third less per permit than single ones; larger ones gain little
/// and would make a worker's prefetch coarse.
pub const MAX_GROUP: usize = 16;

/// Leave to start `attempt` once, not before `not_before` and not after
/// `deadline`, both by the store's clock.
///
/// A permit is revocable: the store's row decides when it is claimed, so a
/// permit that is lost, doubled, late or stale can do no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Permit {
    /// The destination whose limit this permit is counted in.
    pub destination: DestinationId,
    /// The attempt that may start.
    pub attempt: AttemptId,
    /// This permit's number; the row must still carry it.
    pub number: PermitNumber,
    /// The destination's epoch at admission.
    pub epoch: Epoch,
    /// The earliest start.
    pub not_before: Timestamp,
    /// The latest start.
    pub deadline: Timestamp,
}

/// Up to [`MAX_GROUP`] permits of any destinations, in the order of their
/// slots: what one message of the delivery queue carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PermitGroup {
    /// Never empty, by `not_before`.
    permits: Vec<Permit>,
}

impl PermitGroup {
    /// A group of these permits, in the order of their slots; those of one slot
    /// stay as they were given.
    ///
    /// `None` if there are none, or more than [`MAX_GROUP`].
    #[must_use]
    pub fn new(mut permits: Vec<Permit>) -> Option<Self> {
        permits.sort_by_key(|permit| permit.not_before);
        (1..=MAX_GROUP)
            .contains(&permits.len())
            .then_some(Self { permits })
    }

    /// Cuts the permits of one run into as few groups as there can be, in the
    /// order of their slots; those of one slot stay as they were given.
    ///
    /// The group that is not full is the first one. A worker has a message in
    /// hand until the last of its permits is begun. Cut so, what still waits for
    /// its slot fills as few messages as there can be, at every instant. So nothing
    /// bounds how far apart the slots of one message lie: to end it at a gap would
    /// add a message, and let go of none sooner. Slots of one run lie
    /// [`MAX_LEAD`](crate::admission::MAX_LEAD) ahead at most.
    #[must_use]
    pub fn split(permits: &[Permit]) -> Vec<Self> {
        let mut in_order = permits.to_vec();
        in_order.sort_by_key(|permit| permit.not_before);
        (in_order.rchunks(MAX_GROUP).rev())
            .map(|chunk| Self {
                permits: chunk.to_vec(),
            })
            .collect()
    }

    /// The permits, never empty.
    #[must_use]
    pub fn permits(&self) -> &[Permit] {
        &self.permits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// Of this destination, in this slot.
    fn permit(destination: u128, slot_ms: i64, number: usize) -> Permit {
        let number = i64::try_from(number).unwrap();
        Permit {
            destination: DestinationId(Uuid::from_u128(destination)),
            attempt: AttemptId(number),
            number: PermitNumber(number),
            epoch: Epoch(1),
            not_before: Timestamp::from_millis(slot_ms),
            deadline: Timestamp::from_millis(slot_ms + 2_000),
        }
    }

    /// Numbered as they come.
    fn permits(of: impl IntoIterator<Item = (u128, i64)>) -> Vec<Permit> {
        (of.into_iter().enumerate())
            .map(|(number, (destination, slot_ms))| permit(destination, slot_ms, number))
            .collect()
    }

    fn numbers(group: &PermitGroup) -> Vec<i64> {
        let permits = group.permits().iter();
        permits.map(|permit| permit.number.0).collect()
    }

    fn last_slot(group: &PermitGroup) -> Timestamp {
        group.permits()[group.permits().len() - 1].not_before
    }

    #[test]
    fn a_group_is_of_one_to_sixteen_in_the_order_of_their_slots() {
        assert_eq!(PermitGroup::new(Vec::new()), None);
        let many = permits((0..17).map(|destination| (destination, 0)));
        assert_eq!(PermitGroup::new(many.clone()), None);
        assert!(PermitGroup::new(many[..16].to_vec()).is_some());
        let group = PermitGroup::new(permits([(1, 9), (2, 3), (3, 9), (1, 0)])).unwrap();
        assert_eq!(numbers(&group), [3, 1, 0, 2]);
    }

    #[test]
    fn sixty_four_destinations_with_a_permit_each_are_four_messages() {
        let groups = PermitGroup::split(&permits((0..64).map(|destination| (destination, 0))));
        let sizes: Vec<_> = groups.iter().map(|group| group.permits().len()).collect();
        assert_eq!(sizes, [16; 4]);
    }

    #[test]
    fn no_permits_are_no_message() {
        assert_eq!(PermitGroup::split(&[]), []);
    }

    /// So what is due is not kept in hand with what is late.
    #[test]
    fn the_message_that_is_not_full_is_the_first() {
        let due = (0..10).map(|destination| (destination, 0));
        let late = (0..16).map(|destination| (destination, 200));
        let groups = PermitGroup::split(&permits(late.chain(due)));
        let sizes: Vec<_> = groups.iter().map(|group| group.permits().len()).collect();
        assert_eq!(sizes, [10, 16]);
        assert_eq!(last_slot(&groups[0]), Timestamp::from_millis(0));
    }

    proptest! {
        #[test]
        fn each_permit_goes_once_in_the_order_of_slots_and_as_given(
            of in prop::collection::vec((0_u128..5, 0_i64..4), 0..200),
        ) {
            let given = permits(of);
            let groups = PermitGroup::split(&given);
            prop_assert_eq!(groups.len(), given.len().div_ceil(MAX_GROUP));
            let went: Vec<_> = groups.iter().flat_map(PermitGroup::permits).collect();
            prop_assert_eq!(went.len(), given.len());
            // A number tells its place among those given.
            let key = |permit: &Permit| (permit.not_before, permit.number);
            let in_order = went.is_sorted_by(|one, next| key(one) < key(next));
            prop_assert!(in_order);
            for group in groups {
                prop_assert_eq!(PermitGroup::new(group.permits().to_vec()), Some(group));
            }
        }

        #[test]
        fn what_waits_for_later_slots_fills_no_more_messages_than_it_needs(
            slots_ms in prop::collection::vec(prop_oneof![0_i64..20, 0_i64..5_000], 1..200),
            until_ms in prop_oneof![0_i64..20, 0_i64..5_000],
        ) {
            let given = permits(slots_ms.into_iter().map(|slot_ms| (1, slot_ms)));
            let until = Timestamp::from_millis(until_ms);
            let later = given.iter().filter(|permit| permit.not_before > until).count();
            let groups = PermitGroup::split(&given);
            let in_hand = groups.iter().filter(|group| last_slot(group) > until).count();
            prop_assert_eq!(in_hand, later.div_ceil(MAX_GROUP));
        }
    }
}
