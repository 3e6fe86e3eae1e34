//! The schedule and the delivery queue of the embedded size: in memory, in
//! this process. A crash loses them and nothing else: the store is the truth,
//! and the sweep rebuilds the jobs.

mod jobs;
mod queue;
mod schedule;

pub use jobs::Jobs;
pub use queue::InProcessQueue;
pub use schedule::{InProcessSchedule, ScheduleClock};
