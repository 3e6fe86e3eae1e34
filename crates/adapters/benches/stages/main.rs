//! What each stage of an event's way costs alone, on the real parts: the
//! arithmetic (`admit`, the codec, signing), the scripts on Redis, and the
//! statements of ingest, admission, claims and outcomes on Postgres and SQLite
//! with a backlog of 10^3 to 10^6 rows.
//!
//! ```sh
//! scripts/with-servers cargo bench -p adapters --bench stages
//! PACELINE_BENCH_ROWS=10000000 scripts/with-servers cargo bench -p adapters --bench stages -- claim
//! ```
//!
//! Under `cargo test` each runs once, with the smallest backlog, so that none
//! can rot. Needs the servers that the tests of this crate need.
#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod arithmetic;
#[path = "../../tests/postgres_store/database.rs"]
#[expect(dead_code, reason = "most of it is for tests")]
mod database;
mod ground;
mod schedule;
#[path = "../../tests/support/scratch.rs"]
mod scratch;
mod size;
mod steps;

fn main() {
    divan::main();
    ground::clear();
}
