//! One file per command, each with one `run`.

pub mod api;
pub mod attempt;
pub mod audit;
pub mod completions;
pub mod crd;
pub mod dead_letters;
pub mod demo;
pub mod destination;
pub mod event;
pub mod key;
pub mod link;
pub mod listen;
pub mod login;
pub mod migrate;
mod named;
pub mod operations;
pub mod operator;
pub mod plan;
mod resend;
pub mod scheduler;
pub mod secret_key;
pub mod serve;
mod sure;
pub mod tenant;
pub mod tier;
pub mod top;
pub mod worker;
