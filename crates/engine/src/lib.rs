//! The loops, and the ports they need.
//!
//! A stranger starts at [`roles`]: which loops run in which role.
//!
//! The engine is the same in both sizes: it knows no driver, only the
//! [`ports`]. It decides nothing about limits either: that is
//! `domain::admission`. What it owns is the order of things: take before
//! admit, admit before publish, claim before send, record before the next
//! look.
//!
//! - [`scheduler`]: take, admit, publish, finish.
//! - [`worker`]: receive, wait, claim, acknowledge, send, record.
//! - [`reaper`] and [`sweep`]: what crashed goes on; what was forgotten is
//!   looked at.
//! - [`ingest`]: many requests, one commit.
//! - [`backpressure`]: what is accepted, or refused for a backlog.
//! - [`relay`]: rows that users wrote become events.
//! - [`handshake`]: receivers are asked whether they want to be sent anything.
//! - [`notifier`]: what operators must know reaches them.
//! - [`notices`]: people are told of it, by mail and in chats.
//! - [`survey`]: what metrics say of the store, sampled.
//! - [`retention`]: what is over and old goes, in small steps.
//! - [`sealing`] and [`resealing`]: secrets, closed and opened, and brought
//!   under another key while all runs.
//! - [`recent`]: what a cache forgets when it is full.
//! - [`traced`]: every step as a span of one trace, where somebody asks for it.
//!
//! Every loop has a run-once form, every I/O is a batch, every queue, buffer
//! and retry is bounded by a named constant.

#![warn(missing_docs)]

pub mod backoff;
pub mod backpressure;
pub mod handshake;
pub mod ingest;
pub mod notices;
pub mod notifier;
mod pause;
pub mod ports;
pub mod reaper;
pub mod recent;
pub mod relay;
pub mod replay;
pub mod resealing;
pub mod retention;
pub mod roles;
pub mod scheduler;
pub mod sealing;
pub mod store_clock;
pub mod survey;
pub mod sweep;
pub mod tally;
pub mod traced;
mod wake;
mod warm;
pub mod worker;
