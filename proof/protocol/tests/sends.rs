//! No window of requests holds more than its limit, and each assumption of that is needed.

use protocol::check::check;
use protocol::sends::{Bounds, Mutation, SLOW_COSTS_NOTHING, Sends, USED_UP, WINDOWS_KEPT};

/// Two requests at one a second: the fewest that can come too close.
const TWO: Bounds = Bounds {
    events: 2,
    limit: 1,
};

#[test]
fn every_mutation_is_found() {
    for mutation in Mutation::ALL {
        let model = Sends {
            bounds: TWO,
            mutation: Some(mutation),
        };
        if mutation.breaks() == WINDOWS_KEPT {
            crate::support::assert_breaks(&model, mutation, WINDOWS_KEPT);
            continue;
        }
        // It is safe, and what it costs is never reached.
        let report = check(model, 2);
        assert!(!report.verdicts.iter().any(|one| one.is_violated()));
        let reached = |name| {
            report
                .verdicts
                .iter()
                .any(|one| one.name == name && one.holds)
        };
        assert!(!reached(mutation.breaks()), "{mutation:?}\n{report}");
        assert!(reached(USED_UP), "{report}");
    }
    assert_eq!(Mutation::ReportsForgotten.breaks(), SLOW_COSTS_NOTHING);
}

#[test]
fn without_a_mutation_nothing_breaks() {
    crate::support::assert_nothing_breaks([TWO], Sends::new);
    let report = check(Sends::new(TWO), 2);
    assert!(report.holds(), "{report}");
}
