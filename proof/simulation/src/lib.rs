//! The real `domain` and `engine` over the shipped SQLite store, the schedule in process
//! and models of the broker and the receivers, in virtual time, with every random choice
//! from a seed.
//!
//! A [`scenario`] is drawn from a seed: destinations, processes, and a list of
//! operations with their times. [`world::run`] plays it. Every call of a
//! process goes through its `gate`, where it may fail, be late, stand still or
//! die; a `witness` sees what was committed and what the receivers got, and
//! judges every step by the [`promises`]. What fails is [`shrink`]ed to the
//! few operations that matter.
//!
//! How to run it, and what its numbers mean: `docs/simulation.md`.

#![warn(missing_docs)]

pub mod campaign;
pub mod counts;
pub mod dice;
mod faulty;
mod gate;
mod intake;
pub mod model;
mod process;
pub mod sabotage;
pub mod scenario;
mod schedule;
pub mod shrink;
mod signing;
mod site;
mod store;
pub mod trace;
mod weather;
mod witness;
pub mod world;

pub use schedule::SimulatedSchedule;
pub use site::Site;
pub use store::{SimulatedStore, Unseen};
