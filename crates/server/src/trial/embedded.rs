//! A trial of `serve`, in this process, over one SQLite file that goes with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use engine::ingest::Ingest;
use engine::ports::DEFAULT_TENANT;
use engine::roles::Role;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{GRACE, Plan, Trial};
use crate::commands::serve;
use crate::config::THIS_HOST;
use crate::edge::Mint;
use crate::receiver;
use crate::role::{self, Ready, RoleConfig, Running};

/// How long the link to the dashboard opens it.
const DAY: Duration = Duration::from_secs(86_400);

/// Where it listens, on this machine.
pub struct Listeners {
    /// The API and the dashboard.
    pub dashboard: TcpListener,
    /// What is sent to.
    pub receivers: TcpListener,
}

/// Everything in this process.
pub struct Embedded {
    /// What is tried.
    pub trial: Trial,
    /// How events come in.
    pub ingest: Ingest,
    /// The SQLite file.
    pub file: PathBuf,
    /// Where the dashboard opens, with all rights, for a day.
    pub dashboard: String,
    folder: PathBuf,
    running: Running,
    shutdown: CancellationToken,
}

impl Embedded {
    /// Creates the destinations in a new file and starts `serve` over it, at ports that
    /// are free.
    pub async fn set_up(plans: Vec<Plan>) -> anyhow::Result<Self> {
        let listeners = Listeners {
            dashboard: receiver::listen().context("listen for the dashboard")?,
            receivers: receiver::listen().context("listen for the receivers")?,
        };
        Self::listening_at(listeners, plans).await
    }

    /// The same at ports that were chosen.
    pub async fn listening_at(listeners: Listeners, plans: Vec<Plan>) -> anyhow::Result<Self> {
        let Listeners {
            dashboard,
            receivers,
        } = listeners;
        let address = dashboard.local_addr();
        let address = address.context("read the listener's address")?;
        let mint = Mint::from_system()?;
        let folder = std::env::temp_dir().join(format!("paceline-trial-{}", mint.uuid()));
        std::fs::create_dir(&folder).context("make a folder for the trial")?;
        let file = folder.join("paceline.db");
        let config = config(&file, &mint.key().text)?;
        let ready = Ready::prepare(Role::Serve, config, |parts| parts).await?;
        let vault = ready.vault.clone().context("`serve` seals secrets")?;
        let trial = Trial::receiving_at(receivers, &ready.parts, vault.as_ref(), plans).await?;
        let shutdown = CancellationToken::new();
        let listeners = role::Listeners {
            main: dashboard,
            metrics: None,
        };
        let running = ready.start(listeners, shutdown.clone())?;
        let entrance = running
            .entrance
            .clone()
            .context("`serve` takes events in")?;
        let pages = running
            .pages
            .as_ref()
            .context("`serve` has the dashboard")?;
        let path = pages.full_link(DEFAULT_TENANT, DAY).await?;
        Ok(Self {
            trial,
            ingest: entrance.ingest,
            file,
            dashboard: format!("http://{address}{path}"),
            folder,
            running,
            shutdown,
        })
    }

    /// Stops every loop and removes the file.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        // Receivers that never answer may hold it for longer: what is left goes with it.
        self.running.ended().await?;
        drop(self.trial);
        std::fs::remove_dir_all(&self.folder).context("remove the trial's folder")
    }
}

/// What `serve` is started with: on this host alone, with a key that nobody is told,
/// whatever the environment says.
fn config(file: &Path, key: &SecretString) -> anyhow::Result<RoleConfig> {
    let (database, grace) = (format!("sqlite:{}", file.display()), format!("{GRACE:?}"));
    let flags = [
        ("--database-url", database.as_str()),
        ("--api-key", key.expose_secret()),
        ("--allow-http", "true"),
        ("--allow-networks", THIS_HOST),
        ("--shutdown-grace", &grace),
    ];
    let flags: Vec<&str> = flags
        .iter()
        .flat_map(|(flag, value)| [*flag, *value])
        .collect();
    Ok(serve::Args::of(&flags)?.into())
}
