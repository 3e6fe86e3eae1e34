//! The sender against receivers that behave, misbehave and attack, over real
//! sockets.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests, outside the functions that clippy takes for tests"
)]

mod addresses;
mod answers;
mod client_certificate;
mod dialling;
mod handshake;
mod hostile;
mod http2;
mod name_server;
mod peer;
mod proxy;
mod reuse;
mod tls;
mod token;
mod vetting;
