//! The delivery queue: permits on their way from schedulers to workers.

use async_trait::async_trait;
use domain::permit::PermitGroup;

/// One queue of permit groups, shared by all destinations; a group may be of many.
///
/// At least once, in no promised order; a message may be lost, doubled or
/// late, because every permit in it can be refused by the store.
#[async_trait]
pub trait DeliveryQueue: Send + Sync {
    /// Publishes the groups in one pipelined batch and waits, for a bounded
    /// time, until each is confirmed.
    ///
    /// The answers are in the order of `groups`. What is not
    /// [`Published::Confirmed`] may or may not arrive: it is left to its
    /// deadline, never published again here. An `Err` says so of all.
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError>;

    /// Starts consuming with at most `prefetch` (at least 1) messages
    /// unsettled. Redials by itself with backoff for as long as the
    /// subscription lives.
    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError>;

    /// Whether permits can be published and received now; the reason where
    /// not. Cheap: reads what the connections know, sends nothing.
    fn health(&self) -> Result<(), QueueError>;
}

/// One worker's stream of permit groups.
#[async_trait]
pub trait Subscription: Send {
    /// Waits for at least one message, then returns all that are at hand, at
    /// most `max`. Cancel-safe: a message is returned or stays unsettled.
    /// After [`Subscription::stop`], returns what is left and then an empty
    /// vector. An `Err` is a lost connection that is being redialled: call
    /// again; what was unsettled will be redelivered and must be forgotten.
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError>;

    /// Settles messages, grouped into as few frames as possible. Tags of a
    /// lost connection are ignored.
    async fn settle(&mut self, settlements: &[(DeliveryTag, Settlement)])
    -> Result<(), QueueError>;

    /// Stops new messages from coming in; what is prefetched stays to be
    /// received and settled.
    async fn stop(&mut self) -> Result<(), QueueError>;
}

/// What became of one published group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// The queue has it.
    Confirmed,
    /// Refused, returned as unroutable, or not confirmed in time.
    Unconfirmed,
}

/// One received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// To settle it with.
    pub tag: DeliveryTag,
    /// What it carries.
    pub group: PermitGroup,
    /// The queue has delivered it before.
    pub redelivered: bool,
}

/// Names one unsettled message of one connection of one subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryTag {
    /// Which connection it came by: a redialled one is another.
    pub connection: u64,
    /// Its number on that connection, ascending.
    pub number: u64,
}

/// How a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The store knows of every permit in it, but for those that wait for a dial.
    Done,
    /// Not begun; another worker may have it.
    Requeue,
}

/// The queue could not be asked. Every call may be repeated.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Not connected, or the connection broke.
    #[error("delivery queue unavailable: {0}")]
    Unavailable(String),
    /// The broker has stopped taking publishes (a memory or disk alarm).
    /// Consuming goes on.
    #[error("delivery queue blocked by the broker: {0}")]
    Blocked(String),
}
