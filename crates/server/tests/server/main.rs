//! The server from outside: its API over a store in memory, its command line
//! and its committed pictures.

#![cfg(test)]

mod api;
#[path = "../support/ask.rs"]
mod ask;
mod backlog;
mod batches;
mod bulk;
mod command_line;
mod credentials;
mod demo;
mod described;
mod fuzz;
mod handshake;
mod health;
mod imports;
mod ingest;
mod listeners;
mod listens;
mod managed;
mod monitoring;
mod noticed;
mod notified;
mod openapi;
mod operations;
mod process;
mod profiles;
mod secrets;
mod sent;
mod sharded;
mod signatures;
mod smart_delivery;
mod snapshots;
mod store;
mod sure;
mod svix;
mod tls;
mod tried;
mod unmanaged;
mod waiting;
mod welcome;
mod world;
