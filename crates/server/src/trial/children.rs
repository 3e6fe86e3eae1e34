//! The roles of a distributed trial, as processes of their own.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use engine::ports::Store;
use rustix::process::{Pid, Signal};
use tokio::process;

/// How long a role gets to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// How many of each role.
#[derive(Debug, Clone, Copy)]
pub struct Roles {
    /// Schedulers.
    pub schedulers: usize,
    /// Workers.
    pub workers: usize,
}

/// One process.
pub struct Child {
    /// `api`, `scheduler` or `worker`.
    pub role: &'static str,
    process: process::Child,
}

/// The processes of one trial. Dropping them kills them.
pub struct Children {
    program: PathBuf,
    environment: Vec<(String, String)>,
    /// Those that run.
    pub all: Vec<Child>,
}

impl Children {
    /// Starts schedulers and workers of `program` with this environment.
    pub fn start(
        program: PathBuf,
        environment: Vec<(String, String)>,
        roles: Roles,
    ) -> anyhow::Result<Self> {
        let mut children = Self {
            program,
            environment,
            all: Vec::new(),
        };
        for _ in 0..roles.schedulers {
            children.add("scheduler")?;
        }
        for _ in 0..roles.workers {
            children.add("worker")?;
        }
        Ok(children)
    }

    /// Waits until every worker has shown itself to the store.
    pub async fn wait_for_workers(
        &mut self,
        store: &dyn Store,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let workers = self
            .all
            .iter()
            .filter(|child| child.role == "worker")
            .count();
        let all_there = async {
            loop {
                let there = store.fleet().await?.workers as usize;
                if there >= workers {
                    return Ok(());
                }
                for child in &mut self.all {
                    let ended = child.ended()?;
                    ensure!(ended.is_none(), "a {} ended by itself", child.role);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(patience, all_there)
            .await
            .context("the workers did not show themselves in time")?
    }

    /// Starts one more.
    pub fn add(&mut self, role: &'static str) -> anyhow::Result<()> {
        let mut command = process::Command::new(&self.program);
        command
            .arg(role)
            .envs(self.environment.iter().cloned())
            .env("PACELINE_LISTEN", "127.0.0.1:0");
        self.all.push(Child::spawn(role, command)?);
        Ok(())
    }

    /// Kills the first process of this role, without warning, and waits for
    /// its end. Returns whether there was one.
    pub async fn kill(&mut self, role: &str) -> anyhow::Result<bool> {
        let Some(index) = self.all.iter().position(|child| child.role == role) else {
            return Ok(false);
        };
        self.all.remove(index).kill().await?;
        Ok(true)
    }

    /// Asks all of them to end, and waits.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for child in &self.all {
            child.signal(Signal::TERM)?;
        }
        for child in &mut self.all {
            if tokio::time::timeout(GRACE, child.process.wait())
                .await
                .is_err()
            {
                child.kill().await?;
            }
        }
        Ok(())
    }
}

impl Child {
    /// Starts it, without input and output; it is killed when it is dropped.
    pub fn spawn(role: &'static str, mut command: process::Command) -> anyhow::Result<Self> {
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start a {role}"))?;
        Ok(Self { role, process })
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.process.try_wait().context("look after a child")
    }

    /// Waits until it has ended by itself.
    pub async fn end(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.wait().await.context("wait for a child")
    }

    /// Kills it without warning, and waits for its end.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.kill().await.context("kill a child")
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(Pid::from_raw) {
            rustix::process::kill_process(pid, signal)
                .with_context(|| format!("send {signal:?} to {}", self.role))?;
        }
        Ok(())
    }
}
