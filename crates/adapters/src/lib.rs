//! The engine's ports on real parts.
//!
//! | port | distributed | embedded |
//! |---|---|---|
//! | `Store`, `Catalog` | [`postgres`] | [`sqlite`] |
//! | `Schedule` | [`redis`] | [`in_process`] |
//! | `DeliveryQueue` | [`rabbitmq`] | [`in_process`] |
//! | `Sender` | [`http`] | [`http`] |
//!
//! Both columns pass the same contract suites (`engine::contract`).

pub mod http;
pub mod in_process;
pub mod postgres;
pub mod rabbitmq;
pub mod redis;
pub mod shell;
pub mod sqlite;
mod stored_policy;
