//! The Paceline that is tried: one that runs already, or one that is started
//! here and taken away afterwards.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::Signal;
use server::config::{SecretUrl, StoreConfig};
use server::edge::Mint;
use server::hidden::Hidden;
use server::parts::Stored;
use server::trial::{Child, Servers, SharedParts};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};
use url::Url;
use zeroize::Zeroizing;

use super::places::{embedded_environment, server_at, servers, store};
use super::processes::{Watched, listener};
use super::settings::Size;
use crate::api::KEY;
use crate::figures::free_address;
use crate::servers::PrivateServers;

/// How long the workers may take to show themselves.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a role gets to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// Where roles listen that nobody speaks to.
pub(crate) const ANY_ADDRESS: &str = "127.0.0.1:0";

/// How many of each role are started.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Roles {
    /// API processes of a distributed Paceline; connections go to each in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) apis: u32,
    /// Scheduler processes of a distributed Paceline.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) schedulers: u32,
    /// Worker processes of a distributed Paceline.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) workers: u32,
}

/// A Paceline that runs already.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Running {
    /// Try a Paceline that runs already, at this URL; it has to be allowed to
    /// send to this host (`--allow-http --allow-networks localhost:*`).
    #[arg(long, value_name = "URL", requires = "api_key")]
    pub(crate) url: Option<Url>,
    /// An administrator's key of it.
    #[arg(
        long,
        value_name = "KEY",
        env = "PACELINE_API_KEY",
        hide_env_values = true
    )]
    #[arg(value_parser = hidden)]
    pub(crate) api_key: Option<Hidden>,
    /// Its database, to judge the ledger and count statements.
    #[arg(long, value_name = "URL", requires = "url")]
    pub(crate) ledger_url: Option<SecretUrl>,
    /// A process of it on this machine, to measure what it costs.
    #[arg(long, value_name = "NAME=PID", requires = "url", value_parser = watched)]
    pub(crate) watch: Vec<Watched>,
}

fn hidden(text: &str) -> Result<Hidden, Infallible> {
    Ok(Hidden::new(Zeroizing::new(text.to_owned())))
}

fn watched(text: &str) -> Result<Watched, String> {
    let parsed = text.split_once('=');
    let parsed = parsed.and_then(|(name, number)| Some((name, number.parse().ok()?)));
    let (name, number) = parsed.ok_or(format!("{text}: expected worker=1234"))?;
    Ok(Watched::tree(name, number))
}

/// What is tried.
pub(crate) struct System {
    /// Where events are handed in, such as `127.0.0.1:8080`, in turn.
    pub(crate) addresses: Vec<String>,
    /// An administrator's key.
    pub(crate) key: String,
    /// What is known to run, but for what `/proc` does not show.
    pub(crate) watched: Vec<Watched>,
    /// The database, if it is known.
    pub(crate) store: Option<StoreConfig>,
    started: Option<Started>,
}

/// Environment variables of whatever has the API.
pub(crate) type Settings = &'static [(&'static str, &'static str)];

/// What is started.
pub(crate) struct Start {
    pub(crate) size: Size,
    /// `paceline`.
    pub(crate) program: PathBuf,
    pub(crate) roles: Roles,
    /// Environment variables of whatever has the API.
    pub(crate) set: Settings,
    /// Servers that stay; `None` is those of tests, or private ones.
    pub(crate) servers: Option<Servers>,
    /// More environment variables, of every role.
    pub(crate) environment: Vec<(String, String)>,
}

impl Start {
    /// On servers of tests, or private ones.
    pub(crate) fn new(size: Size, program: PathBuf, roles: Roles, set: Settings) -> Self {
        Self {
            size,
            program,
            roles,
            set,
            servers: None,
            environment: Vec::new(),
        }
    }
}

/// What has to be taken away again.
struct Started {
    program: PathBuf,
    environment: Vec<(String, String)>,
    set: Settings,
    children: Vec<Child>,
    place: Place,
}

enum Place {
    Embedded(tempfile::TempDir),
    Distributed {
        shared: SharedParts,
        servers: Option<PrivateServers>,
    },
}

impl System {
    /// One that runs already.
    pub(crate) fn running(running: &Running, url: &Url) -> anyhow::Result<Self> {
        ensure!(url.scheme() == "http", "--url must begin with http://");
        let host = url.host_str().context("--url has no host")?;
        let port = url.port_or_known_default().context("--url has no port")?;
        let key = running.api_key.as_ref().context("--api-key is missing")?;
        let store = running.ledger_url.clone().map(store);
        let mut watched = running.watch.clone();
        if watched.is_empty() {
            let process = listener(port);
            watched.extend(process.map(|process| Watched::tree("paceline", process)));
        }
        let database = running.ledger_url.as_ref().map(SecretUrl::expose);
        watched.extend(database.and_then(|url| server_at("postgres", url)));
        Ok(Self {
            addresses: vec![format!("{host}:{port}")],
            key: key.expose().to_owned(),
            watched,
            store,
            started: None,
        })
    }

    /// Starts one.
    pub(crate) async fn start(start: Start) -> anyhow::Result<Self> {
        match start.size {
            Size::Embedded => Self::embedded(start),
            Size::Distributed => Self::distributed(start).await,
        }
    }

