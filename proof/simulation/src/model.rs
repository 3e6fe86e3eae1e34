//! Models of the ports: what the drivers promise, in plain ordered maps and in
//! virtual time. They pass the same contract suites as the drivers.
//!
//! A model is of the drivers, not of the domain: it calls the shipped
//! [`domain::admission::admit`] and its like as the drivers do. It takes each
//! step at once, so it never fails by itself; who wants faults asks for them.
//! Everything is deterministic: nothing is iterated in hash order, and time is
//! tokio's, which a paused runtime moves.

mod clock;
mod queue;
mod sender;
mod store;

pub use clock::{ClockStep, ModelClock};
pub use queue::{Condition, Fate, ModelQueue};
pub use sender::{Connecting, ModelSender, Reaction, Received, Receivers};
pub use store::{Attempt, EventRow, ModelStore, ReapStep, Rows, Transition, Unseen};
