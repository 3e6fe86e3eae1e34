//! What the tests of both protocols do alike.

use std::fmt::Debug;
use std::hash::Hash;

use protocol::check::{check, shortest_counterexample};
use stateright::Model;

/// Searches for what a mutation breaks, and shows the shortest way to it.
pub(crate) fn assert_breaks<M>(model: &M, mutation: impl Debug, property: &'static str)
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let found = shortest_counterexample(model, property);
    let trace = found.unwrap_or_else(|| panic!("{mutation:?} does not break: {property}"));
    println!("{mutation:?} breaks: {property}\n{trace}\n");
}

/// It was the mutations and not their bounds: the protocol itself holds in
/// each of these.
pub(crate) fn assert_nothing_breaks<B, M>(bounds: impl IntoIterator<Item = B>, model: fn(B) -> M)
where
    B: Copy + Debug + PartialEq,
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq,
{
    let mut checked: Vec<B> = Vec::new();
    for bounds in bounds {
        if checked.contains(&bounds) {
            continue;
        }
        checked.push(bounds);
        let report = check(model(bounds), 2);
        let broken = report.verdicts.iter().any(|one| one.is_violated());
        assert!(!broken, "{bounds:?}\n{report}");
    }
}
