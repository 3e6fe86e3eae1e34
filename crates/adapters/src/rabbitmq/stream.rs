//! One channel with its consumer: reads, decodes and settles, until it ends.
//!
//! Promises that what is read is in the caller's hands before anything else
//! is awaited, and that settling is done with the first poll.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use engine::ports::{Delivery, DeliveryTag, QueueError};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    BasicRejectOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use tokio::time::{Instant, sleep_until};

use super::codec;
use super::connection::{Address, Line, bounded};
use super::topology::{self, Queue};
use super::unsettled::{Frames, Unsettled};

/// After so long without a message, and with none unsettled, a subscription
/// opens another channel and consumes by that. Where [`topology::MISSING_FOR`]
/// was of no help, because somebody else made a deleted queue again at once,
/// the broker believes us to be consuming, and nothing tells that we are not.
const RENEW_AFTER: Duration = Duration::from_secs(10);

/// What it takes to consume, once or again.
pub(super) struct Wanted {
    pub(super) address: Arc<Address>,
    pub(super) queue: Queue,
    pub(super) prefetch: u16,
}

/// One connection with its consumer.
pub(super) struct Stream {
    consumer: Consumer,
    channel: Channel,
    pub(super) line: Line,
    unsettled: Unsettled,
    /// The consumer was cancelled, by us or by the broker.
    is_ended: bool,
    renew_at: Instant,
}

pub(super) enum Read {
    Some,
    End,
    Idle,
    Broken(String),
}

impl Stream {
    pub(super) async fn open(wanted: &Wanted) -> Result<Self, QueueError> {
        let name = format!("paceline subscription to {}", wanted.queue.name);
        let line = Line::dial(&wanted.address, &name).await?;
        Self::on(line, wanted).await
    }

    pub(super) async fn on(line: Line, wanted: &Wanted) -> Result<Self, QueueError> {
        match Self::consume(&line, wanted).await {
            Ok((channel, consumer)) => Ok(Self {
                consumer,
                channel,
                line,
                unsettled: Unsettled::default(),
                is_ended: false,
                renew_at: Instant::now() + RENEW_AFTER,
            }),
            Err(error) => {
                line.sever();
                Err(error)
            }
        }
    }

    async fn consume(line: &Line, wanted: &Wanted) -> Result<(Channel, Consumer), QueueError> {
        let channel = line.open_channel().await?;
        topology::declare(&channel, &wanted.queue).await?;
        let qos = channel.basic_qos(wanted.prefetch, BasicQosOptions::default());
        bounded("setting the prefetch", qos).await?;
        let consume = channel.basic_consume(
            wanted.queue.name.as_str().into(),
            "".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumer = bounded("consuming", consume).await?;
        Ok((channel, consumer))
    }

    /// Waits for one message, then takes those at hand. Cancel-safe: awaits
    /// only while it holds none.
    pub(super) async fn read(
        &mut self,
        connection: u64,
        max: usize,
        ready: &mut VecDeque<Delivery>,
    ) -> Read {
        if self.is_ended {
            return Read::End;
        }
        let mut next = tokio::select! {
            biased;
            next = self.consumer.next() => next,
            () = sleep_until(self.renew_at) => {
                self.renew_at = Instant::now() + RENEW_AFTER;
                return match self.unsettled.is_empty() {
                    true => Read::Idle,
                    false => Read::Some,
                };
            }
        };
        self.renew_at = Instant::now() + RENEW_AFTER;
        while ready.len() < max {
            match next {
                Some(Ok(message)) => self.accept(connection, message, ready),
                // What was read before the end is handed out first. lapin says
                // the end once, and would wait for ever when asked again.
                None => {
                    self.is_ended = true;
                    return match ready.is_empty() {
                        true => Read::End,
                        false => Read::Some,
                    };
                }
                Some(Err(error)) => return Read::Broken(error.to_string()),
            }
            next = match ready.len() < max {
                true => match self.consumer.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                },
                false => break,
            };
        }
        Read::Some
    }

    fn accept(
        &mut self,
        connection: u64,
        message: lapin::message::Delivery,
        ready: &mut VecDeque<Delivery>,
    ) {
        let number = message.delivery_tag;
        match codec::decode(&message.data) {
            Ok(group) => {
                self.unsettled.insert(number);
                ready.push_back(Delivery {
                    tag: DeliveryTag { connection, number },
                    group,
                    redelivered: message.redelivered,
                });
            }
            Err(reason) => {
                tracing::warn!(%reason, "rejected a message that is no permit group");
                let rejected = self
                    .channel
                    .basic_reject(number, BasicRejectOptions { requeue: false });
                // The first poll queues the frame. Not to wait for its being
                // written keeps `receive` cancel-safe.
                let _ = rejected.now_or_never();
            }
        }
    }

    /// Settles what is unsettled of these, and nothing twice.
    pub(super) async fn settle(
        &mut self,
        done: impl Iterator<Item = u64>,
        requeue: impl Iterator<Item = u64>,
    ) -> Result<(), QueueError> {
        let frames = self.unsettled.settle(done, requeue);
        self.send(frames).await
    }

    /// Asks for no more messages. What was sent by then can still be read.
    pub(super) async fn cancel(&self) -> Result<(), QueueError> {
        // Repeated, it asks the broker to cancel what is not there, which it
        // takes in good part.
        let options = BasicCancelOptions::default();
        let cancel = self.channel.basic_cancel(self.consumer.tag(), options);
        bounded("cancelling the consumer", cancel).await
    }

    async fn send(&self, frames: Frames) -> Result<(), QueueError> {
        let mut sending: Vec<Sending<'_>> = Vec::new();
        for tag in frames.requeue {
            let options = BasicNackOptions {
                multiple: false,
                requeue: true,
            };
            sending.push(Box::pin(self.channel.basic_nack(tag, options)));
        }
        let through = frames.acknowledge_through.map(|tag| (tag, true));
        let single = frames.acknowledge.into_iter().map(|tag| (tag, false));
        for (tag, multiple) in through.into_iter().chain(single) {
            let options = BasicAckOptions { multiple };
            sending.push(Box::pin(self.channel.basic_ack(tag, options)));
        }
        bounded("settling", in_order(sending)).await
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = lapin::Result<()>> + Send + 'a>>;

/// Polls all in order, so that all frames are queued, and in this order, by
/// the first poll: a `settle` that is dropped has settled all the same.
async fn in_order(mut sending: Vec<Sending<'_>>) -> lapin::Result<()> {
    std::future::poll_fn(|context| {
        let mut failed = None;
        sending.retain_mut(|frame| match frame.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(written) => {
                failed = written.err().or(failed.take());
                false
            }
        });
        match failed {
            Some(error) => Poll::Ready(Err(error)),
            None if sending.is_empty() => Poll::Ready(Ok(())),
            None => Poll::Pending,
        }
    })
    .await
}
