//! Backpressure.

use crate::mutant::Change::{Rust, Text};
use crate::mutant::{Mutant, loops, sqlite_contract};

pub(super) const MUTANTS: [Mutant; 4] = [
    Mutant {
        name: "refuses-and-takes-by-turns",
        wrong: "A backlog that refuses takes events again as soon as it is below its high mark.",
        file: "crates/domain/src/backpressure.rs",
        change: Rust {
            right: "pending >= low_mark(bound)",
            wrong: "pending > high_mark(bound)",
        },
        killer: sqlite_contract(
            "backpressure::a_backlog_above_its_mark_refuses_until_below_the_low_one",
        ),
    },
    Mutant {
        name: "started-is-not-pending",
        wrong: "What has started and has no outcome yet is not counted into the backlog.",
        file: "crates/adapters/src/sqlite/backpressure.rs",
        change: Text {
            right: "where state = 'started' group by destination_id",
            wrong: "where state = 'started' and 1 = 0 group by destination_id",
        },
        killer: sqlite_contract("backpressure::what_is_pending_is_counted"),
    },
    Mutant {
        name: "what-comes-during-a-count-is-lost",
        wrong: "A count is taken to hold all that was accepted before its answer.",
        file: "crates/engine/src/backpressure.rs",
        change: Rust {
            right: "known.drop_slices(counted_at);",
            wrong: "known.slices = VecDeque::from([Slice::new(now)]);",
        },
        killer: loops("backpressure::what_comes_during_a_count_is_not_forgotten"),
    },
    Mutant {
        name: "an-old-count-forgets-a-mark-that-was-passed",
        wrong: "Whatever the store says, however old, is what holds from now on.",
        file: "crates/engine/src/backpressure.rs",
        change: Rust {
            right: "counted_at.is_none_or(|at| *noted > at)",
            wrong: "counted_at.is_none_or(|at| *noted > at + counted.age)",
        },
        killer: loops("backpressure::a_count_from_before_changes_nothing"),
    },
];
