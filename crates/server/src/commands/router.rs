//! `paceline router`: stands before several shards, and passes each request on to the one
//! whose it is.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use engine::roles::Role;
use tokio_util::sync::CancellationToken;

use crate::config::{ConfigError, ListenConfig, RouterConfig, ShutdownConfig, TlsConfig};
use crate::edge::Mint;
use crate::listening::{Listening, Tls};
use crate::role::{Listeners, Loops};
use crate::router::Routing;
use crate::{exported, health, signals};

/// Between two looks at what metrics hold.
const UPKEEP: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub router: RouterConfig,
    #[command(flatten)]
    pub listen: ListenConfig,
    #[command(flatten)]
    pub tls: TlsConfig,
    #[command(flatten)]
    pub shutdown: ShutdownConfig,
}

/// Runs the role until it is told to stop.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = args.router.api_key.as_ref().ok_or_else(|| {
        let problem = "set the one that every shard's API is started with";
        ConfigError::flag("api-key", problem)
    })?;
    let routing = Routing::new(&args.router, key, Mint::from_system()?)?;
    let tls = Tls::load(&args.tls)?;
    let metrics = health::install_metrics()?;
    exported::describe(Role::Router);
    let (version, role) = (env!("CARGO_PKG_VERSION"), Role::Router.as_str());
    metrics::gauge!("paceline_build_info", "version" => version, "role" => role).set(1);
    let listeners = Listeners::bind(&args.listen).await?;
    let address = (listeners.main.local_addr()).context("read the listener's address")?;
    signals::until_stopped(|shutdown| async move {
        let mut loops = Loops::new();
        let mut router = routing.router().merge(routing.probes(shutdown.clone()));
        let of_metrics = health::rendered(metrics.clone());
        match listeners.metrics {
            Some(listener) => {
                let apart = Listening {
                    listener,
                    router: of_metrics.merge(routing.probes(shutdown.clone())),
                    bounds: args.listen.bounds(),
                    tls: None,
                };
                loops.spawn("probes", apart.serve(shutdown.clone()));
            }
            None => router = router.merge(of_metrics),
        }
        let listening = Listening {
            listener: listeners.main,
            router,
            bounds: args.listen.bounds(),
            tls: tls.as_ref().map(Tls::acceptor),
        };
        if let Some(tls) = tls {
            loops.spawn("certificate", tls.renew(shutdown.clone()));
        }
        loops.spawn("router", listening.serve(shutdown.clone()));
        loops.spawn("shards", routing.watch(shutdown.clone()));
        loops.spawn("metrics", upkeep(metrics, shutdown.clone()));
        tracing::info!(role, %address, "started");
        loops.join(&shutdown, args.shutdown.shutdown_grace).await
    })
    .await
}

/// Keeps the histograms' memory bounded where nobody scrapes.
async fn upkeep(
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(UPKEEP) => metrics.run_upkeep(),
        }
    }
}
