//! Servers of a run's own, which it may kill: started by `scripts/servers`
//! in a temporary folder.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use server::trial::Servers;
use tokio::process::Command;

/// Running servers. They are gone after [`PrivateServers::remove`]; a folder
/// that is dropped without it is left to the system's cleaning.
pub(crate) struct PrivateServers {
    folder: tempfile::TempDir,
}

impl PrivateServers {
    /// Starts all three.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_these(&[]).await
    }

    /// Starts these alone, such as `redis`; all three if none is named.
    pub(crate) async fn start_these(names: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for the servers")?;
        let private = Self { folder };
        if let Err(error) = private.script("start", names).await {
            private.script("remove", &[]).await.ok();
            return Err(error);
        }
        Ok(private)
    }

    /// Their URLs.
    pub(crate) fn servers(&self) -> anyhow::Result<Servers> {
        Ok(Servers {
            database: self.url("postgres")?,
            schedule: self.url("redis")?,
            queue: self.url("rabbitmq")?,
        })
    }

    /// `kill -9`.
    pub(crate) async fn kill(&self, name: &str) -> anyhow::Result<()> {
        self.script("kill", &[name]).await
    }

    /// Starts a killed one again, on the same port.
    pub(crate) async fn start_again(&self, name: &str) -> anyhow::Result<()> {
        self.script("start", &[name]).await
    }

    /// Stops one in order and starts it again.
    pub(crate) async fn restart(&self, name: &str) -> anyhow::Result<()> {
        self.script("stop", &[name]).await?;
        self.start_again(name).await
    }

    /// Stops all and takes them away.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        self.script("remove", &[]).await
    }

    /// The URL of one.
    pub(crate) fn url(&self, name: &str) -> anyhow::Result<String> {
        let variable = match name {
            "postgres" => "DATABASE_URL=",
            "postgres-superuser" => "POSTGRES_SUPERUSER_URL=",
            "redis" => "REDIS_URL=",
            _ => "AMQP_URL=",
        };
        let server = name.split('-').next().unwrap_or(name);
        let file = self.folder.path().join(format!("servers/{server}.env"));
        let text = std::fs::read_to_string(file).with_context(|| format!("read {server}.env"))?;
        let url = text.lines().find_map(|line| line.strip_prefix(variable));
        Ok(url
            .with_context(|| format!("{name} has no URL"))?
            .to_owned())
    }

    /// Where one listens.
    pub(crate) fn address(&self, name: &str) -> anyhow::Result<SocketAddr> {
        let url = self.url(name)?;
        let after_host = url.rsplit(':').next().context("a URL has no port")?;
        let digits: String = after_host
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        Ok(SocketAddr::from((
            [127, 0, 0, 1],
            digits.parse().context("a URL has no port")?,
        )))
    }

    async fn script(&self, verb: &str, names: &[&str]) -> anyhow::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/servers");
        let output = Command::new(script)
            .arg(verb)
            // The script wants a folder that is new.
            .arg(self.folder.path().join("servers"))
            .args(names)
            .output()
            .await
            .context("run scripts/servers")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "scripts/servers {verb} {names:?}: {said}"
        );
        Ok(())
    }
}
