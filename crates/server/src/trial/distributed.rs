//! A trial over Postgres, Redis and RabbitMQ, with schedulers and workers as
//! processes of their own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use engine::ingest::{Ingest, IngestOptions};
use tokio::task::JoinHandle;
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
    ingesting: JoinHandle<()>,
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
        let trial = Trial::set_up(&parts, &shared.vault()?, plans).await?;
        let shutdown = CancellationToken::new();
        let (ingest, back) = Ingest::new(
            Arc::clone(&parts.store),
            Arc::clone(&parts.schedule),
            IngestOptions::default(),
        );
        let ingesting = tokio::spawn(back.run(shutdown.clone()));
        let mut children = Children::start(program, shared.environment(), roles)?;
        children
            .wait_for_workers(parts.store.as_ref(), PATIENCE)
            .await?;
        Ok(Self {
            trial,
            ingest,
            shared,
            children,
            ingesting,
            shutdown,
        })
    }

    /// Stops the processes and takes the database, prefix and queue away.
    pub async fn strike(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.ingesting.await.context("ingest")?;
        self.children.stop().await?;
        drop(self.trial);
        self.shared.remove().await
    }
}
