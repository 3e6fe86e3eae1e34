//! From URLs to the engine's ports. Nothing else in this crate constructs an
//! adapter.

use std::sync::Arc;

use adapters::http::{Dial, DialDirect, DialThrough, HttpOptions, HttpSender};
use adapters::in_process::{InProcessQueue, InProcessSchedule};
use adapters::post::{Mail, PostOffice};
use adapters::postgres::{PostgresOptions, PostgresStore};
use adapters::rabbitmq::RabbitQueue;
use adapters::redis::RedisSchedule;
use adapters::sqlite::{SqliteStore, system_clock};
use anyhow::Context;
use engine::ports::{
    Asker, Backlog, Backpressure, Catalog, DeliveryQueue, EventTypes, Granter, Handshakes, Keys,
    LimitRequests, Managers, Notices, Operations, OperationsBook, Outbox, Overview, Post, Replays,
    Retain, Schedule, SecretStore, Sender, Sessions, Store, StoreError, Survey, Tallies, Tenants,
    TokenBook, TraceBook, Vault,
};
use engine::roles::{self, Asking, Noticing, Surveyed, TokenPorts};

use crate::config::{
    ConfigError, Database, QueueConfig, QueuePlace, ScheduleConfig, SchedulePlace, SecretUrl,
    StoreConfig, TargetConfig,
};
use crate::{edge, open_files};

/// How many permit groups an in-process queue holds.
const IN_PROCESS_QUEUE: usize = 65_536;

/// A store behind each of its ports.
pub trait Stored:
    Store
    + Catalog
    + Backlog
    + Backpressure
    + Replays
    + Retain
    + Keys
    + Tenants
    + Operations
    + OperationsBook
    + Notices
    + Survey
    + Overview
    + Tallies
    + Sessions
    + LimitRequests
    + SecretStore
    + Managers
    + TraceBook
    + Handshakes
    + TokenBook
    + EventTypes
{
}

impl Stored for PostgresStore {}
impl Stored for SqliteStore {}

/// Everything outside that the loops and the API need.
#[derive(Clone)]
pub struct Parts {
    /// The store of the loops and of ingest, which may be wrapped.
    pub store: Arc<dyn Store>,
    /// What operators must know, which may be wrapped.
    pub operations: Arc<dyn Operations>,
    /// The store, for all else.
    pub stored: Arc<dyn Stored>,
    /// `None` where users cannot write into the store.
    pub outbox: Option<Arc<dyn Outbox>>,
    pub schedule: Arc<dyn Schedule>,
    /// `None` for a role without permits.
    pub queue: Option<Arc<dyn DeliveryQueue>>,
    pub sender: Arc<dyn Sender>,
    pub asker: Arc<dyn Asker>,
    pub granter: Arc<dyn Granter>,
    /// Carries what people are told.
    pub post: Arc<dyn Post>,
    /// The store, for what people read.
    pub reading: Reading,
}

/// A store, as people read it. With [`Parts::read_apart`] over connections of its
/// own: however much is read, ingest and sign-in have theirs.
#[derive(Clone)]
pub struct Reading {
    pub store: Arc<dyn Store>,
    pub catalog: Arc<dyn Catalog>,
    pub backlog: Arc<dyn Backlog>,
    pub operations_book: Arc<dyn OperationsBook>,
    pub survey: Arc<dyn Survey>,
    pub overview: Arc<dyn Overview>,
    pub tallies: Arc<dyn Tallies>,
    pub event_types: Arc<dyn EventTypes>,
    pub managers: Arc<dyn Managers>,
    pub requests: Arc<dyn LimitRequests>,
    pub secrets: Arc<dyn SecretStore>,
    /// How many reads it answers at once.
    pub at_once: u32,
}

impl Reading {
    fn of(stored: &Arc<dyn Stored>, config: &StoreConfig) -> Self {
        let stored = || Arc::clone(stored);
        Self {
            at_once: config.database_connections,
            store: stored(),
            catalog: stored(),
            backlog: stored(),
            operations_book: stored(),
            survey: stored(),
            overview: stored(),
            tallies: stored(),
            event_types: stored(),
            managers: stored(),
            requests: stored(),
            secrets: stored(),
        }
    }
}

