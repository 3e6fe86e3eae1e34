//! From URLs to the engine's ports. Nothing else in this crate constructs an
//! adapter.

use std::sync::Arc;

use adapters::http::{HttpOptions, HttpSender};
use adapters::in_process::{InProcessQueue, InProcessSchedule};
use adapters::rabbitmq::RabbitQueue;
use adapters::redis::RedisSchedule;
use anyhow::Context;
use engine::ports::{Catalog, DeliveryQueue, Schedule, Sender, Store};

use crate::config::{
    Database, QueueConfig, QueuePlace, ScheduleConfig, SchedulePlace, StoreConfig, TargetConfig,
};

/// How many permit groups an in-process queue holds.
const IN_PROCESS_QUEUE: usize = 65_536;

/// Everything outside that the loops and the API need.
#[derive(Clone)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub catalog: Arc<dyn Catalog>,
    pub schedule: Arc<dyn Schedule>,
    /// `None` for a role without permits.
    pub queue: Option<Arc<dyn DeliveryQueue>>,
    pub sender: Arc<dyn Sender>,
}

impl Parts {
    /// Dials everything.
    pub async fn connect(
        store: &StoreConfig,
        schedule: &ScheduleConfig,
        queue: Option<&QueueConfig>,
        target: TargetConfig,
    ) -> anyhow::Result<Self> {
        let (store, catalog) = connect_store(store).await?;
        let queue = match queue {
            Some(config) => Some(connect_queue(config).await?),
            None => None,
        };
        Ok(Self {
            store,
            catalog,
            schedule: connect_schedule(schedule).await?,
            queue,
            sender: sender(target),
        })
    }
}

/// The store alone, as the audit and `migrate` need it.
pub async fn connect_store(
    config: &StoreConfig,
) -> anyhow::Result<(Arc<dyn Store>, Arc<dyn Catalog>)> {
    match config.place()? {
        // Until the stores are merged.
        Database::Sqlite(_) | Database::SqliteInMemory => anyhow::bail!("no SQLite store yet"),
        Database::Postgres(url) => anyhow::bail!("no Postgres store yet for {url}"),
    }
}

/// Brings the schema up to this binary's.
pub async fn migrate(config: &StoreConfig) -> anyhow::Result<()> {
    connect_store(config).await.map(drop)
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
            let queue = RabbitQueue::connect(url.expose(), &config.queue_name)
                .await
                .with_context(|| format!("connect to the delivery queue at {url}"))?;
            Ok(Arc::new(queue))
        }
    }
}

fn sender(config: TargetConfig) -> Arc<dyn Sender> {
    let sender = HttpSender::new(HttpOptions {
        allow_http: config.allow_http,
        ..HttpOptions::default()
    });
    if let Err(error) = sender.check_tls() {
        // Not fatal: a closed network may have plain http destinations only.
        tracing::warn!(%error, "no https destination can be reached");
    }
    Arc::new(sender)
}
