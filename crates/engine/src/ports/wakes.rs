//! Whom to wake, as a step of a store comes upon it.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::ids::DestinationId;

use super::schedule::Wake;

/// Wakes, one for each destination: the earliest that was asked for.
///
/// The run that follows a wake sees everything else that waits, so a later one
/// has nothing to add.
#[derive(Debug, Default)]
pub struct Wakes(BTreeMap<DestinationId, Duration>);

impl Wakes {
    /// Wakes a destination at once.
    pub fn now(&mut self, destination: DestinationId) {
        self.after(destination, Duration::ZERO);
    }

    /// Wakes a destination so long from now.
    pub fn after(&mut self, destination: DestinationId, after: Duration) {
        let earliest = self.0.entry(destination).or_insert(after);
        *earliest = after.min(*earliest);
    }

    /// The wakes, in the order of the destinations.
    #[must_use]
    pub fn into_vec(self) -> Vec<Wake> {
        let wakes = self.0.into_iter();
        wakes
            .map(|(destination, after)| Wake::after(destination, after))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::ids::DestinationId;
    use uuid::Uuid;

    #[test]
    fn each_is_woken_once_at_the_earliest() {
        let [a, b, c] = [1, 2, 3].map(|id| DestinationId(Uuid::from_u128(id)));
        let minute = Duration::from_secs(60);
        let mut wakes = Wakes::default();
        wakes.after(c, minute);
        wakes.after(b, minute);
        wakes.now(c);
        wakes.now(a);
        wakes.after(a, minute);
        wakes.after(b, minute * 2);
        let expected = [Wake::now(a), Wake::after(b, minute), Wake::now(c)];
        assert_eq!(wakes.into_vec(), expected);
    }
}