impl Parts {
    /// Dials everything.
    pub async fn connect(
        store: &StoreConfig,
        schedule: &ScheduleConfig,
        queue: Option<&QueueConfig>,
        target: &TargetConfig,
    ) -> anyhow::Result<Self> {
        let Connected { stored, outbox } = connect_store(store).await?;
        let queue = match queue {
            Some(config) => Some(connect_queue(config).await?),
            None => None,
        };
        let sender = sender(target)?;
        Ok(Self {
            reading: Reading::of(&stored, store),
            store: Arc::clone(&stored) as _,
            operations: Arc::clone(&stored) as _,
            stored,
            outbox,
            schedule: connect_schedule(schedule).await?,
            queue,
            asker: Arc::clone(&sender) as _,
            granter: Arc::clone(&sender) as _,
            post: post(None, Arc::clone(&sender) as _),
            sender,
        })
    }

    /// The same, with a server for mail.
    #[must_use]
    pub fn with_mail(self, mail: Option<Mail>) -> Self {
        Self {
            post: post(mail, Arc::clone(&self.sender)),
            ..self
        }
    }

    /// What the engine's loops need of it.
    #[must_use]
    pub fn engine(&self, vault: Option<Arc<dyn Vault>>) -> roles::Ports {
        let stored = || Arc::clone(&self.stored);
        roles::Ports {
            store: Arc::clone(&self.store),
            schedule: Arc::clone(&self.schedule),
            queue: self.queue.clone(),
            sender: Arc::clone(&self.sender),
            vault,
            backpressure: Some(stored()),
            secrets: Some(stored()),
            outbox: self.outbox.clone(),
            retain: Some(stored()),
            operations: Some(Arc::clone(&self.operations)),
            surveyed: Some(Surveyed {
                survey: stored(),
                catalog: stored(),
            }),
            tallies: Some(stored()),
            replays: Some(stored()),
            asking: Some(Asking {
                handshakes: stored(),
                asker: Arc::clone(&self.asker),
            }),
            tokens: Some(TokenPorts {
                granter: Arc::clone(&self.granter),
                book: stored(),
            }),
            noticing: Some(Noticing {
                notices: stored(),
                post: Arc::clone(&self.post),
            }),
        }
    }

    /// Dials Postgres once more, for what people read. An SQLite file has one
    /// writer and one reader, however often it is opened and whatever is configured.
    pub async fn read_apart(self, store: &StoreConfig) -> anyhow::Result<Self> {
        Ok(match store.place()? {
            Database::Postgres(_) => Self {
                reading: Reading::of(&connect_store(store).await?.stored, store),
                ..self
            },
            Database::Sqlite(_) | Database::SqliteInMemory => Self {
                reading: Reading {
                    at_once: 1,
                    ..self.reading
                },
                ..self
            },
        })
    }
}

/// A store that was dialled.
struct Connected {
    stored: Arc<dyn Stored>,
    outbox: Option<Arc<dyn Outbox>>,
}

impl Connected {
    /// Where users cannot write into it.
    fn sqlite(opened: Result<SqliteStore, StoreError>, url: &SecretUrl) -> anyhow::Result<Self> {
        let store = opened.with_context(|| format!("open the store at {url}"))?;
        Ok(Self {
            stored: Arc::new(store),
            outbox: None,
        })
    }
}

/// The secrets of a store, for the command line.
pub async fn open_secrets(config: &StoreConfig) -> anyhow::Result<Arc<dyn SecretStore>> {
    Ok(connect_store(config).await?.stored)
}

