//! Paceline's protocols as models, checked exhaustively.
//!
//! - [`admission`]: from the backlog to an outcome. No window ever holds more
//!   starts than its limit, and no event is lost.
//! - [`sends`]: from a claim to its request's first byte, and back to the ledger. No
//!   window of requests holds more than its limit, as they leave.
//! - [`answers`]: where answers count. No window of a receiver holds more than its limit,
//!   however long each request is on its way.
//! - [`groups`]: two destinations and a limit that they have together. No window of both
//!   holds more than that.
//! - [`schedule`]: wake, take, finish, sweep. Work is never forgotten.
//!
//! A model is small: one destination, a few events, a few faults. In return
//! *every* interleaving of its steps is tried. Each has mutations, which drop
//! one assumption each; the tests demand that the checker finds what that
//! breaks. `docs/protocol-model.md` says what is modelled and what is not.

#![warn(missing_docs)]

pub mod admission;
pub mod answers;
pub mod check;
pub mod groups;
pub mod schedule;
pub mod sends;
pub mod suite;
mod ticks;
