//! The demo over Postgres, Redis and RabbitMQ, with schedulers and workers as
//! processes of their own, in a database, a prefix and a queue of its own.

use std::sync::Arc;
use std::time::Duration;

use adapters::shell;
use anyhow::Context;
use engine::ingest::{Ingest, IngestOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Stage;
use crate::edge::Mint;
use crate::trial::{Children, Plan, Roles, SharedParts, Trial};

/// As promised in the help.
const ROLES: Roles = Roles {
    schedulers: 2,
    workers: 3,
};

/// How long the workers may take to show themselves.
const PATIENCE: Duration = Duration::from_secs(30);

/// Processes, and the servers between them.
pub(super) struct Distributed {
    trial: Trial,
    shared: SharedParts,
    children: Children,
    ingest: Ingest,
    ingesting: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Distributed {
    pub(super) async fn set_up(plans: Vec<Plan>) -> anyhow::Result<Self> {
        let mint = Mint::from_system()?;
        let shared = SharedParts::make(&mint).await?;
        let parts = shared.connect().await?;
        let trial = Trial::set_up(
            Arc::clone(&parts.store),
            Arc::clone(&parts.catalog),
            plans,
        )
        .await?;
        let shutdown = CancellationToken::new();
        let (ingest, back) = Ingest::new(
            Arc::clone(&parts.store),
            Arc::clone(&parts.schedule),
            IngestOptions::default(),
        );
        let ingesting = tokio::spawn(back.run(shutdown.clone()));
        let program = std::env::current_exe().context("find this program")?;
        let mut children = Children::start(program, shared.environment(), ROLES)?;
        children
            .wait_for_workers(parts.store.as_ref(), PATIENCE)
            .await?;
        Ok(Self {
            trial,
            shared,
            children,
            ingest,
            ingesting,
            shutdown,
        })
    }
}

impl Stage for Distributed {
    fn trial(&mut self) -> &mut Trial {
        &mut self.trial
    }

    async fn flood(&mut self) -> anyhow::Result<()> {
        self.trial.flood(&self.ingest).await
    }

    async fn sql(&self, sql: &str) -> anyhow::Result<()> {
        Ok(shell::psql(&self.shared.database_url, sql).await?)
    }

    fn parts(&self) -> &'static str {
        "Postgres, Redis and RabbitMQ, 2 schedulers and 3 workers as processes"
    }

    async fn strike(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        let _ = self.ingesting.await;
        self.children.stop().await?;
        drop(self.trial);
        self.shared.remove().await
    }
}
