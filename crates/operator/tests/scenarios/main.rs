//! What becomes of resources, against an API server that the test plays.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod calls;
mod cluster;
mod conflicts;
mod definition;
mod election;
mod life;
mod measured;
mod paceline;
mod plan;
mod real;
mod status;
mod troubles;
mod world;
