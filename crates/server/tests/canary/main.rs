//! What comes out of a running server: logs, metrics, traces and answers, of
//! which none may hold a payload, a secret, a key or a URL's query.
//!
//! The servers are real processes, and so are the listeners that play the
//! receiver, the collector and the clients.

#![cfg(test)]

mod listener;
mod place;
mod secrets;
mod traces;
