//! The worker: receive, wait, claim, acknowledge, send, record.
//!
//! A permit in hand is a promise of nothing: the connection is made ready and
//! the slot waited for first, then the start is **claimed** in the store, and
//! only then, at once, the request is sent. A message is acknowledged when the
//! store knows of each of its permits; from then on a redelivery could only be
//! refused.
//!
//! Claims and outcomes of many permits travel in one statement each
//! ([`claims`], [`records`]); what is in hand is bounded by the prefetch and
//! by the places.

mod claims;
mod deliver;
mod hand;
mod identity;
mod promptness;
mod records;
mod targets;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use domain::permit::MAX_GROUP;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::ports::{
    Delivery, DeliveryQueue, QueueError, Schedule, Sender, Settlement, Store, Subscription,
};
use crate::store_clock::SharedClock;
pub use promptness::AT_MOST as MAX_CLAIM_TO_SEND;

use claims::Claims;
use deliver::Deliverer;
use hand::Hand;
use identity::Identity;
use promptness::Promptness;
use records::Records;
use targets::Targets;

/// How a worker runs.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOptions {
    /// How many attempts it sends at once, at least [`MIN_PLACES`].
    pub places: u32,
    /// For one exchange, from dialling to the last byte, at most.
    pub request_timeout: Duration,
    /// How long started attempts may take to finish after a shutdown began.
    pub grace: Duration,
    /// Seeds the worker's ids and the jitter of retries.
    pub seed: u64,
}

/// The fewest places a worker can have: one full message's worth.
pub const MIN_PLACES: u32 = 16;

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            places: 1_024,
            request_timeout: Duration::from_secs(15),
            grace: Duration::from_secs(20),
            seed: 0,
        }
    }
}

/// The loop.
pub struct Worker {
    store: Arc<dyn Store>,
    schedule: Arc<dyn Schedule>,
    queue: Arc<dyn DeliveryQueue>,
    sender: Arc<dyn Sender>,
    options: WorkerOptions,
}

