//! What has no shipped part that could be run here: the broker, the receivers and their
//! network, in plain ordered maps and in virtual time. The queue passes the same contract
//! suite as the drivers.
//!
//! A model takes each step at once, so it never fails by itself; who wants faults asks for
//! them. Everything is deterministic: nothing is iterated in hash order, and time is
//! tokio's, which a paused runtime moves.

mod clock;
mod queue;
mod sender;

pub use clock::{ClockStep, ModelClock};
pub use queue::{Condition, Fate, ModelQueue};
pub use sender::{Connecting, ModelSender, Reaction, Received, Receivers};