    fn embedded(start: Start) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for the database")?;
        let url = format!("sqlite:{}", folder.path().join("paceline.db").display());
        let mut environment = embedded_environment(&url)?;
        environment.extend(start.environment);
        let started = Started {
            program: start.program,
            environment,
            set: start.set,
            children: Vec::new(),
            place: Place::Embedded(folder),
        };
        let mut system = Self::around(started, store(url.parse()?))?;
        system.add_api("serve")?;
        Ok(system)
    }

    async fn distributed(start: Start) -> anyhow::Result<Self> {
        let (servers, private) = match start.servers {
            Some(servers) => (servers, None),
            None => servers().await?,
        };
        let urls = [
            ("postgres", servers.database.clone()),
            ("redis", servers.schedule.clone()),
            ("rabbitmq", servers.queue.clone()),
        ];
        let shared = match SharedParts::make(servers, &Mint::from_system()?).await {
            Ok(shared) => shared,
            Err(error) => {
                if let Some(private) = private {
                    private.remove().await?;
                }
                return Err(error);
            }
        };
        let store = store(shared.database_url.parse()?);
        let place = Place::Distributed {
            servers: private,
            shared: shared.clone(),
        };
        let mut environment = shared.environment();
        environment.extend(start.environment);
        let started = Started {
            program: start.program,
            environment,
            set: start.set,
            children: Vec::new(),
            place,
        };
        let mut system = Self::around(started, store.clone())?;
        let found = urls.iter().filter_map(|(name, url)| server_at(name, url));
        system.watched.extend(found);
        let begun = system.begin(&store, start.roles).await;
        match begun {
            Ok(()) => Ok(system),
            Err(error) => {
                system.remove().await?;
                Err(error)
            }
        }
    }

    async fn begin(&mut self, store: &StoreConfig, roles: Roles) -> anyhow::Result<()> {
        server::parts::migrate(store).await?;
        for _ in 0..roles.apis {
            self.add_api("api")?;
        }
        for _ in 0..roles.schedulers {
            self.add("scheduler", ANY_ADDRESS)?;
        }
        for _ in 0..roles.workers {
            self.add("worker", ANY_ADDRESS)?;
        }
        let stored = server::parts::open_to_read(store).await?;
        self.wait_for_workers(stored.as_ref(), roles.workers).await
    }

    fn around(started: Started, store: StoreConfig) -> anyhow::Result<Self> {
        Ok(Self {
            addresses: Vec::new(),
            key: KEY.to_owned(),
            watched: Vec::new(),
            store: Some(store),
            started: Some(started),
        })
    }

    /// Starts one more process that takes events in.
    fn add_api(&mut self, role: &'static str) -> anyhow::Result<()> {
        let address = free_address()?;
        self.add(role, &address)?;
        self.addresses.push(address);
        Ok(())
    }

    /// Whether it is ours, and taken away again.
    pub(crate) fn is_started_here(&self) -> bool {
        self.started.is_some()
    }

    /// The first place where it is spoken to.
    pub(crate) fn address(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Starts one more process.
    pub(crate) fn add(&mut self, role: &'static str, listen: &str) -> anyhow::Result<()> {
        let started = self.started.as_mut();
        let started = started.context("a Paceline that runs already is not added to")?;
        let mut command = Command::new(&started.program);
        command
            .arg(role)
            .envs(started.environment.iter().cloned())
            .env("PACELINE_LISTEN", listen)
            // A Ctrl-C is for us: there is a report to be written first.
            .process_group(0);
        if matches!(role, "api" | "serve") {
            command.envs(started.set.iter().copied());
        }
        let child = Child::spawn(role, command)?;
        let process = child.id().context("a process ended at once")?;
        self.watched.push(Watched::tree(role, process));
        started.children.push(child);
        Ok(())
    }

    /// An error if a process of ours has ended by itself.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        let children = self
            .started
            .iter_mut()
            .flat_map(|started| &mut started.children);
        for child in children {
            let ended = child.ended()?;
            ensure!(ended.is_none(), "a {} ended by itself", child.role);
        }
        Ok(())
    }

    async fn wait_for_workers(&mut self, stored: &dyn Stored, workers: u32) -> anyhow::Result<()> {
        let began = Instant::now();
        while stored.fleet().await?.workers < workers {
            self.check()?;
            ensure!(
                began.elapsed() < PATIENCE,
                "the workers did not show themselves in time"
            );
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Ends what was started here, and takes it away.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        let Some(mut started) = self.started else {
            return Ok(());
        };
        for child in &started.children {
            child.signal(Signal::TERM)?;
        }
        for child in &mut started.children {
            if timeout(GRACE, child.end()).await.is_err() {
                child.kill().await?;
            }
        }
        match started.place {
            Place::Embedded(folder) => folder.close().context("remove the database's folder"),
            Place::Distributed {
                servers: Some(servers),
                ..
            } => servers.remove().await,
            Place::Distributed { shared, .. } => shared.remove().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_to_watch_has_a_name_and_a_number() {
        assert_eq!(watched("worker=12"), Ok(Watched::tree("worker", 12)));
        assert!(watched("worker").is_err());
        assert!(watched("worker=x").is_err());
    }

    #[test]
    fn a_running_paceline_needs_http_and_a_key() {
        let running = |key: Option<&str>| Running {
            api_key: key.map(|key| hidden(key).unwrap()),
            ..Running::default()
        };
        let url = Url::parse("http://127.0.0.1:1/").unwrap();
        let system = System::running(&running(Some("k")), &url).unwrap();
        assert_eq!(system.address(), "127.0.0.1:1");
        assert!(system.store.is_none() && system.watched.is_empty());
        assert!(System::running(&running(None), &url).is_err());
        let other = Url::parse("https://127.0.0.1:1/").unwrap();
        assert!(System::running(&running(Some("k")), &other).is_err());
    }
}
