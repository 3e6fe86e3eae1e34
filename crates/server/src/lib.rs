//! Roles, configuration, API, dashboard and command line of Paceline.
//!
//! A stranger starts at [`role`]: a process of one of [`engine::roles`]. [`parts`]
//! turns URLs into the engine's ports; nothing else here names an adapter.
//! [`service`] validates and calls the catalog; the HTTP API ([`api`]) and,
//! later, the operator are thin layers over it. The command line talks to the
//! API like any other client, except for `migrate` and `audit`, which read the
//! store. Before several installations stands [`router`].

pub mod access;
pub mod api;
pub mod api_key;
pub mod audit;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod edge;
pub mod exported;
pub mod front;
pub mod health;
pub mod hidden;
pub mod listening;
pub mod logging;
pub mod managed;
pub mod open_files;
pub mod output;
pub mod pages;
pub mod parts;
pub mod portal;
pub mod profile;
pub mod progress;
pub mod receiver;
mod request_id;
pub mod role;
pub mod router;
pub mod secret_keys;
pub mod service;
pub mod signals;
pub mod traces;
pub mod trial;
mod welcome;
pub mod work;
