//! Where answers count no window of arrivals holds more than its limit, and each assumption
//! of that is needed.

use protocol::answers::{Answers, Bounds, Mutation, WINDOWS_KEPT};
use protocol::check::check;

/// Two requests at one a second: the fewest that can come too close.
const TWO: Bounds = Bounds {
    events: 2,
    limit: 1,
};

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let model = Answers {
            bounds: TWO,
            mutation: Some(mutation),
        };
        crate::support::assert_breaks(&model, mutation, WINDOWS_KEPT);
    }
}

#[test]
fn without_a_mutation_nothing_breaks() {
    crate::support::assert_nothing_breaks([TWO], Answers::new);
    let report = check(Answers::new(TWO), 2);
    assert!(report.holds(), "{report}");
}