impl Worker {
    /// A worker over these parts.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        schedule: Arc<dyn Schedule>,
        queue: Arc<dyn DeliveryQueue>,
        sender: Arc<dyn Sender>,
        options: WorkerOptions,
    ) -> Self {
        Self {
            store,
            schedule,
            queue,
            sender,
            options,
        }
    }

    /// Delivers until `shutdown`. Then it takes nothing more, hands back what
    /// has not started, lets what has started finish within the grace period,
    /// records it, and retires.
    pub async fn run(self, shutdown: CancellationToken) {
        let places = self.options.places.max(MIN_PLACES);
        let rng = Arc::new(Mutex::new(StdRng::seed_from_u64(self.options.seed)));
        let identity = Arc::new(Identity::new(
            Arc::clone(&self.store),
            places,
            Arc::clone(&rng),
        ));
        if !identity.introduce(&shutdown).await {
            return;
        }
        // These outlive the shutdown: what has started must still be recorded.
        let background = TaskTracker::new();
        let ended = CancellationToken::new();
        background.spawn(Arc::clone(&identity).beat(ended.clone()));
        let clock = Arc::new(SharedClock::new());
        let claims = Claims::spawn(
            &background,
            (Arc::clone(&self.store), Arc::clone(&self.schedule)),
            Arc::clone(&clock),
            Arc::clone(&identity),
        );
        let records = Records::spawn(
            &background,
            Arc::clone(&self.store),
            Arc::clone(&self.schedule),
            places,
        );
        let deliverer = Arc::new(Deliverer {
            store: Arc::clone(&self.store),
            schedule: Arc::clone(&self.schedule),
            sender: Arc::clone(&self.sender),
            clock,
            claims,
            records,
            places: Arc::new(Semaphore::new(places as usize)),
            rng,
            promptness: Promptness::new(),
            request_timeout: self.options.request_timeout,
            shutdown: shutdown.clone(),
        });
        let targets = Targets::new(Arc::clone(&self.store));
        let receiving = Receiving {
            queue: self.queue,
            prefetch: prefetch(places),
            deliverer,
            targets,
            tasks: TaskTracker::new(),
            hand: Hand::default(),
        };
        receiving.run(&shutdown, self.options.grace).await;
        // Nobody holds the channels any more: claims and records end when they
        // are empty. A store that is away must not hold up the exit for ever.
        background.close();
        let _ = tokio::time::timeout(self.options.grace, async {
            // The heartbeat goes on until the last outcome is recorded.
            while background.len() > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        ended.cancel();
        identity.retire().await;
    }
}

/// How many messages may be in hand: so many that even full ones find a place
/// each.
fn prefetch(places: u32) -> u16 {
    let group = u32::try_from(MAX_GROUP).unwrap_or(u32::MAX);
    u16::try_from((places / group).max(1)).unwrap_or(u16::MAX)
}

/// The receiving end: messages in, tasks out, settlements back.
struct Receiving {
    queue: Arc<dyn DeliveryQueue>,
    prefetch: u16,
    deliverer: Arc<Deliverer>,
    targets: Targets,
    tasks: TaskTracker,
    hand: Hand,
}

impl Receiving {
    async fn run(mut self, shutdown: &CancellationToken, grace: Duration) {
        if let Some(mut subscription) = self.subscribe(shutdown).await {
            self.receive(subscription.as_mut(), shutdown).await;
            self.hand_back(subscription.as_mut(), grace).await;
        }
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                attempts = self.tasks.len(),
                "started attempts outlast the grace period: they will be recorded as unknown"
            );
        }
    }

    async fn subscribe(&self, shutdown: &CancellationToken) -> Option<Box<dyn Subscription>> {
        let mut failures = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.queue.subscribe(self.prefetch).await {
                Ok(subscription) => return Some(subscription),
                Err(error) => tracing::warn!(%error, "not subscribed, will try again"),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(failures.failed()) => {}
            }
        }
    }

    async fn receive(&mut self, subscription: &mut dyn Subscription, shutdown: &CancellationToken) {
        let mut failures = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        loop {
            let received = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.hand.settled() => {
                    self.settle(subscription).await;
                    continue;
                }
                received = subscription.receive(usize::from(self.prefetch)) => received,
            };
            match received {
                Ok(deliveries) => {
                    failures.succeeded();
                    self.begin(deliveries).await;
                }
                Err(error) => {
                    log_lost(&error);
                    tokio::time::sleep(failures.failed()).await;
                }
            }
        }
    }

    /// Begins each permit as a task of its own.
    async fn begin(&mut self, deliveries: Vec<Delivery>) {
        let permits: Vec<_> = (deliveries.iter())
            .flat_map(|delivery| delivery.group.permits())
            .copied()
            .collect();
        let targets = self.targets.of(&permits).await;
        for delivery in deliveries {
            let target = targets.get(&delivery.group.destination()).cloned();
            for in_hand in self.hand.take_up(&delivery) {
                let deliverer = Arc::clone(&self.deliverer);
                let target = target.clone();
                self.tasks
                    .spawn(async move { deliverer.deliver(in_hand, target).await });
            }
        }
    }

    async fn settle(&self, subscription: &mut dyn Subscription) {
        let (settlements, unbegun) = self.hand.take_settled();
        if !unbegun.is_empty() {
            self.deliverer.release(&unbegun).await;
        }
        if let Err(error) = subscription.settle(&settlements).await {
            log_lost(&error);
        }
    }

    /// Gives back what has not begun: whole messages to the queue, the rest of
    /// half-begun ones to the store.
    async fn hand_back(&self, subscription: &mut dyn Subscription, grace: Duration) {
        let given_back = async {
            let _ = subscription.stop().await;
            while let Ok(deliveries) = subscription.receive(usize::MAX).await {
                if deliveries.is_empty() {
                    break;
                }
                let requeue: Vec<_> = (deliveries.iter())
                    .map(|delivery| (delivery.tag, Settlement::Requeue))
                    .collect();
                let _ = subscription.settle(&requeue).await;
            }
            while !self.hand.is_empty() {
                self.hand.settled().await;
                self.settle(subscription).await;
            }
        };
        if tokio::time::timeout(grace, given_back).await.is_err() {
            tracing::warn!("permits not handed back in time: they will expire");
        }
    }
}

fn log_lost(error: &QueueError) {
    tracing::warn!(%error, "delivery queue lost, will be dialled again");
}
