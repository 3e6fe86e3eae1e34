//! Sharing what is scarce between those who ask.

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
