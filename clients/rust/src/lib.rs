#![doc = include_str!("../README.md")]

pub mod webhook;

#[cfg(feature = "client")]
pub mod api;
#[cfg(feature = "client")]
mod call;
#[cfg(feature = "client")]
mod change;
#[cfg(feature = "client")]
mod client;

#[cfg(feature = "client")]
pub use change::Change;
#[cfg(feature = "client")]
pub use client::{Client, Error};
pub use webhook::Webhook;
