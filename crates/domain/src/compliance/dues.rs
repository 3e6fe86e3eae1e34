//! When attempts were due: in any order, and in bounded memory.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{InForce, ideal};
use crate::time::{Timestamp, micros};

/// So many are kept one by one: 16 MB.
const MAX_EXACT: usize = 2_000_000;

/// Beyond them they are counted in so many slots of time, about.
const SLOTS: u128 = 500_000;

/// When attempts could have started at the earliest, to compare with a perfect
/// sender ([`super::ideal_starts`]).
///
/// Two million are kept as they are. More are counted by the second, or by a
/// five-hundred-thousandth of the span where that is longer, as if each had been
/// due when its second began: which can only make the perfect sender faster, and
/// the share lower, by a second's worth at each end of a backlog.
#[derive(Debug, Clone)]
pub struct Dues {
    step: i64,
    exact: Vec<Timestamp>,
    counted: BTreeMap<i64, u64>,
    /// Starts before the span, in order.
    before: Vec<Timestamp>,
}

impl Dues {
    /// None yet, for a span of this length.
    #[must_use]
    pub fn new(span: Duration) -> Self {
        let step =
            Duration::from_micros(u64::try_from(span.as_micros() / SLOTS).unwrap_or(u64::MAX));
        Self {
            step: micros(step.max(Duration::from_secs(1))),
            exact: Vec::new(),
            counted: BTreeMap::new(),
            before: Vec::new(),
        }
    }

    /// A start before the span, later than the last of them: what it took of the
    /// limits, the perfect sender has not either.
    pub fn before(&mut self, started_at: Timestamp) {
        self.before.push(started_at);
    }

    /// One more.
    pub fn add(&mut self, due_at: Timestamp) {
        if self.counted.is_empty() && self.exact.len() < MAX_EXACT {
            self.exact.push(due_at);
            return;
        }
        for due_at in std::mem::take(&mut self.exact).into_iter().chain([due_at]) {
            let slot = due_at.as_micros().div_euclid(self.step);
            *self.counted.entry(slot).or_default() += 1;
        }
    }

    /// How many of them a perfect sender could have started in `[since, until)`,
    /// which begins with what had started until then: what was due before waits.
    #[must_use]
    pub fn ideal_starts(
        mut self,
        history: &[InForce],
        (since, until): (Timestamp, Timestamp),
    ) -> u64 {
        self.exact.sort_unstable();
        let step = self.step;
        let counted = self.counted.into_iter().flat_map(|(slot, count)| {
            let begins = Timestamp::from_micros(slot.saturating_mul(step));
            (0..count).map(move |_| begins)
        });
        let all = self.exact.into_iter().chain(counted);
        let all = all.map(|due| due.max(since));
        ideal::ideal(history, (&self.before, all), (since, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::DestinationState;
    use crate::policy::LimitSettings;

    #[test]
    fn what_is_counted_is_as_good_as_what_is_kept() {
        let three = LimitSettings {
            per_second: Some(3),
            ..LimitSettings::EXACT
        };
        let at = Timestamp::from_millis;
        let history = [InForce::new(at(0), &three, DestinationState::Active)];
        let span = (at(0), at(1_000_000));
        let kept = |number: i64| {
            let mut dues = Dues::new(Duration::from_secs(1_000));
            (0..number).for_each(|_| dues.add(at(500)));
            dues
        };
        assert_eq!(kept(100).ideal_starts(&history, span), 100);
        let many = kept(MAX_EXACT as i64 + 5);
        assert_eq!((many.exact.len(), many.counted.len()), (0, 1));
        // From when their second began, and not from 0.5 s on.
        assert_eq!(many.ideal_starts(&history, span), 3_000);
    }
}
