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

/// Time is not virtual: a store's thread is waited for, and a clock that runs ahead
/// meanwhile would find each request too slow.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime")
}
