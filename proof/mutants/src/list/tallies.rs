//! What came of requests, counted.

use crate::mutant::Change::Rust;
use crate::mutant::{Mutant, postgres, sqlite_contract};

const POSTGRES: &str = "crates/adapters/src/postgres/tallies.rs";

pub(super) const MUTANTS: [Mutant; 4] = [
    Mutant {
        name: "tally-takes-unknown-for-delivered",
        wrong: "What nobody knows, for its worker ended or never sent it, is counted as delivered.",
        file: "crates/domain/src/health/tally.rs",
        change: Rust {
            right: "self.unknown += 1",
            wrong: "self.succeeded += 1",
        },
        killer: sqlite_contract("tallies::what_nobody_knows_is_not_counted_as_delivered"),
    },
    Mutant {
        name: "sqlite-tally-passes-what-is-open",
        wrong: "The tally passes a request that has no outcome yet: it is counted as unknown, and \
            what came of it never is.",
        file: "crates/adapters/src/sqlite/tallies.rs",
        change: Rust {
            right: "cut.unwrap_or(until).min(open.map_or(until, |(at, ..)| *at))",
            wrong: "cut.unwrap_or(until).min(open.map_or(until, |_| until))",
        },
        killer: sqlite_contract("tallies::what_started_after_one_that_is_open_waits_for_it"),
    },
    Mutant {
        name: "postgres-tally-passes-what-commits-late",
        wrong: "The tally counts up to now, and passes its mark before a start of a moment ago \
            has committed.",
        file: POSTGRES,
        change: Rust {
            right: "now - rules.settled",
            wrong: "now",
        },
        killer: postgres("contract::tallies::what_may_still_commit_is_not_passed"),
    },
    Mutant {
        name: "postgres-tally-leaves-its-mark",
        wrong: "The tally does not move its mark, and counts the same requests at each step.",
        file: POSTGRES,
        change: Rust {
            right: "one.until = row.until;",
            wrong: "",
        },
        killer: postgres("contract::tallies::requests_are_counted_once_by_what_came_of_them"),
    },
];
