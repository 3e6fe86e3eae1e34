//! Sharing what is scarce between those who ask.
//!
//! The fleet's places are shared twice: between tenants, and a tenant's part
//! between its destinations. Ten thousand destinations of one tenant count as
//! one against the single one of another.

mod tenants;

pub use tenants::{Ask, Fleet, Given, Load, Room, share_between_tenants};

/// Splits `room` between `asks`, max-min fair: nobody gets more than asked
/// for, and nobody gets less than another who got less than it asked for,
/// but for the one that is left over by division (it goes to the first).
///
/// ```
/// use domain::share::share;
/// assert_eq!(share(10, &[2, 9, 9]), [2, 4, 4]);
/// assert_eq!(share(100, &[2, 9, 9]), [2, 9, 9]);
/// assert_eq!(share(2, &[5, 5, 5]), [1, 1, 0]);
/// ```
#[must_use]
pub fn share(room: u32, asks: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..asks.len()).collect();
    order.sort_by_key(|index| asks[*index]);
    let mut given = vec![0; asks.len()];
    let mut left = room;
    let mut level = 0;
    for (served, index) in order.iter().enumerate() {
        let remaining = u32::try_from(order.len() - served).unwrap_or(u32::MAX);
        let fair = left / remaining;
        if asks[*index] > fair {
            level = fair;
            break;
        }
        given[*index] = asks[*index];
        left -= asks[*index];
    }
    // Those who asked for more than the fair share, in the order they came.
    for (index, ask) in asks.iter().enumerate() {
        if given[index] == 0 && *ask > 0 {
            given[index] = level.min(*ask);
            left = left.saturating_sub(given[index]);
        }
    }
    for (index, ask) in asks.iter().enumerate() {
        if left > 0 && given[index] < *ask && given[index] == level {
            given[index] += 1;
            left -= 1;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::share;
    use proptest::prelude::*;

    #[test]
    fn nobody_and_nothing() {
        assert_eq!(share(5, &[]), [0_u32; 0]);
        assert_eq!(share(0, &[1, 2]), [0, 0]);
        assert_eq!(share(5, &[0, 0]), [0, 0]);
        assert_eq!(share(u32::MAX, &[u32::MAX, 1]), [u32::MAX - 1, 1]);
    }

    #[test]
    fn those_who_ask_for_nothing_take_nothing() {
        assert_eq!(share(5, &[0, 9, 0, 9]), [0, 3, 0, 2]);
    }

    fn asks() -> impl Strategy<Value = Vec<u32>> {
        let ask = prop_oneof![0..5_u32, 0..500_u32, any::<u32>()];
        prop::collection::vec(ask, 0..40)
    }

    proptest! {
        #[test]
        fn all_that_is_asked_for_is_given_and_it_is_fair(
            room in prop_oneof![0..300_u32, any::<u32>()],
            asks in asks(),
        ) {
            let given = share(room, &asks);
            let sum = |numbers: &[u32]| numbers.iter().copied().map(u64::from).sum::<u64>();
            prop_assert_eq!(sum(&given), sum(&asks).min(u64::from(room)));
            prop_assert!(given.iter().zip(&asks).all(|(given, ask)| given <= ask));
            let least = given.iter().zip(&asks).filter(|(given, ask)| given < ask);
            if let Some(least) = least.map(|(given, _)| *given).min() {
                prop_assert!(given.iter().all(|other| *other <= least.saturating_add(1)));
            }
        }
    }
}
