//! Smart delivery.

use crate::mutant::Change::Rust;
use crate::mutant::{Mutant, sqlite_contract};

pub(super) const MUTANTS: [Mutant; 5] = [
    Mutant {
        name: "smart-cuts-for-the-whole-burst",
        wrong: "Every refusal cuts the effective limit, also what started before the last cut: one \
            burst takes it to the slowest.",
        file: "crates/domain/src/smart.rs",
        change: Rust {
            right: "one.started_at >= self.fresh_from",
            wrong: "true",
        },
        killer: sqlite_contract("smart::a_refusal_cuts_and_its_burst_counts_once"),
    },
    Mutant {
        name: "smart-heeds-another-receiver",
        wrong: "Answers of what started at another URL, or before smart delivery was turned on, \
            cut the effective limit.",
        file: "crates/adapters/src/sqlite/smart.rs",
        change: Rust {
            right: "smart_memory::read(memory.as_deref(), &ceiling, begun_at)",
            wrong: "smart_memory::read(memory.as_deref(), &ceiling, Timestamp::MIN)",
        },
        killer: sqlite_contract("smart::late_answers_of_another_receiver_say_nothing"),
    },
    Mutant {
        name: "smart-keeps-what-was-configured",
        wrong: "Where nothing lowers the limit and its owner raises it, the old one is what the \
            effective limit goes on from.",
        file: "crates/domain/src/smart.rs",
        change: Rust {
            right: "self.follow(ceiling, now);",
            wrong: "self.ceiling = *ceiling;",
        },
        killer: sqlite_contract("smart::a_higher_configured_limit_is_followed"),
    },
    Mutant {
        name: "smart-is-not-planned-by",
        wrong: "The effective limit is shown, and admission plans by the configured one alone.",
        file: "crates/domain/src/destination.rs",
        change: Rust {
            right: "configured.slowed(smart)",
            wrong: "configured.slowed(Effective::default())",
        },
        killer: sqlite_contract("smart::admission_plans_at_the_effective_limit"),
    },
    Mutant {
        name: "smart-replaces-the-limits",
        wrong: "Below the effective limit, the configured ones are not asked any more.",
        file: "crates/domain/src/admission/plan.rs",
        change: Rust {
            right: "limits.into_iter().chain(self.pace()).collect()",
            wrong: "match self.pace() {\n            Some(pace) => vec![pace],\n            \
                None => limits,\n        }",
        },
        killer: sqlite_contract("smart::the_configured_windows_hold_beside_it"),
    },
];
