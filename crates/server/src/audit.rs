//! The audit: was any window over its limit, and was the limit used?
//!
//! Three steps that do not know each other: [`collect`] reads a destination's
//! ledger and limit history; [`report`] judges them by `domain::compliance`,
//! purely; [`render`] prints. The demo uses the same three.

pub mod collect;
pub mod render;
pub mod report;

pub use collect::Span;
pub use report::{DestinationReport, Ledger, Report};
