//! A trial over Postgres, Redis and RabbitMQ, with schedulers and workers as
//! processes of their own. This process has the loops of an `api`, but the
//! one that counts backlogs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::ingest::Ingest;
use engine::ports::Vault;
use engine::roles::{self, Loop, Role, Settings};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Children, Plan, Roles, Servers, SharedParts, Trial};
use crate::edge::Mint;

/// How long the workers may take to show themselves.
const PATIENCE: Duration = Duration::from_secs(60);

/// Processes, and the servers between them.
pub struct Distributed {
    /// What is tried.
    pub trial: Trial,
    /// How events come in: by this process.
    pub ingest: Ingest,
    /// The servers, and what on them is ours.
    pub shared: SharedParts,
    /// The roles' processes.
    pub children: Children,
    loops: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Distributed {
    /// Creates the destinations in a new database and starts the roles.
    pub async fn set_up(
        program: PathBuf,
        servers: Servers,
        roles: Roles,
        plans: Vec<Plan>,
    ) -> anyhow::Result<Self> {
        let mint = Mint::from_system()?;
        let shared = SharedParts::make(servers, &mint).await?;
        let parts = shared.connect().await?;
        let vault: Arc<dyn Vault> = Arc::new(shared.vault()?);
        let trial = Trial::set_up(&parts, vault.as_ref(), plans).await?;
        let (shutdown, mut loops) = (CancellationToken::new(), JoinSet::new());
        let settings = Settings {
            sealing: StdRng::from_seed(mint.bytes()),
            ..Settings::of(Role::Api, 0)
        };
        let assembly = roles::assemble(Role::Api, &parts.engine(Some(vault)), settings);
        // It refuses nothing, and would count for an API beside it, by other bounds than that.
        let counts = |one: &Loop| matches!(one, Loop::Backpressure(_));
        for one in assembly.loops.into_iter().filter(|one| !counts(one)) {
            loops.spawn(one.run(shutdown.clone()));
        }
        let entrance = assembly.entrance.context("an `api` takes events in")?;
        let mut children = Children::start(program, shared.environment(), roles)?;
        children
            .wait_for_workers(parts.store.as_ref(), PATIENCE)
            .await?;
        Ok(Self {
            trial,
            ingest: entrance.ingest,
            shared,
            children,
            loops,
            shutdown,
        })
    }

    /// Stops the processes and takes the database, prefix and queue away.
    pub async fn strike(mut self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        while let Some(ended) = self.loops.join_next().await {
            ended.context("a loop of the trial broke")?;
        }
        self.children.stop().await?;
        drop(self.trial);
        self.shared.remove().await
    }
}
