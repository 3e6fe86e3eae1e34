//! What smart delivery remembers, as a column holds it.

use domain::smart::{Ceiling, Smart};
use domain::time::Timestamp;

/// As JSON. What no later version could read anyway is nothing.
pub(crate) fn write(smart: &Smart) -> Option<String> {
    serde_json::to_string(smart).ok()
}

/// What a column says; it begins anew where that is nothing, or of a version
/// that remembered otherwise.
pub(crate) fn read(column: Option<&str>, ceiling: &Ceiling, begun_at: Timestamp) -> Smart {
    let read = column.and_then(|text| serde_json::from_str(text).ok());
    read.unwrap_or_else(|| Smart::new(ceiling, begun_at))
}
