//! The words and the arithmetic of Paceline.
//!
//! Everything here is a synchronous, total function of its arguments: no
//! async, no I/O, no clock, no randomness. [`admission::admit`] is the heart:
//! it decides which attempts of one destination may start, when, and why no
//! window can ever hold more starts than its limit; [`admission::round`] asks it
//! for many. [`attempt`] says which claim may start and what follows an outcome,
//! [`slow`] what a receiver that hangs may have. Stores and loops read, ask, and
//! carry out; they decide nothing of this. [`compliance`] judges a
//! ledger after the fact by the same bounds, and is shared by the audit, the
//! simulation and the tests.
//!
//! Glossary: ARCHITECTURE.md, "The words".

#![warn(missing_docs)]

pub mod access;
pub mod admission;
pub mod attempt;
pub mod backpressure;
pub mod batch;
pub mod bulkhead;
pub mod cancel;
pub mod ceiling;
pub mod clock;
pub mod compliance;
pub mod credentials;
pub mod destination;
pub mod event;
pub mod event_types;
pub mod explain;
pub mod external_id;
pub mod filter;
pub mod handshake;
pub mod header;
pub mod health;
pub mod ids;
pub mod ingest_limit;
pub mod limit;
pub mod limit_group;
pub mod margin;
pub mod notices;
pub mod operations;
pub mod outbox;
pub mod permit;
pub mod policy;
pub mod redaction;
pub mod remark;
pub mod replay;
pub mod response_headers;
pub mod retention;
pub mod retry;
pub mod search;
pub mod series;
pub mod session;
pub mod shard;
pub mod share;
pub mod signals;
pub mod signature;
pub mod slow;
pub mod smart;
pub mod time;
pub mod trace;
pub mod turns;
pub mod watch;
pub mod what_if;
