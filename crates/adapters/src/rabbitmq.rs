//! The delivery queue on RabbitMQ.
//!
//! Owns one queue with its dead letters, a publishing connection and a
//! connection per subscription. Promises what the port asks for:
//! every wait is bounded, a broken connection is redialled for as long as the
//! object lives, a deleted queue is declared again. Refuses to publish while
//! the broker blocks us, and to hand out what is not a permit group.

mod batch;
pub mod codec;
mod connection;
mod publisher;
mod stream;
mod subscription;
mod topology;
mod unsettled;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{DeliveryQueue, Published, QueueError, Subscription};
use futures_util::future::try_join_all;

use self::connection::Address;
use self::publisher::Publisher;
use self::subscription::{Consuming, RabbitSubscription};
use self::topology::Queue;
pub use self::topology::QueueKind;
use crate::queue_shards::QueueShards;

/// One delivery queue on a broker.
pub struct RabbitQueue {
    address: Arc<Address>,
    queue: Queue,
    publisher: Publisher,
    consuming: Arc<Consuming>,
}

impl RabbitQueue {
    /// Dials the broker at `url` (`amqp://` or `amqps://`) and declares the
    /// queue named `name`, and `name.dead` for what nobody can read.
    ///
    /// Fails within a few seconds if the broker does not answer, or if a queue
    /// of that name has other arguments or is of another kind. From then on,
    /// redials by itself.
    pub async fn connect(url: &str, name: &str, kind: QueueKind) -> Result<Self, QueueError> {
        let address = Arc::new(Address::parse(url)?);
        let queue = Queue {
            name: name.to_owned(),
            kind,
        };
        Ok(Self {
            publisher: Publisher::connect(Arc::clone(&address), &queue).await?,
            address,
            queue,
            consuming: Arc::default(),
        })
    }

    /// The same over so many queues: `name`, `name.1` and so on, each with
    /// connections of its own, so that a cluster's nodes can lead one each. One
    /// is that of [`RabbitQueue::connect`], whose messages more of them read too.
    pub async fn connect_shards(
        url: &str,
        name: &str,
        kind: QueueKind,
        shards: u16,
    ) -> Result<QueueShards, QueueError> {
        let connected = (0..shards).map(|shard| async move {
            let name = match shard {
                0 => name.to_owned(),
                _ => format!("{name}.{shard}"),
            };
            let shard = Self::connect(url, &name, kind).await?;
            Ok(Box::new(shard) as Box<dyn DeliveryQueue>)
        });
        QueueShards::new(try_join_all(connected).await?)
    }
}

impl fmt::Debug for RabbitQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitQueue")
            .field("address", &self.address)
            .field("queue", &self.queue.name)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DeliveryQueue for RabbitQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        self.publisher.publish(groups).await
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let address = Arc::clone(&self.address);
        let consuming = Arc::clone(&self.consuming);
        let opened = RabbitSubscription::open(address, &self.queue, prefetch, consuming);
        Ok(Box::new(opened.await?))
    }

    fn health(&self) -> Result<(), QueueError> {
        self.publisher.health()?;
        self.consuming.health()
    }
}
