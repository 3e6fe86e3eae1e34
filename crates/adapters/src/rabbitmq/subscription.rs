//! The consuming side: one connection per subscription, so that a blocked
//! publisher cannot hold up its acknowledgements.
//!
//! Promises that `receive` can be dropped at any point without losing a
//! message, that a lost connection is told once and redialled whether or not
//! anybody is waiting, and that a message which is no permit group never
//! reaches a worker: it goes to the dead-letter queue. Trusts no silence: an
//! idle subscription asks for a new consumer now and then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Delivery, DeliveryTag, QueueError, Settlement, Subscription};
use lapin::ConnectionStatus;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::connection::{Address, Backoff, Line, unavailable};
use super::stream::{Read, Stream, Wanted};
use super::topology::{self, Queue};

/// The connections of all subscriptions of one queue, for its health.
#[derive(Default)]
pub(super) struct Consuming(Mutex<Registered>);

#[derive(Default)]
struct Registered {
    last: u64,
    connections: BTreeMap<u64, ConnectionStatus>,
}

impl Consuming {
    pub(super) fn health(&self) -> Result<(), QueueError> {
        let registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match registered
            .connections
            .values()
            .all(ConnectionStatus::connected)
        {
            true => Ok(()),
            false => Err(unavailable("a subscription is being redialled")),
        }
    }

    fn register(&self, status: ConnectionStatus) -> u64 {
        let mut registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registered.last += 1;
        let key = registered.last;
        registered.connections.insert(key, status);
        key
    }

    fn replace(&self, key: u64, status: ConnectionStatus) {
        let mut registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registered.connections.insert(key, status);
    }

    fn forget(&self, key: u64) {
        let mut registered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        registered.connections.remove(&key);
    }
}

pub(super) struct RabbitSubscription {
    wanted: Arc<Wanted>,
    consuming: Arc<Consuming>,
    /// Among `consuming`.
    key: u64,
    /// The number of the connection that `state` has or will have.
    connection: u64,
    state: State,
    is_stopped: bool,
    /// Received, and not handed out because `receive` was asked for fewer or
    /// dropped.
    ready: VecDeque<Delivery>,
}

enum State {
    Consuming(Box<Stream>),
    Redialling(JoinHandle<Stream>),
    /// Stopped, and lost or never found again.
    Ended,
}

impl RabbitSubscription {
    pub(super) async fn open(
        address: Arc<Address>,
        queue: &Queue,
        prefetch: u16,
        consuming: Arc<Consuming>,
    ) -> Result<Self, QueueError> {
        let wanted = Arc::new(Wanted {
            address,
            queue: queue.clone(),
            // AMQP takes a prefetch of 0 for no limit at all.
            prefetch: prefetch.max(1),
        });
        let stream = Stream::open(&wanted).await?;
        Ok(Self {
            key: consuming.register(stream.line.status()),
            wanted,
            consuming,
            connection: 1,
            state: State::Consuming(Box::new(stream)),
            is_stopped: false,
            ready: VecDeque::new(),
        })
    }

    /// Begins to redial, unless it was stopped; gives the error to tell.
    fn lose(&mut self, reason: &str, wait: Duration) -> QueueError {
        let address = &self.wanted.address;
        tracing::warn!(%address, reason, "lost a consuming connection");
        if let State::Consuming(stream) = &self.state {
            stream.line.sever();
        }
        // Unsettled, so they come again: by another connection.
        self.ready.clear();
        self.connection += 1;
        self.state = match self.is_stopped {
            true => State::Ended,
            false => State::Redialling(tokio::spawn(redial(Arc::clone(&self.wanted), wait))),
        };
        if self.is_stopped {
            self.consuming.forget(self.key);
        }
        unavailable(reason)
    }

    /// Begins to consume anew on the same connection. Nothing is unsettled, so
    /// there is nothing to tell.
    fn renew(&mut self) {
        let State::Consuming(stream) = std::mem::replace(&mut self.state, State::Ended) else {
            return;
        };
        self.connection += 1;
        let wanted = Arc::clone(&self.wanted);
        self.state = State::Redialling(tokio::spawn(renew(stream.line, wanted)));
    }

    /// Waits until something is ready; `false` at the end of a stopped one.
    async fn fill(&mut self, max: usize) -> Result<bool, QueueError> {
        loop {
            if !self.ready.is_empty() {
                return Ok(true);
            }
            match &mut self.state {
                State::Ended => return Ok(false),
                State::Redialling(redialling) => {
                    let Ok(stream) = redialling.await else {
                        return Err(self.lose("redialling was aborted", Duration::ZERO));
                    };
                    self.consuming.replace(self.key, stream.line.status());
                    self.state = State::Consuming(Box::new(stream));
                }
                State::Consuming(stream) => {
                    let connection = self.connection;
                    match stream.read(connection, max, &mut self.ready).await {
                        Read::Some => {}
                        Read::End if self.is_stopped => return Ok(false),
                        Read::End => {
                            let reason = "the broker cancelled the consumer";
                            return Err(self.lose(reason, topology::MISSING_FOR));
                        }
                        Read::Idle if self.is_stopped => {}
                        Read::Idle => self.renew(),
                        Read::Broken(reason) => return Err(self.lose(&reason, Duration::ZERO)),
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Subscription for RabbitSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let max = max.max(1);
        // Cancel-safe: what was read is in `ready` before anything is awaited
        // again, and is taken out without awaiting.
        if !self.fill(max).await? {
            return Ok(Vec::new());
        }
        let many = self.ready.len().min(max);
        Ok(self.ready.drain(..many).collect())
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        let State::Consuming(stream) = &mut self.state else {
            return Ok(());
        };
        let of = |wanted: Settlement| {
            let connection = self.connection;
            settlements.iter().filter_map(move |(tag, settlement)| {
                (tag.connection == connection && *settlement == wanted).then_some(tag.number)
            })
        };
        let done = of(Settlement::Done);
        if let Err(error) = stream.settle(done, of(Settlement::Requeue)).await {
            // The connection is lost, so these are tags of a lost connection.
            // The next `receive` will find out and say so.
            tracing::debug!(%error, "settling failed");
            stream.line.sever();
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.is_stopped = true;
        match &self.state {
            State::Ended => {}
            State::Redialling(redialling) => {
                redialling.abort();
                self.consuming.forget(self.key);
                self.state = State::Ended;
            }
            State::Consuming(stream) => {
                if let Err(error) = stream.cancel().await {
                    tracing::debug!(%error, "stopping failed");
                    stream.line.sever();
                }
            }
        }
        Ok(())
    }
}

impl Drop for RabbitSubscription {
    fn drop(&mut self) {
        self.consuming.forget(self.key);
        if let State::Redialling(redialling) = &self.state {
            redialling.abort();
        }
    }
}

async fn redial(wanted: Arc<Wanted>, wait: Duration) -> Stream {
    sleep(wait).await;
    let mut backoff = Backoff::new();
    loop {
        backoff.wait().await;
        match Stream::open(&wanted).await {
            Ok(stream) => {
                tracing::info!(address = %wanted.address, "consuming again");
                return stream;
            }
            Err(error) => tracing::debug!(%error, "redialling failed"),
        }
    }
}

async fn renew(line: Line, wanted: Arc<Wanted>) -> Stream {
    match Stream::on(line, &wanted).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(address = %wanted.address, %error, "lost a consuming connection");
            redial(wanted, Duration::ZERO).await
        }
    }
}
