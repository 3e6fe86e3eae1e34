//! The wake protocol holds, and everything that it does is needed.

use protocol::check::{check, shortest_counterexample};
use protocol::schedule::{Bounds, Left, Mutation, WakeProtocol};

/// One scheduler, one event, and nothing goes wrong.
const ONE_EVENT: Bounds = Bounds {
    schedulers: 1,
    left: Left {
        arrivals: 1,
        retries: 0,
        changes: 0,
        losses: 0,
    },
};

#[test]
fn the_protocol_holds() {
    let bounds = Bounds {
        schedulers: 2,
        ..ONE_EVENT
    };
    let report = check(WakeProtocol::new(bounds), 2);
    let violated = report.verdicts.iter().filter(|one| one.is_violated());
    assert_eq!(violated.count(), 0, "{report}");
    assert!(report.unique_states > 10_000, "{}", report.unique_states);
}

/// The smallest bounds in which a mutation shows.
fn bounds_of(mutation: Mutation) -> Bounds {
    let mut bounds = ONE_EVENT;
    match mutation {
        Mutation::FinishWithoutToken => bounds.schedulers = 2,
        Mutation::FinishIgnoresWakes => bounds.left.arrivals = 2,
        Mutation::OutcomeNotWoken => bounds.left.arrivals = 3,
        Mutation::LookNotedAsPlanned => (bounds.left.arrivals, bounds.left.retries) = (2, 1),
        Mutation::RetryNotWoken => bounds.left.retries = 1,
        Mutation::SweepKeepsFloor | Mutation::SweepGoesByJobs | Mutation::RebuiltBeforeWakes => {
            bounds.left.losses = 1;
        }
        Mutation::RebuiltOldLife => bounds.left.losses = 2,
        Mutation::MarkClearedBeforeWake => (bounds.left.arrivals, bounds.left.changes) = (2, 1),
        Mutation::MarkClearedUnread => bounds.left.changes = 2,
        _ => {}
    }
    bounds
}

#[test]
fn every_mutation_is_found() {
    let mut held = Vec::new();
    for mutation in Mutation::ALL {
        let model = WakeProtocol {
            bounds: bounds_of(mutation),
            mutation: Some(mutation),
        };
        let broken = mutation.breaks();
        let found = shortest_counterexample(&model, broken);
        let trace = found.unwrap_or_else(|| panic!("{mutation:?} does not break: {broken}"));
        println!("{mutation:?} breaks: {broken}\n{trace}\n");
        if !held.contains(&model.bounds) {
            held.push(model.bounds);
        }
    }
    // It was the mutation, not the bounds: the protocol itself holds in them.
    for bounds in held {
        let report = check(WakeProtocol::new(bounds), 2);
        assert!(
            !report.verdicts.iter().any(|one| one.is_violated()),
            "{bounds:?}\n{report}"
        );
    }
}
