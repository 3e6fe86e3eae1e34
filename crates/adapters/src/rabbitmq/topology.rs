//! What stands on the broker: the delivery queue and its dead letters.
//!
//! The arguments of a queue cannot be changed once it exists, and declaring it
//! with others is an error, so these are fixed from the first day. Declaring
//! is idempotent and done after every dial, which brings back a queue that was
//! deleted.

use std::time::Duration;

use engine::ports::QueueError;
use lapin::Channel;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use super::connection::bounded;

/// A crash of every worker that touches a message redelivers it; the permits
/// in it expire within seconds, long before they meet this many crashes. It
/// ends a loop that nothing else would.
const DELIVERY_LIMIT: i32 = 20;

/// The default exchange routes by queue name, so that no exchange and no
/// binding of ours can be missing.
const DEAD_LETTER_EXCHANGE: &str = "";

/// Dead letters are for a person to look at; the permits in them have expired.
/// The oldest go first.
const DEAD_MAX_LENGTH: i32 = 1_000;

/// Anybody may publish a large message to our queue by mistake.
const DEAD_MAX_BYTES: i32 = 16 * 1024 * 1024;

/// How long a queue that was found missing stays so before we declare it.
///
/// A broker that notices a consumer's queue to be gone first tries to consume
/// from it again. If it exists again by then, the consumer is attached to the
/// new queue and neither told nor ever given a message (seen on 3.10.8). So
/// all consumers are to have been cancelled before.
pub(super) const MISSING_FOR: Duration = Duration::from_millis(500);

fn dead_letter_queue(queue: &str) -> String {
    format!("{queue}.dead")
}

/// How the broker keeps the delivery queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum QueueKind {
    /// On several nodes, each message on the disk of most of them before it is
    /// confirmed.
    #[default]
    Quorum,
    /// On one node, in its memory. What is lost with it goes out again when its
    /// permits have lapsed; while its node is away, so is the queue.
    Classic,
}

/// The delivery queue: what it is called, and how it is kept.
#[derive(Debug, Clone)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) kind: QueueKind,
}

/// Declares both queues.
pub(super) async fn declare(channel: &Channel, queue: &Queue) -> Result<(), QueueError> {
    let dead = dead_letter_queue(&queue.name);
    declare_one(channel, &dead, dead_arguments()).await?;
    declare_one(channel, &queue.name, delivery_arguments(queue.kind, &dead)).await
}

async fn declare_one(
    channel: &Channel,
    name: &str,
    arguments: FieldTable,
) -> Result<(), QueueError> {
    let options = QueueDeclareOptions::durable();
    let declared = channel.queue_declare(name.into(), options, arguments);
    bounded("declaring a queue", declared).await?;
    Ok(())
}

fn delivery_arguments(kind: QueueKind, dead: &str) -> FieldTable {
    let mut table = arguments([
        ("x-dead-letter-exchange", text(DEAD_LETTER_EXCHANGE)),
        ("x-dead-letter-routing-key", text(dead)),
    ]);
    let name = match kind {
        QueueKind::Quorum => "quorum",
        QueueKind::Classic => "classic",
    };
    table.insert("x-queue-type".into(), text(name));
    // A classic one knows no such limit, and refuses the argument.
    if kind == QueueKind::Quorum {
        let limit = AMQPValue::LongInt(DELIVERY_LIMIT);
        table.insert("x-delivery-limit".into(), limit);
    }
    table
}

fn dead_arguments() -> FieldTable {
    arguments([
        ("x-queue-type", text("quorum")),
        ("x-max-length", AMQPValue::LongInt(DEAD_MAX_LENGTH)),
        ("x-max-length-bytes", AMQPValue::LongInt(DEAD_MAX_BYTES)),
    ])
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

fn arguments<const N: usize>(pairs: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in pairs {
        table.insert(name.into(), value);
    }
    table
}
