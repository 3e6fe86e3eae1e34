//! The loops over small fakes, in virtual time: what they ask of the ports, in
//! which order and when, and what they do with every answer.
//!
//! Time is tokio's and paused: it moves only when everybody waits, so each
//! duration below is exact, and no test takes longer than its work. A fake
//! answers well unless its test says otherwise, and notes each call in one
//! journal that all of them share.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the fakes are part of the tests: they fail by panicking"
)]

mod backpressure;
mod handshake;
mod ingest;
mod notices;
mod notifier;
mod reaper;
mod relay;
mod replay;
mod retention;
mod scheduler;
mod scheduler_trouble;
mod support;
mod sweep;
mod worker;
mod worker_batches;
mod worker_claims;
mod worker_hand;
mod worker_identity;
mod worker_margins;
mod worker_places;
mod worker_records;
mod worker_shutdown;
mod worker_signs;
mod worker_tokens;