async fn connect_store(config: &StoreConfig) -> anyhow::Result<Connected> {
    let url = &config.database_url;
    match config.place()? {
        Database::Sqlite(path) => Connected::sqlite(SqliteStore::open(&path, system_clock()), url),
        Database::SqliteInMemory => Connected::sqlite(SqliteStore::in_memory(system_clock()), url),
        Database::Postgres(_) => {
            let store = connect_postgres(config).await;
            let store = store.with_context(|| format!("open the store at {url}"))?;
            Ok(Connected {
                outbox: Some(Arc::new(store.clone())),
                stored: Arc::new(store),
            })
        }
    }
}

/// The store to read from, beside the processes that work on it: for the
/// audit. An SQLite file is not locked by it, and not created.
pub async fn open_to_read(config: &StoreConfig) -> anyhow::Result<Arc<dyn Stored>> {
    let connected = match config.place()? {
        Database::Sqlite(path) => {
            let store = SqliteStore::open_to_read(&path, system_clock());
            Connected::sqlite(store, &config.database_url)?
        }
        Database::SqliteInMemory | Database::Postgres(_) => connect_store(config).await?,
    };
    Ok(connected.stored)
}

/// Brings the schema up to this binary's. An SQLite file is brought up to date
/// by opening it.
pub async fn migrate(config: &StoreConfig) -> anyhow::Result<()> {
    if !matches!(config.place()?, Database::Postgres(_)) {
        return connect_store(config).await.map(drop);
    }
    let context = || format!("migrate the store at {}", config.database_url);
    let store = connect_postgres(config).await.with_context(context)?;
    store.migrate().await.with_context(context)?;
    store.close().await;
    Ok(())
}

/// Gives the rights that workers need to this role of the database.
pub async fn grant_to_workers(config: &StoreConfig, role: &str) -> anyhow::Result<()> {
    if !matches!(config.place()?, Database::Postgres(_)) {
        let problem = "only Postgres has roles: leave it out, or name a Postgres in --database-url";
        return Err(ConfigError::flag("worker-role", problem).into());
    }
    let context = || format!("give the role {role} the rights of a worker");
    let store = connect_postgres(config).await.with_context(context)?;
    store.grant_to_workers(role).await.with_context(context)?;
    store.close().await;
    Ok(())
}

/// An error unless the schema is at least this binary's. Changes nothing: no
/// SQLite file is made.
pub async fn schema_is_there(config: &StoreConfig) -> anyhow::Result<()> {
    let stored = open_to_read(config).await?;
    stored.ready().await?;
    Ok(())
}

async fn connect_postgres(config: &StoreConfig) -> Result<PostgresStore, StoreError> {
    PostgresStore::connect(PostgresOptions {
        url: config.database_url.expose().to_owned(),
        max_connections: config.database_connections,
    })
    .await
}

async fn connect_schedule(config: &ScheduleConfig) -> anyhow::Result<Arc<dyn Schedule>> {
    match config.place()? {
        SchedulePlace::InProcess => Ok(Arc::new(InProcessSchedule::new())),
        SchedulePlace::Redis(url) => {
            let shards = config.schedule_shards;
            let schedule = RedisSchedule::connect(url.expose(), &config.schedule_prefix, shards)
                .await
                .with_context(|| format!("connect to the schedule at {url}"))?;
            Ok(Arc::new(schedule))
        }
    }
}

async fn connect_queue(config: &QueueConfig) -> anyhow::Result<Arc<dyn DeliveryQueue>> {
    match config.place()? {
        QueuePlace::InProcess => Ok(Arc::new(InProcessQueue::new(IN_PROCESS_QUEUE))),
        QueuePlace::RabbitMq(url) => {
            let (name, shards) = (&config.queue_name, config.queue_shards);
            let kind = config.queue_type.into();
            let context = || format!("connect to the delivery queue at {url}");
            if shards > 1 {
                let queue = RabbitQueue::connect_shards(url.expose(), name, kind, shards);
                return Ok(Arc::new(queue.await.with_context(context)?));
            }
            let queue = RabbitQueue::connect(url.expose(), name, kind);
            Ok(Arc::new(queue.await.with_context(context)?))
        }
    }
}

fn post(mail: Option<Mail>, sender: Arc<dyn Sender>) -> Arc<dyn Post> {
    Arc::new(PostOffice::new(mail, sender, edge::now))
}

