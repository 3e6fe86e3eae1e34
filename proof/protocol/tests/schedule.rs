//! The wake protocol holds, and everything that it does is needed.

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

/// The smallest bounds in which a mutation shows.
fn bounds_of(mutation: Mutation) -> Bounds {
    let mut bounds = ONE_EVENT;
    match mutation {
        Mutation::FinishWithoutToken => bounds.schedulers = 2,
        Mutation::FinishIgnoresWakes => bounds.left.arrivals = 2,
        Mutation::OutcomeNotWoken => bounds.left.arrivals = 3,
        Mutation::LookNotedAsPlanned => (bounds.left.arrivals, bounds.left.retries) = (2, 1),
        Mutation::WakeMovesLater => (bounds.left.arrivals, bounds.left.retries) = (2, 1),
        Mutation::RetryNotWoken => bounds.left.retries = 1,
        Mutation::SweepKeepsFloor | Mutation::SweepGoesByJobs | Mutation::RebuiltBeforeWakes => {
            bounds.left.losses = 1;
        }
        Mutation::RebuiltOldLife => (bounds.left.arrivals, bounds.left.losses) = (0, 2),
        Mutation::MarkClearedBeforeWake => (bounds.left.arrivals, bounds.left.changes) = (2, 1),
        Mutation::MarkClearedUnread => bounds.left.changes = 2,
        _ => {}
    }
    bounds
}

/// Whether a mutation breaks a property where it shows.
fn assert_breaks(mutation: Mutation, property: &'static str) {
    let model = WakeProtocol {
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
    for (mutation, property) in [
        (Mutation::TakeRemoves, "a take pushes the job forward"),
        (
            Mutation::FinishIgnoresWakes,
            "a finish with our token sets the next run",
        ),
        (
            Mutation::ClearKeepsFloor,
            "a wake that clears the floor runs the job when asked",
        ),
        (Mutation::WakeMovesLater, "no wake moves a job later"),
    ] {
        assert_breaks(mutation, property);
    }
}

#[test]
fn without_a_mutation_nothing_breaks() {
    crate::support::assert_nothing_breaks(Mutation::ALL.map(bounds_of), WakeProtocol::new);
}
