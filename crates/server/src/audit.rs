//! The audit: was any window over its limit, was the limit used, and if not, why?
//!
//! Steps that do not know each other: [`collect`] reads a destination's limit
//! history and, page by page, its ledger; [`examine`] judges that as it comes, by
//! `domain::compliance`; [`report`] says what was found; [`render`] prints it.
//! The command and the API use the same ones.

mod chart;
pub mod collect;
pub mod examine;
pub mod groups;
pub mod html;
mod noted;
pub mod render;
pub mod report;

pub use collect::{Beyond, Depth, NotExamined, Span};
pub use report::{DestinationReport, GroupReport, Report};
