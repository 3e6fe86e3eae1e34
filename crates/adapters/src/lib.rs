//! The engine's ports on real parts.
//!
//! | port | distributed | embedded |
//! |---|---|---|
//! | `Store`, `Catalog`, `SecretStore` | [`postgres`] | [`sqlite`] |
//! | `Schedule` | [`redis`] | [`in_process`] |
//! | `DeliveryQueue` | [`rabbitmq`], several as one by [`queue_shards`] | [`in_process`] |
//! | `Sender` | [`http`] | [`http`] |
//! | `Vault` | [`key_ring`] | [`key_ring`] |
//! | `Post` | [`post`] | [`post`] |
//! | `Spans` | [`otlp`] | [`otlp`] |
//!
//! Both columns pass the same contract suites (`proof/contract`).

pub mod http;
pub mod in_process;
pub mod key_ring;
mod lost;
pub mod otlp;
pub mod post;
pub mod postgres;
pub mod queue_shards;
pub mod rabbitmq;
pub mod redis;
#[doc(hidden)]
pub mod row;
pub mod shell;
mod smart_memory;
pub mod sqlite;
mod stored_policy;
mod subscriber;
pub mod unsent;
