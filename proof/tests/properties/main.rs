//! Property tests of the domain: admission in a small model world, the judge
//! against a slow and obvious one, and the clocks.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is tests; helpers are not seen as such"
)]

mod admission;
mod backpressure;
mod batch;
mod brute;
mod clock;
mod compliance;
mod filter;
mod full_use;
mod ingest_limit;
mod redaction;
mod shortfall;
mod signals;
mod smart;
mod total;
mod world;
