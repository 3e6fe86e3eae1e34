//! The admission protocol holds, and each assumption of its proof is needed.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a helper of tests: it shows what the checker found, or that it found nothing"
)]

use protocol::admission::{Admission, Bounds, Mutation, RULE_OBEYED};
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

/// Searches for what `mutation` breaks, and shows the shortest way to it.
fn assert_breaks(mutation: Mutation, property: &'static str) {
    let model = Admission {
        bounds: bounds_of(mutation),
        mutation: Some(mutation),
    };
    let found = shortest_counterexample(&model, property);
    let trace = found.unwrap_or_else(|| panic!("{mutation:?} does not break: {property}"));
    println!("{mutation:?} breaks: {property}\n{trace}\n");
}

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        assert_breaks(mutation, mutation.breaks());
    }
}

#[test]
fn the_other_properties_can_be_broken_too() {
    assert_breaks(Mutation::DuplicateStarts, "a permit starts once");
    for mutation in [
        Mutation::OutstandingIgnored,
        Mutation::StartsIgnored,
        Mutation::CountedAtSlot,
        Mutation::ForgottenByTime,
    ] {
        assert_breaks(mutation, RULE_OBEYED);
    }
}

/// It was the mutation and not the bounds: the protocol itself holds in them.
#[test]
fn without_a_mutation_nothing_breaks() {
    let mut bounds: Vec<Bounds> = Vec::new();
    for of in Mutation::ALL.map(bounds_of) {
        if !bounds.contains(&of) {
            bounds.push(of);
        }
    }
    for bounds in bounds {
        let report = check(Admission::new(bounds), 2);
        let broken = report.verdicts.iter().any(|one| one.is_violated());
        assert!(!broken, "{bounds:?}\n{report}");
    }
}
