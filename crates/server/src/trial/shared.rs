//! A database, a prefix and a queue of a trial's own, on servers that are
//! there already.

use adapters::key_ring::KeyRing;
use adapters::shell::{self, QueueCommand};
use anyhow::Context;
use domain::signature::HeaderPrefix;
use url::Url;
use zeroize::Zeroizing;

use super::GRACE;
use crate::config::{QueueConfig, QueueType, ScheduleConfig, StoreConfig, THIS_HOST, TargetConfig};
use crate::edge::Mint;
use crate::parts::Parts;
use crate::secret_keys::new_key;

/// Servers that are there already, by URL.
#[derive(Clone)]
pub struct Servers {
    /// Postgres, with the right to create databases.
    pub database: String,
    /// Redis.
    pub schedule: String,
    /// RabbitMQ.
    pub queue: String,
}

impl Servers {
    /// Those that PACELINE_DATABASE_URL, PACELINE_SCHEDULE_URL and
    /// PACELINE_QUEUE_URL name.
    pub fn from_environment() -> anyhow::Result<Self> {
        Ok(Self {
            database: url_of("PACELINE_DATABASE_URL", "postgres://…")?,
            schedule: url_of("PACELINE_SCHEDULE_URL", "redis://…")?,
            queue: url_of("PACELINE_QUEUE_URL", "amqp://…")?,
        })
    }

    /// Those that PACELINE_TEST_DATABASE_URL, PACELINE_TEST_REDIS_URL and
    /// PACELINE_TEST_AMQP_URL name: servers that tests may use up.
    pub fn for_tests() -> anyhow::Result<Self> {
        Ok(Self {
            database: url_of("PACELINE_TEST_DATABASE_URL", "postgres://…")?,
            schedule: url_of("PACELINE_TEST_REDIS_URL", "redis://…")?,
            queue: url_of("PACELINE_TEST_AMQP_URL", "amqp://…")?,
        })
    }
}

/// Where a distributed trial happens.
#[derive(Clone)]
pub struct SharedParts {
    /// The server's own database, to make ours from.
    server_url: String,
    /// Our database.
    pub database_url: String,
    database: String,
    /// Redis.
    pub schedule_url: String,
    prefix: String,
    /// What the destinations' secrets are sealed under.
    secret_key: Zeroizing<String>,
    /// RabbitMQ.
    pub queue_url: String,
    /// Our queue.
    pub queue_name: String,
}

impl SharedParts {
    /// Makes a database on these servers.
    pub async fn make(servers: Servers, mint: &Mint) -> anyhow::Result<Self> {
        let name = mint.uuid().simple().to_string();
        let database = format!("paceline_trial_{name}");
        shell::psql(&servers.database, &format!("create database {database}"))
            .await
            .context("make a database for the trial")?;
        let mut database_url =
            Url::parse(&servers.database).context("the database's URL is not one")?;
        database_url.set_path(&database);
        Ok(Self {
            server_url: servers.database,
            database_url: database_url.into(),
            database,
            schedule_url: servers.schedule,
            prefix: format!("paceline-trial-{name}"),
            secret_key: new_key(mint),
            queue_url: servers.queue,
            queue_name: format!("paceline.trial.{name}"),
        })
    }

    /// Dials the parts and brings the schema up to date.
    pub async fn connect(&self) -> anyhow::Result<Parts> {
        let store = StoreConfig {
            database_url: self.database_url.parse()?,
            database_connections: 16,
        };
        let schedule = ScheduleConfig {
            schedule_url: self.schedule_url.parse()?,
            schedule_prefix: self.prefix.clone(),
            schedule_shards: 1,
        };
        let queue = QueueConfig {
            queue_url: self.queue_url.parse()?,
            queue_name: self.queue_name.clone(),
            queue_shards: 1,
            queue_type: QueueType::default(),
        };
        crate::parts::migrate(&store).await?;
        let target = TargetConfig::this_host();
        Parts::connect(&store, &schedule, Some(&queue), &target).await
    }

    /// The same keys as the processes have.
    pub fn vault(&self) -> anyhow::Result<KeyRing> {
        KeyRing::parse(&self.secret_key).context("a new key")
    }

    /// What a role's process needs in its environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        [
            ("PACELINE_DATABASE_URL", &self.database_url),
            ("PACELINE_SCHEDULE_URL", &self.schedule_url),
            ("PACELINE_SCHEDULE_PREFIX", &self.prefix),
            ("PACELINE_QUEUE_URL", &self.queue_url),
            ("PACELINE_QUEUE_NAME", &self.queue_name),
            ("PACELINE_SECRET_KEYS", &self.secret_key),
        ]
        .into_iter()
        .map(|(name, value): (&str, &String)| (name.to_owned(), value.clone()))
        .chain([
            ("PACELINE_ALLOW_HTTP".to_owned(), "true".to_owned()),
            ("PACELINE_ALLOW_NETWORKS".to_owned(), THIS_HOST.to_owned()),
            ("PACELINE_LOG".to_owned(), "error".to_owned()),
            ("PACELINE_SHUTDOWN_GRACE".to_owned(), format!("{GRACE:?}")),
            ("PACELINE_REQUEST_TIMEOUT".to_owned(), "15s".to_owned()),
            (
                "PACELINE_SIGNATURE_PREFIX".to_owned(),
                HeaderPrefix::default().to_string(),
            ),
        ])
        .collect()
    }

    /// Loses every job, as FLUSHALL would; other users of the server keep
    /// theirs.
    pub async fn lose_schedule(&self) -> anyhow::Result<()> {
        Ok(shell::redis_forget(&self.schedule_url, &self.prefix).await?)
    }

    /// Takes everything away.
    pub async fn remove(self) -> anyhow::Result<()> {
        let _ = shell::rabbitmq(&self.queue_url, &self.queue_name, QueueCommand::Delete).await;
        shell::redis_forget(&self.schedule_url, &self.prefix).await?;
        let drop = format!("drop database {} with (force)", self.database);
        shell::psql(&self.server_url, &drop).await?;
        Ok(())
    }
}

fn url_of(variable: &'static str, example: &str) -> anyhow::Result<String> {
    std::env::var(variable).with_context(|| {
        format!(
            "{variable} is not set: name a server by {example}, or let the project start private \
             ones by `scripts/with-servers COMMAND`"
        )
    })
}
