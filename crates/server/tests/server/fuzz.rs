//! What strangers send to the API, and what people write on the command line,
//! as fuzz targets.

mod arguments;
mod body;
mod problem;
mod query;
mod secret_url;
mod url;

use tokio::runtime::Runtime;

/// Where the corpora lie.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Time is virtual, so that nobody waits for a batch to fill: all of the world
/// is in memory.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let builder = builder.enable_time().start_paused(true);
    builder.build().expect("a runtime")
}
