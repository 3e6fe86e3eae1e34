//! The demo's two sizes.

use adapters::shell;
use anyhow::Context;

use super::ports::Ports;
use crate::trial::{Distributed, Embedded, Plan, Roles, Servers, Trial};

/// As promised in the help.
const ROLES: Roles = Roles {
    schedulers: 2,
    workers: 3,
};

/// A trial in one of the sizes.
pub(super) enum Stage {
    /// And why it is at another port than expected, if it is.
    Embedded(Box<Embedded>, Option<String>),
    Distributed(Box<Distributed>),
}

impl Stage {
    pub(super) async fn set_up(
        distributed: bool,
        ports: Ports,
        plans: Vec<Plan>,
    ) -> anyhow::Result<Self> {
        if !distributed {
            let listeners = ports.listen()?;
            let moved = ports.moved(&listeners);
            let embedded = Embedded::listening_at(listeners, plans).await?;
            return Ok(Self::Embedded(Box::new(embedded), moved));
        }
        let program = std::env::current_exe().context("find this program")?;
        let servers = Servers::from_environment()?;
        let distributed = Distributed::set_up(program, servers, ROLES, plans).await?;
        Ok(Self::Distributed(Box::new(distributed)))
    }

    pub(super) fn trial(&mut self) -> &mut Trial {
        match self {
            Self::Embedded(embedded, _) => &mut embedded.trial,
            Self::Distributed(distributed) => &mut distributed.trial,
        }
    }

    pub(super) async fn flood(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Embedded(embedded, _) => embedded.trial.flood(&embedded.ingest).await,
            Self::Distributed(distributed) => distributed.trial.flood(&distributed.ingest).await,
        }
    }

    /// Runs one SQL statement, as a user would in a shell.
    pub(super) async fn sql(&self, sql: &str) -> anyhow::Result<()> {
        match self {
            Self::Embedded(embedded, _) => shell::sqlite3(&embedded.file, sql)?,
            Self::Distributed(distributed) => {
                shell::psql(&distributed.shared.database_url, sql).await?;
            }
        }
        Ok(())
    }

    /// What it runs on, in words.
    pub(super) const fn parts(&self) -> &'static str {
        match self {
            Self::Embedded(..) => "one process, one SQLite file, nothing installed",
            Self::Distributed(_) => {
                "Postgres, Redis and RabbitMQ, 2 schedulers and 3 workers as processes"
            }
        }
    }

    /// Where the dashboard opens; `None` where `paceline api` would serve it.
    pub(super) fn dashboard(&self) -> Option<&str> {
        match self {
            Self::Embedded(embedded, _) => Some(&embedded.dashboard),
            Self::Distributed(_) => None,
        }
    }

    /// Why the dashboard is where nobody expects it, if it is.
    pub(super) fn moved(&self) -> Option<&str> {
        match self {
            Self::Embedded(_, moved) => moved.as_deref(),
            Self::Distributed(_) => None,
        }
    }

    /// Sees to it that there is something to deliver.
    pub(super) async fn refill(&self, seconds: u32) -> anyhow::Result<()> {
        match self {
            Self::Embedded(embedded, _) => embedded.trial.refill(&embedded.ingest, seconds).await,
            Self::Distributed(distributed) => {
                distributed.trial.refill(&distributed.ingest, seconds).await
            }
        }
    }

    /// Stops it and takes everything away.
    pub(super) async fn strike(self) -> anyhow::Result<()> {
        match self {
            Self::Embedded(embedded, _) => embedded.strike().await,
            Self::Distributed(distributed) => distributed.strike().await,
        }
    }
}
