//! What destinations' owners and receivers send us, as fuzz targets.

mod address;
mod endpoint;
mod keep_alive;
mod response;
pub(super) mod wire;

/// The name and the version that the corpora lie under.
const CRATE: &str = env!("CARGO_MANIFEST_DIR");
