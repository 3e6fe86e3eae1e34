//! The way to the cluster.

use std::path::PathBuf;

use anyhow::Context;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

/// Which cluster, and where in it.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Access {
    /// How to reach the cluster; by default what kubectl uses.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A context of it; by default the current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Where Paceline is.
    #[arg(long, value_name = "NAME", default_value = "paceline")]
    pub(super) namespace: String,
}

/// A namespace of a cluster.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
}

impl Access {
    /// Reads the kubeconfig; dials nothing yet.
    pub(super) async fn connect(&self) -> anyhow::Result<Cluster> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path);
                let read = read.with_context(|| format!("read {}", path.display()))?;
                Config::from_custom_kubeconfig(read, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        };
        let mut config = config.context("find the cluster in the kubeconfig")?;
        // The usual client tries again, unseen, what is answered with 429, 503 or
        // 504, for minutes: an eviction that a disruption budget refuses would look
        // like one that took its time.
        config.default_retry = false;
        Ok(Cluster {
            client: Client::try_from(config).context("make a client of the cluster")?,
            namespace: self.namespace.clone(),
        })
    }
}
