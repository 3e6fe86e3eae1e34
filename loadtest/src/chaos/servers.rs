//! Servers of the run's own: Postgres on a small disk and with a clock that
//! can be set, Redis, RabbitMQ. Started by the project's `scripts/servers` in
//! a temporary folder, and taken away with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use sqlx::Connection;
use tokio::process::Command;
use url::Url;

use super::abilities::{Abilities, owner, run};
use super::fault::Server;

/// The disk of Postgres: memory, and only as much of it as is used.
const DISK: &str = "size=8g";

/// What a full disk still has: less than a table grows by at once.
const SPARE_BYTES: u64 = 64 * 1024;

/// How often filling the disk is tried.
const FILLINGS: usize = 10;

/// Patience with a server that is on its way back.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running servers.
pub(crate) struct PrivateServers {
    folder: PathBuf,
    abilities: Abilities,
}

impl PrivateServers {
    /// Starts them all in `folder`, which is made.
    pub(crate) async fn start(folder: PathBuf, abilities: Abilities) -> anyhow::Result<Self> {
        let servers = Self { folder, abilities };
        servers.script("start", &["redis", "rabbitmq"]).await?;
        servers.make_disk().await?;
        if servers.abilities.faketime.is_some() {
            servers.set_clock(0)?;
        }
        servers.restart(Server::Postgres).await?;
        let superuser = servers.value(Server::Postgres, "POSTGRES_SUPERUSER_URL")?;
        let small = "alter system set max_wal_size = '1GB'";
        adapters::shell::psql(&superuser, small)
            .await
            .map_err(anyhow::Error::msg)?;
        Ok(servers)
    }

