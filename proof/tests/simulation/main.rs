//! All tests of the simulation, in one program: each of its own would have the engine, the
//! stores and the contracts compiled and linked into it once more.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and shows what was found"
)]

mod bridge;

mod batches;
mod bridge_schedule;
mod bridge_store;
mod holds;
mod isolation;
mod model_sender;
mod promises;
mod queue_contract;
mod regressions;
mod repeats;
mod retention;
mod schedule_contract;
mod simulated_store;
mod slow;
mod smart;
mod teeth;
mod tenants;
