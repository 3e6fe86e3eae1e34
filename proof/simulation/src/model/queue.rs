//! The model of the delivery queue: a broker that pushes to its consumers as
//! far as their prefetch goes, and loses, doubles, delays and reorders what
//! its caller says.

mod broker;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use broker::Broker;

/// What becomes of one published group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// One entry for each copy that arrives: after how long. None: it is
    /// lost. Different delays reorder.
    pub copies: Vec<Duration>,
    /// What the publisher is told, whatever arrives.
    pub answer: Published,
}

impl Fate {
    /// It arrives, once, at once, and is confirmed.
    #[must_use]
    pub fn delivered() -> Self {
        Self::after(Duration::ZERO)
    }

    /// It is confirmed, and arrives once, later.
    #[must_use]
    pub fn after(delay: Duration) -> Self {
        Self {
            copies: vec![delay],
            answer: Published::Confirmed,
        }
    }

    /// It is confirmed, and never arrives.
    #[must_use]
    pub const fn lost() -> Self {
        Self {
            copies: Vec::new(),
            answer: Published::Confirmed,
        }
    }
}

/// Whether the broker can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It takes and gives.
    Up,
    /// It takes no publishes; consuming goes on.
    Blocked,
    /// Not reachable.
    Down,
}

/// Decides what becomes of a published group. It is called in the order of
/// publishing, and must not call the queue.
type Decide = Box<dyn FnMut(&PermitGroup) -> Fate + Send>;

/// A queue in memory. Without a caller that decides otherwise, it delivers
/// everything once.
pub struct ModelQueue {
    shared: Arc<Shared>,
    decide: Mutex<Decide>,
}

#[derive(Debug)]
struct Shared {
    broker: Mutex<Broker>,
    /// Told of everything that may let somebody go on.
    arrived: Notify,
}

impl ModelQueue {
    /// Holds at most `capacity` groups, and confirms none beyond.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                broker: Mutex::new(Broker::new(capacity)),
                arrived: Notify::new(),
            }),
            decide: Mutex::new(Box::new(|_| Fate::delivered())),
        }
    }

    /// From now on `decide` says what becomes of each published group.
    pub fn decide_by(&self, decide: impl FnMut(&PermitGroup) -> Fate + Send + 'static) {
        *self.decide.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(decide);
    }

    /// Sets whether the broker can be reached. Going down breaks all
    /// connections; what was unsettled is kept, and comes again.
    pub fn set_condition(&self, condition: Condition) {
        self.shared.change(|broker| {
            broker.condition = condition;
            if condition == Condition::Down {
                broker.disconnect_all();
            }
        });
    }

    /// Breaks all connections: what was unsettled comes again.
    pub fn break_connections(&self) {
        self.shared.change(Broker::disconnect_all);
    }

    /// Loses all messages but those that somebody has received or prefetched.
    pub fn purge(&self) {
        self.shared.change(Broker::purge);
    }

    /// Loses all messages and breaks all connections. The first who comes
    /// again declares the queue anew.
    pub fn delete(&self) {
        self.shared.change(Broker::delete);
    }

    /// How many messages it holds: ready, on their way, and unsettled.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.broker().held()
    }
}

impl std::fmt::Debug for ModelQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ModelQueue");
        debug.field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Shared {
    fn broker(&self) -> MutexGuard<'_, Broker> {
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the broker, and lets it push what the change makes room for.
    fn change<T>(&self, change: impl FnOnce(&mut Broker) -> T) -> T {
        let answer = {
            let mut broker = self.broker();
            let answer = change(&mut broker);
            broker.dispatch(Instant::now());
            answer
        };
        self.arrived.notify_waiters();
        answer
    }
}

fn down() -> QueueError {
    QueueError::Unavailable("the model is down".to_owned())
}

#[async_trait]
impl DeliveryQueue for ModelQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        self.health()?;
        let mut decide = self.decide.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        Ok(self.shared.change(|broker| {
            let publish = |group| broker.publish(group, &decide(group), now);
            groups.iter().map(publish).collect()
        }))
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let prefetch = usize::from(prefetch.max(1));
        let connection = self.shared.change(|broker| match broker.condition {
            Condition::Up | Condition::Blocked => Ok(broker.connect(prefetch)),
            Condition::Down => Err(down()),
        })?;
        Ok(Box::new(ModelSubscription {
            shared: Arc::clone(&self.shared),
            connection,
            prefetch,
            is_stopped: false,
        }))
    }

    fn health(&self) -> Result<(), QueueError> {
        match self.shared.broker().condition {
            Condition::Up => Ok(()),
            Condition::Blocked => Err(QueueError::Blocked("a memory alarm".to_owned())),
            Condition::Down => Err(down()),
        }
    }
}

struct ModelSubscription {
    shared: Arc<Shared>,
    connection: u64,
    prefetch: usize,
    is_stopped: bool,
}

/// What a look at the broker found.
enum Found {
    Messages(Vec<Delivery>),
    /// Nothing before the next arrival, unless somebody changes something.
    Nothing(Option<Instant>),
}

impl ModelSubscription {
    fn look(&mut self, max: usize) -> Result<Found, QueueError> {
        let mut broker = self.shared.broker();
        if !broker.is_connected(self.connection) {
            if self.is_stopped {
                return Ok(Found::Messages(Vec::new()));
            }
            if broker.condition == Condition::Down {
                // Redialling goes on until it is up again.
                return Ok(Found::Nothing(None));
            }
            self.connection = broker.connect(self.prefetch);
            return Err(QueueError::Unavailable("the connection broke".to_owned()));
        }
        broker.dispatch(Instant::now());
        let received = broker.receive(self.connection, max);
        if received.is_empty() && !self.is_stopped {
            return Ok(Found::Nothing(broker.next_arrival()));
        }
        Ok(Found::Messages(received))
    }
}

#[async_trait]
impl Subscription for ModelSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let shared = Arc::clone(&self.shared);
        loop {
            // Listening before looking: what changes in between finds us
            // listening.
            let arrived = shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            match self.look(max)? {
                Found::Messages(messages) => return Ok(messages),
                Found::Nothing(None) => arrived.await,
                Found::Nothing(Some(at)) => {
                    let _ = timeout_at(at, arrived).await;
                }
            }
        }
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        let own = self.connection;
        let own = settlements.iter().filter(|(tag, _)| tag.connection == own);
        self.shared.change(|broker| broker.settle(own));
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.is_stopped = true;
        self.shared.change(|broker| broker.stop(self.connection));
        Ok(())
    }
}

impl Drop for ModelSubscription {
    fn drop(&mut self) {
        let connection = self.connection;
        self.shared.change(|broker| broker.disconnect(connection));
    }
}
