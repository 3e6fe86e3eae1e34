//! No window of a group holds more than its limit, and each assumption of that is needed.

use protocol::check::check;
use protocol::groups::{Bounds, GROUP_KEPT, Groups, Mutation};

/// The fewest that can come too close, in a group of one a second.
const FEW: Bounds = Bounds {
    attempts: [2, 1],
    group: 1,
    own: 2,
    changes: 1,
};

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let model = Groups {
            bounds: FEW,
            mutation: Some(mutation),
        };
        crate::support::assert_breaks(&model, mutation, GROUP_KEPT);
    }
}

#[test]
fn without_a_mutation_nothing_breaks() {
    crate::support::assert_nothing_breaks([FEW], Groups::new);
    let report = check(Groups::new(FEW), 2);
    assert!(report.holds(), "{report}");
}
