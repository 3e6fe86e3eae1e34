//! The admission protocol holds, and each assumption of its proof is needed.

use protocol::admission::{Admission, Bounds, Mutation};
use protocol::check::{check, shortest_counterexample};

/// Two events that may start once each, with one permit.
const TWO_EVENTS: Bounds = Bounds {
    events: 2,
    tries: 1,
    permits: 1,
    copies: 1,
    limits: &[1],
    changes: 0,
};

#[test]
fn the_protocol_holds() {
    let report = check(Admission::new(TWO_EVENTS), 2);
    let violated = report.verdicts.iter().filter(|one| one.is_violated());
    assert_eq!(violated.count(), 0, "{report}");
    assert!(report.unique_states > 1_000, "{}", report.unique_states);
}

/// The smallest bounds in which a mutation shows.
fn bounds_of(mutation: Mutation) -> Bounds {
    match mutation {
        // A second copy, or a second permit, of an event.
        Mutation::DuplicateStarts => Bounds {
            events: 1,
            copies: 2,
            ..TWO_EVENTS
        },
        Mutation::UnknownForgetsStart => Bounds {
            events: 1,
            permits: 2,
            ..TWO_EVENTS
        },
        Mutation::NoRevocation | Mutation::HistoryTooEarly => Bounds {
            limits: &[2, 1],
            changes: 1,
            ..TWO_EVENTS
        },
        Mutation::ExpiryEndsEvent => Bounds {
            events: 1,
            ..TWO_EVENTS
        },
        Mutation::UnknownNotRetried => Bounds {
            events: 1,
            tries: 2,
            ..TWO_EVENTS
        },
        _ => TWO_EVENTS,
    }
}

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let model = Admission {
            bounds: bounds_of(mutation),
            mutation: Some(mutation),
        };
        let broken = mutation.breaks();
        let found = shortest_counterexample(&model, broken);
        let trace = found.unwrap_or_else(|| panic!("{mutation:?} does not break: {broken}"));
        println!("{mutation:?} breaks: {broken}\n{trace}\n");
        // In the same bounds the protocol itself holds.
        let unmutated = Admission::new(model.bounds);
        assert_eq!(shortest_counterexample(&unmutated, broken), None);
    }
}
