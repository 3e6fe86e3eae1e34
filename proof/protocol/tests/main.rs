//! All tests of the models, in one program: the checker is generic, and would be compiled
//! into each.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and shows what was found"
)]

mod support;

mod admission;
mod answers;
mod groups;
mod schedule;
mod sends;