fn sender(config: &TargetConfig) -> Result<Arc<HttpSender>, ConfigError> {
    let dial: Arc<dyn Dial> = match config.proxy()? {
        Some(proxy) => Arc::new(DialThrough::new(proxy)),
        None => Arc::new(DialDirect),
    };
    let usual = HttpOptions::default();
    let sender = HttpSender::new(HttpOptions {
        policy: config.policy(),
        dial,
        origin: config.handshake_origin.clone(),
        signature_prefix: config.signature.signature_prefix,
        max_idle: open_files::room_for_idle(usual.max_idle),
        http2: config.http2,
        ..usual
    });
    if let Err(error) = sender.check_tls() {
        // Not fatal: a closed network may have plain http destinations only.
        tracing::warn!(%error, "no https destination can be reached");
    }
    Ok(Arc::new(sender))
}

#[cfg(test)]
mod tests {
    use engine::ports::{Lane, NoVault, Relayed};
    use engine::roles::{LoopKind, Role, Settings, assemble};

    use super::*;
    use crate::config::QueueType;

    /// Somewhere that users could write.
    struct NoRows;

    #[async_trait::async_trait]
    impl Outbox for NoRows {
        async fn relay(&self, _: Lane, _: u32) -> Result<Relayed, StoreError> {
            Ok(Relayed::default())
        }

        async fn inserted(&self) {
            std::future::pending().await
        }
    }

    fn store() -> StoreConfig {
        StoreConfig {
            database_url: "sqlite::memory:".parse().unwrap(),
            database_connections: 16,
        }
    }

    async fn parts() -> Parts {
        let store = store();
        let schedule = ScheduleConfig {
            schedule_url: "in-process".parse().unwrap(),
            schedule_prefix: String::new(),
            schedule_shards: 1,
        };
        let queue = QueueConfig {
            queue_url: "in-process".parse().unwrap(),
            queue_name: String::new(),
            queue_shards: 1,
            queue_type: QueueType::default(),
        };
        let target = TargetConfig::default();
        (Parts::connect(&store, &schedule, Some(&queue), &target).await).unwrap()
    }

    #[tokio::test]
    async fn an_sqlite_file_has_one_reader_whatever_is_configured() {
        let [_, reading] = store().divided();
        let parts = parts().await.read_apart(&reading).await.unwrap();
        assert_eq!(parts.reading.at_once, 1);
    }

    fn loops(role: Role, parts: &Parts) -> Vec<LoopKind> {
        let ports = parts.engine(Some(Arc::new(NoVault)));
        let assembly = assemble(role, &ports, Settings::of(role, 7));
        let takes_events = role.has(LoopKind::Ingest);
        assert_eq!(assembly.entrance.is_some(), takes_events, "{role:?}");
        assembly
            .loops
            .iter()
            .map(engine::roles::Loop::kind)
            .collect()
    }

    /// Each is there as the table says, and once; but for the schedulers, which are as
    /// many as the role says.
    #[tokio::test]
    async fn a_role_over_these_parts_has_every_loop_of_the_table() {
        let embedded = parts().await;
        let outbox: Arc<dyn Outbox> = Arc::new(NoRows);
        let parts = Parts {
            outbox: Some(outbox),
            ..embedded.clone()
        };
        for role in Role::ALL {
            let mut kinds = loops(role, &parts);
            let schedulers = kinds.iter().filter(|kind| **kind == LoopKind::Scheduler);
            assert_eq!(schedulers.count(), role.schedulers().len(), "{role:?}");
            kinds.dedup();
            let table = LoopKind::ALL.into_iter().filter(|kind| role.has(*kind));
            assert_eq!(kinds, table.collect::<Vec<_>>(), "{role:?}");
        }
        let without = loops(Role::Serve, &embedded);
        assert_eq!(
            without.len(),
            LoopKind::ALL.len() - 1,
            "an SQLite file has no outbox"
        );
        assert!(!without.contains(&LoopKind::Relay));
    }
}
