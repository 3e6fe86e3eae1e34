//! Three people meet the program with receivers that fail by design: a developer, a
//! customer of a SaaS with a link, and somebody on call. Each thing that it told one
//! of them and that was not so is a statement here, as it should be: what is read
//! on a page, in an answer, in a terminal, beside what the receivers counted.
//!
//! Needs PACELINE_TEST_DATABASE_URL, as `scripts/test` sets it.

#![cfg(test)]

#[path = "../support/ask.rs"]
mod ask;
mod customer;
mod developer;
mod on_call;
mod page;
#[path = "../isolation/place.rs"]
#[expect(dead_code, reason = "here the store is the program's own to open")]
mod place;
mod receivers;
#[path = "../../../adapters/tests/support/scratch.rs"]
mod scratch;
mod site;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};

use place::Place;
use stage::Stage;

/// What should be so, and how it is looked at.
pub(crate) type Statement = (&'static str, fn(&Stage));

fn take(place: Place) {
    let stage = Stage::set(place);
    // What moves is looked at first.
    let tours = [
        ("on call", on_call::STATEMENTS),
        ("customer", customer::STATEMENTS),
        ("developer", developer::STATEMENTS),
    ];
    let mut untrue = Vec::new();
    for (person, statements) in tours {
        for (statement, holds) in statements {
            // All that are not so are told at once.
            if catch_unwind(AssertUnwindSafe(|| holds(&stage))).is_err() {
                untrue.push(format!("{person}: {statement}"));
            }
        }
    }
    assert!(untrue.is_empty(), "not so:\n{}", untrue.join("\n"));
}

#[test]
fn each_statement_is_true_over_sqlite() {
    take(Place::sqlite());
}

#[test]
fn each_statement_is_true_over_postgres() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let place = runtime.block_on(Place::postgres());
    drop(runtime);
    take(place);
}
