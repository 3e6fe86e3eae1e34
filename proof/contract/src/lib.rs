//! What every implementation of a port must do, as tests that take the port.
//!
//! Adapters, the simulation and whoever writes another implementation run the very
//! same suites.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a contract suite is a test: it fails by panicking"
)]

pub mod backlog;
pub mod operations;
pub mod queue;
pub mod retention;
pub mod schedule;
pub mod stalled;
pub mod store;
pub mod survey;
pub mod tallies;
pub mod tenants;
