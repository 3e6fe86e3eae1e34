//! The ports: everything outside that the loops need.
//!
//! Four carry the path of an event ([`Store`], [`Schedule`],
//! [`DeliveryQueue`], [`Sender`]); [`Catalog`] is the same store as seen by
//! the people who own destinations and read ledgers, [`Backlog`] as seen by
//! those who look after what waits and what died there, [`Replays`] is what
//! brings dead letters back, [`Retain`] forgets what is over, [`Backpressure`] counts what waits for whoever
//! has to say no, [`Keys`] and [`Tenants`] are for authentication and
//! for who administers the installation, [`Outbox`] is where users write events
//! into it themselves, [`Operations`] and [`OperationsBook`] are where operators
//! learn what they must know, [`Notices`] and [`Post`] carry it to people, [`Survey`] is what metrics are sampled from, [`Tallies`] counts what came of requests, [`Overview`] and [`Sessions`] are the dashboard's, [`LimitGroups`] are limits that several destinations have together, [`EventTypes`] is the catalogue of the types that events have, and [`SecretStore`] as seen by those who sign;
//! [`Spans`] and [`TraceBook`] are for those who trace; a
//! [`Vault`] closes and opens what that keeps, a [`Granter`] asks for tokens and a [`TokenBook`] says where there are none. Each method is one
//! atomic business step over a batch, named for its caller. Its documentation
//! says the effect, what a retry does, and what a crash half-way leaves.
//!
//! *Redis decides when to look, Postgres decides what is allowed, RabbitMQ
//! carries revocable permits*: losing the schedule or the queue altogether
//! loses no event and breaks no limit.

mod alarm;
mod backlog;
mod backpressure;
mod catalog;
mod error;
mod event_types;
mod handshake;
mod health;
mod keys;
mod layer;
mod limit_groups;
mod limit_requests;
mod managers;
mod notices;
mod operations;
mod outbox;
mod overview;
mod queue;
mod replays;
mod retain;
mod schedule;
mod secrets;
mod sender;
mod sessions;
mod smart;
mod spans;
mod store;
mod survey;
mod tallies;
mod tenants;
mod tokens;
mod vault;
mod wakes;
pub mod wanted;

pub use alarm::*;
pub use backlog::*;
pub use backpressure::*;
pub use catalog::*;
pub use error::*;
pub use event_types::*;
pub use handshake::*;
pub use health::*;
pub use keys::*;
pub use layer::StoreLayer;
pub use limit_groups::*;
pub use limit_requests::*;
pub use managers::*;
pub use notices::*;
pub use operations::*;
pub use outbox::*;
pub use overview::*;
pub use queue::*;
pub use replays::*;
pub use retain::*;
pub use schedule::*;
pub use secrets::*;
pub use sender::*;
pub use sessions::*;
pub use smart::*;
pub use spans::*;
pub use store::*;
pub use survey::*;
pub use tallies::*;
pub use tenants::*;
pub use tokens::*;
pub use vault::*;
pub use wakes::*;
