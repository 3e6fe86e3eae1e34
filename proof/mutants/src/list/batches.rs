//! Batches.

use crate::mutant::Change::Rust;
use crate::mutant::{Mutant, loops, sqlite_contract};

pub(super) const MUTANTS: [Mutant; 3] = [
    Mutant {
        name: "batch-is-given-up-whole",
        wrong: "A batch that is refused for good becomes dead letters, all of it, for one bad event.",
        file: "crates/domain/src/batch/failure.rs",
        change: Rust {
            right: "size <= 1",
            wrong: "size <= 500",
        },
        killer: loops("worker_batches::a_final_answer_splits_and_one_alone_is_given_up"),
    },
    Mutant {
        name: "batch-is-promised-twice",
        wrong: "Admission forgets what the permits that are out will take along, and gives permits \
            to it as well.",
        file: "crates/domain/src/batch/openings.rs",
        change: Rust {
            right: "&lines.promised[..]",
            wrong: "&lines.promised[..0]",
        },
        killer: sqlite_contract("batches::what_is_promised_is_not_admitted_again"),
    },
    Mutant {
        name: "carried-events-open-the-breaker",
        wrong: "Health counts each event of a batch that failed, where one request did.",
        file: "crates/domain/src/attempt/outcome.rs",
        change: Rust {
            right: "match self.speaks {\n            \
                Speaks::ForRequest => Some((self.kind, self.status)),\n            \
                Speaks::ForParts { taken: true } => Some((OutcomeKind::Succeeded, None)),\n            \
                Speaks::ForParts { taken: false } => Some((OutcomeKind::Failed, None)),\n            \
                Speaks::Carried | Speaks::Apart => None,\n        \
                }",
            wrong: "Some((self.kind, self.status))",
        },
        killer: sqlite_contract("batches::a_failed_batch_is_one_failure"),
    },
];
