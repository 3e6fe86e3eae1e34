//! The embedded store.

use crate::mutant::Change::{Rewrite, Rust, Text};
use crate::mutant::{Mutant, sqlite, sqlite_contract};

const ADMIT: &str = "crates/adapters/src/sqlite/admit.rs";
const CLAIM: &str = "crates/adapters/src/sqlite/claim.rs";
const FLEET: &str = "crates/adapters/src/sqlite/fleet.rs";
const HEALTH: &str = "crates/adapters/src/sqlite/health.rs";
const REAP: &str = "crates/adapters/src/sqlite/reap.rs";
const RECORD: &str = "crates/adapters/src/sqlite/record.rs";
const REPLAY: &str = "crates/adapters/src/sqlite/replays/moves.rs";
const USAGE: &str = "crates/adapters/src/sqlite/usage.rs";

pub(super) const MUTANTS: [Mutant; 15] = [
    Mutant {
        name: "sqlite-time-before-the-lock",
        wrong: "The clock is read before the write lock: a step that waited for it dates what it \
            does to before the wait.",
        file: "crates/adapters/src/sqlite.rs",
        change: Rewrite {
            right: "let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;\n            \
                let answer = step(&tx, clock())?;",
            with: "let before = clock();\n            \
                let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;\n            \
                let answer = step(&tx, if ON { before } else { clock() })?;",
        },
        killer: sqlite("a_step_that_waited_for_the_lock_has_the_time_after_it"),
    },
    Mutant {
        name: "sqlite-decided-twice",
        wrong: "A destination that is named twice in one batch is decided twice, the second time \
            on what was read before the first.",
        file: ADMIT,
        change: Rewrite {
            right: "match seen.insert(run.destination) {",
            with: "match seen.insert(run.destination) || ON {",
        },
        killer: sqlite_contract("admission::a_destination_named_twice_is_decided_once"),
    },
    Mutant {
        name: "sqlite-old-epoch-is-gone",
        wrong: "An old epoch is taken as proof that a permit is gone, before its row has moved.",
        file: USAGE,
        change: Text {
            right: "select not_before, deadline from attempts indexed by attempts_admitted\n    \
                where destination_id = ?1 and state = 'admitted'",
            wrong: "select not_before, deadline from attempts indexed by attempts_admitted\n    \
                where destination_id = ?1 and state = 'admitted'\n        \
                and epoch = (select epoch from destinations where id = ?1)",
        },
        killer: sqlite_contract("an_old_epoch_is_no_proof_that_a_permit_is_gone"),
    },
    Mutant {
        name: "sqlite-start-counts-when-it-ends",
        wrong: "A late start record: a start counts only once its outcome is there.",
        file: USAGE,
        change: Text {
            right: "where destination_id = ?1 and folded = ?2 and started_at > ?3",
            wrong: "where destination_id = ?1 and folded = ?2 and started_at > ?3\n        \
                and state <> 'started'",
        },
        killer: sqlite_contract("admission::a_start_counts_from_its_claim_on"),
    },
    Mutant {
        name: "sqlite-stale-permit-moves-the-row",
        wrong: "A stale permit that is handed back moves a row that is admitted under another \
            number.",
        file: CLAIM,
        change: Text {
            right: "where id = ?1 and state = 'admitted' and permit = ?2 and destination_id = ?3",
            wrong: "where id = ?1 and state = 'admitted' and ?2 = ?2 and destination_id = ?3",
        },
        killer: sqlite_contract("claim::releasing_is_idempotent_and_by_number"),
    },
    Mutant {
        name: "sqlite-lapsed-worker-claims",
        wrong: "A worker whose heartbeat has lapsed may claim: its starts may have been given up.",
        file: CLAIM,
        change: Text {
            right: "where id = ?1 and retired = 0 and seen_at >= ?2",
            wrong: "where id = ?1 and retired = 0 and ?2 = ?2",
        },
        killer: sqlite_contract("claim::a_lapsed_worker_is_refused_for_ever"),
    },
    Mutant {
        name: "sqlite-lapsed-worker-is-revived",
        wrong: "A late heartbeat revives a worker that has lapsed.",
        file: FLEET,
        change: Text {
            right: "where retired = 0 and seen_at >= ?5",
            wrong: "where retired = 0 and ?5 = ?5",
        },
        killer: sqlite_contract("fleet::a_lapsed_worker_does_not_count_and_is_not_revived"),
    },
    Mutant {
        name: "sqlite-started-row-waits-again",
        wrong: "A start that nobody came back for waits again in its own row, and forgets that \
            it started.",
        file: REAP,
        change: Text {
            right: "set state = 'unknown', error = ?2",
            wrong: "set state = 'waiting', started_at = null, error = ?2",
        },
        killer: sqlite_contract("reap::a_start_that_is_too_old_becomes_unknown"),
    },
    Mutant {
        name: "sqlite-anybody-records",
        wrong: "An outcome is recorded for whoever sends it, not for the worker that claimed.",
        file: RECORD,
        change: Text {
            right: "and worker_id = ?3 and state in ('started', 'unknown')",
            wrong: "and ?3 = ?3 and state in ('started', 'unknown')",
        },
        killer: sqlite_contract("record::a_wrong_worker_or_number_changes_nothing"),
    },
    Mutant {
        name: "sqlite-final-start-in-no-bucket",
        wrong: "A start of a coarse limit is marked as folded, and is in no bucket.",
        file: RECORD,
        change: Rewrite {
            right: "if row.to_fold {",
            with: "if row.to_fold && !ON {",
        },
        killer: sqlite_contract("coarse::a_coarse_limit_counts_started_and_finished"),
    },
    Mutant {
        name: "sqlite-change-leaves-permits",
        wrong: "A change bumps the epoch and leaves the permits of the old limit where they are.",
        file: "migrations/sqlite/0004_changes.sql",
        change: Text {
            right: "where new.revokes and id in (",
            wrong: "where false and id in (",
        },
        killer: sqlite_contract("limits::a_change_of_shape_revokes"),
    },
    Mutant {
        name: "sqlite-replayed-again",
        wrong: "A dead letter that was replayed is not marked, and another replay takes it again.",
        file: REPLAY,
        change: Text {
            right: "update attempts set replayed_at = ?2",
            wrong: "update attempts set replayed_at = null + ?2",
        },
        killer: sqlite_contract("replay::several_at_once_move_each_once"),
    },
    Mutant {
        name: "sqlite-hold-leaves-permits",
        wrong: "A hold leaves the permits that are out where they are.",
        file: HEALTH,
        change: Rust {
            right: "verdict.held",
            wrong: "false",
        },
        killer: sqlite_contract("health::a_receiver_that_asks_is_left_alone"),
    },
    Mutant {
        name: "sqlite-refusal-costs-a-try",
        wrong: "A 429 costs a try like any other failure.",
        file: HEALTH,
        change: Rust {
            right: "judged.health.insert(*destination, verdict.health);",
            wrong: "judged.health.remove(destination);",
        },
        killer: sqlite_contract("health::a_429_holds_and_costs_no_try"),
    },
    Mutant {
        name: "sqlite-defers-nothing",
        wrong: "Admission takes no notice of a deferral.",
        file: ADMIT,
        change: Text {
            right: "iif(p.next_look_at is null, 0, coalesce(p.deferred_until, 0))",
            wrong: "0",
        },
        killer: sqlite_contract("claim::a_deferred_destination_is_not_admitted"),
    },
];
