//! The connection on which takers are told that a job is due sooner than they
//! know.
//!
//! Owns a task that dials, subscribes, and dials again when the connection
//! broke or fell silent; it ends when the schedule is dropped. Promises a hint:
//! after every new subscription it tells once, for what was published before
//! that nobody heard; while there is none, it tells nothing and the scheduler
//! polls. Keeps no messages: any number of them is one hint.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::{PubSubSink, PubSubStream};
use ::redis::{Client, RedisError, RedisResult, Value};
use engine::backoff::Backoff;
use futures_util::StreamExt as _;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::timeouts::{CONNECTION_TIMEOUT, RESPONSE_TIMEOUT};

/// How often a server that says nothing is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(5);

/// The first and the longest wait before dialling again.
const REDIAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// A subscription that comes back by itself.
#[derive(Debug)]
pub(super) struct Subscriber {
    told: Arc<Notify>,
    /// Aborts its task when it is dropped.
    _task: JoinSet<()>,
}

struct Listening {
    client: Client,
    /// Where the server is, without credentials.
    address: String,
    channels: Vec<String>,
    told: Arc<Notify>,
    failures: Backoff,
}

impl Subscriber {
    /// Starts to listen, in a task of the current runtime.
    pub(super) fn start(client: Client, address: String, channels: Vec<String>) -> Self {
        let told = Arc::new(Notify::new());
        let listening = Listening {
            client,
            address,
            channels,
            told: Arc::clone(&told),
            failures: Backoff::new(REDIAL.0, REDIAL.1),
        };
        let mut task = JoinSet::new();
        task.spawn(listening.run());
        Self { told, _task: task }
    }

    /// Returns when something was published since the last return.
    pub(super) async fn told(&self) {
        self.told.notified().await;
    }
}

impl Listening {
    async fn run(mut self) {
        let mut warned = false;
        loop {
            let error = match self.subscribe().await {
                Ok((sink, messages)) => {
                    warned = false;
                    self.listen(sink, messages).await
                }
                Err(error) => error,
            };
            // Once for each outage, however often it is dialled in vain.
            if !std::mem::replace(&mut warned, true) {
                let address = self.address.as_str();
                tracing::warn!(address, %error, "not told of wakes by redis, polling until it is back");
            }
            sleep(self.failures.failed()).await;
        }
    }

    async fn subscribe(&self) -> RedisResult<(PubSubSink, PubSubStream)> {
        let subscribed = async {
            let mut connection = self.client.get_async_pubsub().await?;
            connection.subscribe(&self.channels).await?;
            Ok(connection.split())
        };
        let subscribed = timeout(CONNECTION_TIMEOUT + RESPONSE_TIMEOUT, subscribed);
        subscribed.await.unwrap_or_else(|_elapsed| Err(silent()))
    }

    /// Tells of every message; returns why there will be no more.
    async fn listen(&mut self, mut sink: PubSubSink, mut messages: PubSubStream) -> RedisError {
        // What was published before the subscription was not heard.
        self.told.notify_one();
        let mut ping_at = Instant::now() + PING_EVERY;
        loop {
            tokio::select! {
                biased;
                message = messages.next() => match message {
                    Some(_) => self.told.notify_one(),
                    None => return RedisError::from(std::io::Error::from(
                        std::io::ErrorKind::ConnectionReset,
                    )),
                },
                () = sleep_until(ping_at) => {
                    if let Err(error) = ping(&mut sink).await {
                        return error;
                    }
                    // Only now: a server that accepts and hangs up is not back.
                    self.failures.succeeded();
                    ping_at = Instant::now() + PING_EVERY;
                }
            }
        }
    }
}

async fn ping(sink: &mut PubSubSink) -> RedisResult<()> {
    let answered = timeout(RESPONSE_TIMEOUT, sink.ping::<Value>());
    answered
        .await
        .unwrap_or_else(|_elapsed| Err(silent()))
        .map(drop)
}

fn silent() -> RedisError {
    RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut))
}
