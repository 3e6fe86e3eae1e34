//! Retention.

use crate::mutant::Change::{Rust, Text};
use crate::mutant::{Mutant, postgres, sqlite_contract};

pub(super) const MUTANTS: [Mutant; 6] = [
    Mutant {
        name: "sqlite-retention-takes-what-waits",
        wrong: "An old event goes though an attempt of it still waits.",
        file: "crates/adapters/src/sqlite/retain.rs",
        change: Text {
            right: "(a.state in ('waiting', 'admitted', 'started')",
            wrong: "(a.state in ('admitted', 'started')",
        },
        killer: sqlite_contract("retention::kept::what_is_not_over_stays_however_old_it_is"),
    },
    Mutant {
        name: "postgres-retention-takes-dead-letters",
        wrong: "An old dead letter goes with the ledger, though it can still be replayed.",
        file: "crates/adapters/src/postgres/retain/walks.rs",
        change: Text {
            right: "and not (a.dead_letter and a.replayed_at is null)",
            wrong: "and (true or a.dead_letter)",
        },
        killer: postgres("contract::retention::dead::a_dead_letter_keeps_its_row_and_its_event"),
    },
    Mutant {
        name: "horizon-passes-what-waits",
        wrong: "Days are not asked that are over, though an attempt of them still waits.",
        file: "crates/adapters/src/postgres/horizon.rs",
        change: Rust {
            right: "is_needed(connection, &day.table).await",
            wrong: "Ok::<bool, Failure>(false)",
        },
        killer: postgres("horizon::what_waits_or_is_under_way_lies_above_it_however_old"),
    },
    Mutant {
        name: "horizon-is-where-it-was-seen-once",
        wrong: "One look moves the horizon, also by a clock that is ahead for a moment.",
        file: "crates/adapters/src/postgres/horizon.rs",
        change: Text {
            right: "when o.seen_at <= clock_timestamp()",
            wrong: "when true or o.seen_at <= clock_timestamp()",
        },
        killer: postgres("horizon::a_clock_that_is_ahead_for_a_moment_moves_nothing"),
    },
    Mutant {
        name: "open-days-end-with-the-last-id",
        wrong: "What waits since a day after the last id that was given is not looked for.",
        file: "crates/adapters/src/postgres/id_range.rs",
        change: Rust {
            right: "Self::days(horizon, given.max(today))",
            wrong: "Self::days(horizon, given)",
        },
        killer: postgres("days::a_day_goes_when_it_is_old_and_nothing_in_it_is_needed"),
    },
    Mutant {
        name: "plans-know-every-day",
        wrong: "A step of an attempt opens and locks each day that is kept.",
        file: "crates/adapters/src/postgres/id_range.rs",
        change: Rust {
            right: "statement.replace(\"a.id {in_days}\", &text)",
            wrong: "statement.replace(\"a.id {in_days}\", \"true\")",
        },
        killer: postgres("days_cost::a_step_of_an_attempt_opens_its_days_alone"),
    },
];
