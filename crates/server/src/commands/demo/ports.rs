//! Where the demo listens, all of it on this machine.

use std::io::ErrorKind;

use anyhow::Context;
use tokio::net::TcpListener;

use crate::config::ConfigError;
use crate::receiver::listen_at;
use crate::trial::Listeners;

/// Where the dashboard is if nothing is said: beside the 8080 of `serve`.
pub(super) const USUAL_PORT: u16 = 8_090;

/// How many ports are tried from there on; then any that is free will do.
const TRIED: u16 = 10;

/// Which ports it listens on.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct Ports {
    /// The port of the dashboard and the API; without it 8090, or the next that is free.
    #[arg(long, value_name = "PORT", conflicts_with = "distributed")]
    port: Option<u16>,

    /// The port of the receivers; without it any that is free.
    #[arg(long, value_name = "PORT", conflicts_with = "distributed")]
    receiver_port: Option<u16>,
}

impl Ports {
    /// Listens there. What was chosen by hand is taken, or refused if it is in use.
    pub(super) fn listen(self) -> anyhow::Result<Listeners> {
        // What was chosen first: the other must not take it.
        let receivers = chosen("receiver-port", self.receiver_port.unwrap_or(0))?;
        let dashboard = match self.port {
            Some(port) => chosen("port", port)?,
            None => next_free()?,
        };
        Ok(Listeners {
            dashboard,
            receivers,
        })
    }

    /// Whether the dashboard is where nobody expects it, and why.
    pub(super) fn moved(self, listeners: &Listeners) -> Option<String> {
        let port = listeners.dashboard.local_addr().ok()?.port();
        let is_moved = self.port.is_none() && port != USUAL_PORT;
        is_moved.then(|| format!("Port {USUAL_PORT} is in use: the dashboard is at {port}."))
    }
}

fn chosen(flag: &str, port: u16) -> anyhow::Result<TcpListener> {
    listen_at(port).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => ConfigError {
            name: format!("--{flag}"),
            problem: format!("port {port} is in use: name another, or leave it out"),
        }
        .into(),
        _ => anyhow::Error::new(error).context(format!("--{flag}: listen on 127.0.0.1:{port}")),
    })
}

fn next_free() -> anyhow::Result<TcpListener> {
    let first = (USUAL_PORT..USUAL_PORT + TRIED).find_map(|port| listen_at(port).ok());
    match first {
        Some(listener) => Ok(listener),
        None => listen_at(0).context("listen for the dashboard"),
    }
}
