//! How much more memory processes have at the end of a load than at its beginning.

use std::collections::BTreeMap;

use super::processes::Used;

/// Which part of the load its beginning is, and its end.
const PART: f64 = 0.1;

/// The most memory of each process, in MiB. What was before the load is warming up, and
/// what comes after it drains: neither is looked at.
#[derive(Debug, Default)]
pub(super) struct Growth {
    first: BTreeMap<String, f64>,
    last: BTreeMap<String, f64>,
}

impl Growth {
    /// What each had when so much of the load was over, of 1.
    pub(super) fn note(&mut self, over: f64, used: &BTreeMap<String, Used>) {
        let most = if over < PART {
            &mut self.first
        } else if over >= 1.0 - PART {
            &mut self.last
        } else {
            return;
        };
        for (name, used) in used {
            let most = most.entry(name.clone()).or_default();
            *most = most.max(used.resident_mib);
        }
    }

    /// The last to the first, of each that was looked at in both.
    pub(super) fn ratios(&self) -> BTreeMap<String, f64> {
        let both = self.first.iter().filter_map(|(name, first)| {
            let last = self.last.get(name)?;
            (*first > 0.0).then(|| (name.clone(), last / first))
        });
        both.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The growth of a process that had so much when so much of the load was over.
    fn of(looks: &[(f64, f64)]) -> Option<f64> {
        let mut growth = Growth::default();
        for (over, resident_mib) in looks {
            let used = Used {
                resident_mib: *resident_mib,
                ..Used::default()
            };
            growth.note(*over, &BTreeMap::from([("worker".to_owned(), used)]));
        }
        growth.ratios().get("worker").copied()
    }

    #[test]
    fn it_is_the_most_of_the_last_tenth_to_the_most_of_the_first() {
        let looks = [
            (0.0, 50.0),
            (0.09, 40.0),
            (0.5, 900.0),
            (0.91, 60.0),
            (1.1, 75.0),
        ];
        assert_eq!(of(&looks), Some(1.5));
    }

    #[test]
    fn it_is_not_known_of_one_that_was_not_looked_at_in_both() {
        assert_eq!(of(&[(0.05, 50.0), (0.89, 60.0)]), None);
        assert_eq!(of(&[(0.2, 50.0), (0.95, 60.0)]), None);
        // Such as a thread, whose memory is its process's.
        assert_eq!(of(&[(0.05, 0.0), (0.95, 0.0)]), None);
    }
}
