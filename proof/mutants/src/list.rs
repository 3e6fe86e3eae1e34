//! The mutants, by the part that they change.

mod backpressure;
mod batches;
mod domain;
mod engine;
mod operations;
mod postgres;
mod queue;
mod retention;
mod schedule;
mod smart;
mod sqlite;
mod tallies;

use crate::mutant::Mutant;

/// All of them, in the order of the page.
pub(crate) fn all() -> Vec<Mutant> {
    let mut all = Vec::new();
    all.extend(domain::MUTANTS);
    all.extend(smart::MUTANTS);
    all.extend(backpressure::MUTANTS);
    all.extend(batches::MUTANTS);
    all.extend(sqlite::MUTANTS);
    all.extend(postgres::MUTANTS);
    all.extend(schedule::MUTANTS);
    all.extend(queue::MUTANTS);
    all.extend(engine::MUTANTS);
    all.extend(operations::MUTANTS);
    all.extend(tallies::MUTANTS);
    all.extend(retention::MUTANTS);
    all
}
