//! What a process listens on.

use anyhow::Context;
use tokio::net::TcpListener;

use crate::config::ListenConfig;

/// The addresses of a process, bound.
pub struct Listeners {
    /// The API, or what a role without it answers.
    pub main: TcpListener,
    /// Metrics, where they are not to be had on the first one.
    pub metrics: Option<TcpListener>,
}

/// Where `/metrics` is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricsAt {
    /// Beside all else.
    Main,
    /// At an address of its own.
    Apart,
}

impl Listeners {
    /// Listens where the configuration says.
    pub async fn bind(config: &ListenConfig) -> anyhow::Result<Self> {
        let bind = async |address, variable| {
            let bound = TcpListener::bind(address).await;
            bound.with_context(|| format!("listen on {address} ({variable})"))
        };
        Ok(Self {
            main: bind(config.listen, "PACELINE_LISTEN").await?,
            metrics: match config.metrics_listen {
                Some(address) => Some(bind(address, "PACELINE_METRICS_LISTEN").await?),
                None => None,
            },
        })
    }
}
