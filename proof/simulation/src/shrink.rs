//! From a failing scenario to the few operations that matter.

use crate::counts::Counts;
use crate::scenario::{Mood, Scenario};
use crate::world::{Report, run};

/// The most runs that one shrinking may take: a list that still shrinks after
/// so many is short enough to be read.
const MOST_RUNS: usize = 400;

/// What is left of a failing scenario, and of the promise that it breaks.
#[derive(Debug, Clone, PartialEq)]
pub struct Shrunk {
    /// The scenario with the operations that matter.
    pub scenario: Scenario,
    /// The promise that it breaks.
    pub promise: &'static str,
    /// How many runs it took.
    pub runs: usize,
}

/// Shrinks a scenario that breaks a promise to one that breaks the same
/// promise and from which no operation can be taken. `None` if it breaks none.
#[must_use]
pub fn shrink(scenario: &Scenario) -> Option<Shrunk> {
    shrink_by(scenario, |scenario| run(scenario, None, &Counts::default()))
}

/// The same where `run` plays a scenario.
pub fn shrink_by(scenario: &Scenario, run: impl Fn(&Scenario) -> Report) -> Option<Shrunk> {
    let broken_by = |scenario: &Scenario| {
        let report = run(scenario);
        report.broken.first().map(|broken| broken.promise)
    };
    let promise = broken_by(scenario)?;
    let mut runs = 1;
    let operations = minimal(scenario.operations.clone(), |operations| {
        runs += 1;
        runs <= MOST_RUNS && broken_by(&scenario.with(operations.to_vec())) == Some(promise)
    });
    let mut scenario = scenario.with(operations);
    // Nothing happens after the last operation, unless it takes its time. Use
    // is judged until the end, so in a calm one the end matters.
    let is_calm = scenario.mood == Mood::Calm;
    let last = (scenario.operations.last()).map_or(0, |operation| operation.at_ms);
    for lasts_ms in [last + 1, last + 10_000, last + 60_000] {
        if is_calm {
            break;
        }
        let shorter = Scenario {
            lasts_ms,
            ..scenario.clone()
        };
        runs += 1;
        if lasts_ms < scenario.lasts_ms && broken_by(&shorter) == Some(promise) {
            scenario = shorter;
            break;
        }
    }
    Some(Shrunk {
        scenario,
        promise,
        runs,
    })
}

/// A part of `list`, in its order, that still fails and of which no single
/// element can be taken away: delta debugging, by complements.
///
/// `list` itself has to fail.
pub fn minimal<T: Clone>(mut list: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = list.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        let mut shrunk = false;
        while start < list.len() {
            let end = list.len().min(start + size);
            let rest: Vec<T> = (list[..start].iter().chain(&list[end..]))
                .cloned()
                .collect();
            if fails(&rest) {
                list = rest;
                shrunk = true;
            } else {
                start = end;
            }
        }
        // Single elements are tried until none can go.
        size = match (size, shrunk) {
            (1, true) => 1,
            (1, false) => 0,
            _ => size / 2,
        };
    }
    list
}

#[cfg(test)]
mod tests {
    use super::minimal;

    #[test]
    fn what_does_not_matter_goes() {
        let all: Vec<u32> = (0..100).collect();
        let needs = |list: &[u32]| [3, 41, 97].iter().all(|one| list.contains(one));
        assert_eq!(minimal(all, needs), [3, 41, 97]);
    }

    #[test]
    fn a_list_that_always_fails_goes_altogether() {
        assert_eq!(minimal(vec![1, 2, 3], |_| true), [0_i32; 0]);
        assert_eq!(minimal(Vec::<i32>::new(), |_| true), [0_i32; 0]);
    }

    #[test]
    fn no_single_element_can_be_taken_from_what_is_left() {
        // Any two neighbours will do.
        let fails = |list: &[u32]| list.windows(2).any(|two| two[1] == two[0] + 1);
        let left = minimal((0..50).collect(), fails);
        assert_eq!(left.len(), 2);
        assert!(fails(&left));
    }
}
