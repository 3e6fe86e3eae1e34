//! What a receiver took, and what it would refuse.

use std::collections::BTreeMap;

use crate::series::Passage;
use crate::time::Timestamp;

/// How much a receiver takes, as far as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Receiver {
    /// How many it took a second where it refused others with 429: the median
    /// of those seconds. `None` if it never refused.
    pub takes_per_second: Option<u64>,
    /// The most that it took in a second without refusing any.
    pub most_taken: u64,
}

impl Receiver {
    /// By how it answered.
    #[must_use]
    pub fn of(recorded: &[Passage]) -> Self {
        let mut seconds: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
        for passage in recorded {
            let Some(started_at) = passage.started_at else {
                continue;
            };
            let (taken, refused) = seconds.entry(second(started_at)).or_default();
            match passage.refused {
                true => *refused += 1,
                false => *taken += 1,
            }
        }
        let mut taken: Vec<u64> = (seconds.values())
            .filter(|(_, refused)| *refused > 0)
            .map(|(taken, _)| *taken)
            .collect();
        taken.sort_unstable();
        let without = seconds.values().filter(|(_, refused)| *refused == 0);
        Self {
            takes_per_second: taken.get(taken.len() / 2).copied(),
            most_taken: without.map(|(taken, _)| *taken).max().unwrap_or(0),
        }
    }

    /// How many of these it would refuse: in each second, those beyond what it
    /// takes. `None` where nobody knows, for they are more in a second than it
    /// was ever sent.
    #[must_use]
    pub fn would_refuse(&self, starts: &[Passage]) -> Option<u64> {
        let mut seconds: BTreeMap<i64, u64> = BTreeMap::new();
        for started_at in starts.iter().filter_map(|one| one.started_at) {
            *seconds.entry(second(started_at)).or_default() += 1;
        }
        match self.takes_per_second {
            Some(takes) => {
                let over = seconds.values().map(|starts| starts.saturating_sub(takes));
                Some(over.sum())
            }
            None if seconds.values().all(|starts| *starts <= self.most_taken) => Some(0),
            None => None,
        }
    }
}

fn second(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(1_000_000)
}
