//! The parts as one process reaches them: through its gate, past the witness.

mod queue;
mod receiver;
mod schedule;
mod store;

pub(crate) use queue::{FaultyQueue, fates};
pub(crate) use receiver::{Behaviours, FaultySender, PROMPT, Takings, WatchedReceivers};
pub(crate) use schedule::FaultySchedule;
pub(crate) use store::{FaultyStore, HELD_UP_FOR, LATEST_COMMIT, pending};