    /// Where it listens.
    pub(crate) fn address(&self, server: Server) -> anyhow::Result<SocketAddr> {
        let url = Url::parse(&self.url(server)?).context("a server's URL")?;
        let port = url.port().context("a server's URL has no port")?;
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Its URL, without a proxy.
    pub(crate) fn url(&self, server: Server) -> anyhow::Result<String> {
        let name = match server {
            Server::Postgres => "DATABASE_URL",
            Server::Redis => "REDIS_URL",
            Server::Rabbitmq => "AMQP_URL",
        };
        self.value(server, name)
    }

    /// `kill -9`, to it and its children.
    pub(crate) async fn kill(&self, server: Server) -> anyhow::Result<()> {
        self.script("kill", &[server.as_str()]).await
    }

    /// Starts it, unless it runs, and waits until it answers.
    pub(crate) async fn restart(&self, server: Server) -> anyhow::Result<()> {
        self.script("start", &[server.as_str()]).await
    }

    /// Statements from a shell of our own, again until Postgres answers.
    pub(crate) async fn sql(&self, sql: &str) -> anyhow::Result<()> {
        let url = self.at_home()?;
        let done = async {
            loop {
                match adapters::shell::psql(&url, sql).await {
                    Ok(()) => return,
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                }
            }
        };
        (tokio::time::timeout(PATIENCE, done).await)
            .with_context(|| format!("Postgres does not do: {sql}"))
    }

    /// Postgres, and the schema of Paceline's tables: its triggers read ours.
    fn at_home(&self) -> anyhow::Result<String> {
        let url = self.url(Server::Postgres)?;
        Ok(format!("{url}?options=-csearch_path%3Dpublic"))
    }

    /// A connection to Postgres, past all proxies.
    pub(crate) async fn connect(&self) -> anyhow::Result<sqlx::PgConnection> {
        let url = self.at_home()?;
        sqlx::PgConnection::connect(&url)
            .await
            .context("connect to Postgres")
    }

    /// Sets the clock of Postgres this many milliseconds ahead of the
    /// machine's; behind it, if negative. Every reading of it asks anew.
    pub(crate) fn set_clock(&self, ahead_ms: i64) -> anyhow::Result<()> {
        let new = self.folder.join("clock.new");
        let sign = if ahead_ms < 0 { '-' } else { '+' };
        let (seconds, millis) = (ahead_ms.abs() / 1_000, ahead_ms.abs() % 1_000);
        std::fs::write(&new, format!("{sign}{seconds}.{millis:03}\n"))?;
        std::fs::rename(new, self.clock()).context("set the clock of Postgres")
    }

    fn clock(&self) -> PathBuf {
        self.folder.join("clock")
    }

    async fn make_disk(&self) -> anyhow::Result<()> {
        let Some(words) = &self.abilities.mount else {
            return Ok(());
        };
        let disk = self.disk();
        tokio::fs::create_dir(&disk)
            .await
            .context("make a folder for Postgres")?;
        let (uid, gid) = owner().await?;
        let options = format!("{DISK},mode=0700,uid={uid},gid={gid}");
        let disk = disk.to_string_lossy();
        run(
            words,
            &[
                "mount",
                "-t",
                "tmpfs",
                "-o",
                &options,
                "paceline-chaos",
                &disk,
            ],
        )
        .await
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    /// Leaves the disk of Postgres without room for another page.
    pub(crate) async fn fill_disk(&self) -> anyhow::Result<()> {
        let mut filled = Ok(());
        // It may grow between the look and the new size, which is then refused.
        for _ in 0..FILLINGS {
            let disk = rustix::fs::statvfs(self.disk()).context("look at the disk")?;
            let used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize;
            filled = self
                .resize_disk(&format!("size={}", used + SPARE_BYTES))
                .await;
            if filled.is_ok() {
                break;
            }
        }
        filled
    }

    /// Makes room again, and starts a Postgres that could not go on.
    pub(crate) async fn free_disk(&self) -> anyhow::Result<()> {
        self.resize_disk(DISK).await?;
        self.restart(Server::Postgres).await
    }

    async fn resize_disk(&self, size: &str) -> anyhow::Result<()> {
        let words = self
            .abilities
            .mount
            .as_ref()
            .context("no disk of its own")?;
        let options = format!("remount,{size}");
        let disk = self.disk();
        run(words, &["mount", "-o", &options, &disk.to_string_lossy()]).await
    }

    /// Starts or ends a memory alarm of the broker.
    pub(crate) async fn set_memory_alarm(&self, on: bool) -> anyhow::Result<()> {
        let share = if on { "0.0000001" } else { "0.4" };
        // Debian's one on the path changes to a user that cannot read our
        // folder.
        let plain = Path::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
        let program = if plain.exists() {
            plain
        } else {
            Path::new("rabbitmqctl")
        };
        let done = Command::new(program)
            .args(["set_vm_memory_high_watermark", share])
            .env("HOME", self.folder.join("rabbitmq"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env(
                "RABBITMQ_NODENAME",
                self.value(Server::Rabbitmq, "RABBITMQ_NODENAME")?,
            )
            .env(
                "ERL_EPMD_PORT",
                self.value(Server::Rabbitmq, "ERL_EPMD_PORT")?,
            )
            .kill_on_drop(true)
            .output()
            .await
            .context("run rabbitmqctl")?;
        ensure!(done.status.success(), "rabbitmqctl: {done:?}");
        Ok(())
    }

    /// Stops everything and deletes the folder; all that can be done is done.
    pub(crate) async fn remove(&self) -> anyhow::Result<()> {
        let stopped = self.script("stop", &["postgres"]).await;
        let unmounted = match &self.abilities.mount {
            Some(words) if self.disk().exists() => {
                run(words, &["umount", &self.disk().to_string_lossy()]).await
            }
            _ => Ok(()),
        };
        let removed = self.script("remove", &[]).await;
        stopped.and(unmounted).and(removed)
    }

    async fn script(&self, verb: &str, names: &[&str]) -> anyhow::Result<()> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/servers");
        let mut command = Command::new(script);
        command.arg(verb).arg(&self.folder).args(names);
        if let (Some(faketime), ["postgres"], "start") = (&self.abilities.faketime, names, verb) {
            command
                .env("LD_PRELOAD", faketime)
                .env("FAKETIME_TIMESTAMP_FILE", self.clock())
                // Two sessions must never see two clocks.
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped());
        let child = command.spawn().context("run scripts/servers")?;
        let id = child.id();
        let done = child
            .wait_with_output()
            .await
            .context("run scripts/servers")?;
        // libfaketime leaves them behind.
        for kind in ["faketime_shm", "sem.faketime_sem"] {
            let left = id.map(|id| format!("/dev/shm/{kind}_{id}"));
            let _ = left.map(std::fs::remove_file);
        }
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "scripts/servers {verb} {names:?}: {said}"
        );
        Ok(())
    }

    fn value(&self, server: Server, name: &str) -> anyhow::Result<String> {
        let file = self.folder.join(format!("{}.env", server.as_str()));
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let mut pairs = text.lines().filter_map(|line| line.split_once('='));
        let found = pairs.find(|(key, _)| *key == name);
        Ok(found
            .with_context(|| format!("{name} is not in {}", file.display()))?
            .1
            .to_owned())
    }
}
