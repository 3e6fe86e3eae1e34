//! The admission protocol holds, and each assumption of its proof is needed.

use protocol::admission::{Admission, Bounds, Mutation, RULE_OBEYED};

/// Two events that may start once each, with one permit.
const TWO_EVENTS: Bounds = Bounds {
    events: 2,
    tries: 1,
    permits: 1,
    copies: 1,
    limits: &[1],
    changes: 0,
    unlocked: false,
};

/// The smallest bounds in which a mutation shows.
fn bounds_of(mutation: Mutation) -> Bounds {
    match mutation {
        Mutation::StaleSnapshot => Bounds {
            unlocked: true,
            ..TWO_EVENTS
        },
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

/// Whether a mutation breaks a property where it shows.
fn assert_breaks(mutation: Mutation, property: &'static str) {
    let model = Admission {
        bounds: bounds_of(mutation),
        mutation: Some(mutation),
    };
    crate::support::assert_breaks(&model, mutation, property);
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

#[test]
fn without_a_mutation_nothing_breaks() {
    crate::support::assert_nothing_breaks(Mutation::ALL.map(bounds_of), Admission::new);
}
