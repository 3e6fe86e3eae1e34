//! The receiving end: messages in, tasks out, settlements back.

use std::sync::Arc;
use std::time::Duration;

use domain::permit::MAX_GROUP;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::ports::{Delivery, DeliveryQueue, QueueError, Settlement, Subscription};
use crate::worker::deliver::Deliverer;
use crate::worker::hand::{Hand, InHand};
use crate::worker::targets::{Addressee, Targets};

/// How many messages may be in hand: so many that there is a place for each of
/// their permits where all are full. A broker counts messages, so those that are
/// not full leave places empty; schedulers fill them with permits of whatever
/// destinations ([`PermitGroup::split`](domain::permit::PermitGroup::split)).
pub(super) fn prefetch(places: u32) -> u16 {
    let group = u32::try_from(MAX_GROUP).unwrap_or(u32::MAX);
    u16::try_from((places / group).max(1)).unwrap_or(u16::MAX)
}

/// What the loop holds.
pub(super) struct Receiving {
    pub(super) queue: Arc<dyn DeliveryQueue>,
    pub(super) prefetch: u16,
    pub(super) deliverer: Arc<Deliverer>,
    pub(super) targets: Targets,
    pub(super) tasks: TaskTracker,
    pub(super) hand: Hand,
    /// Ends deliveries wherever they are.
    pub(super) given_up: CancellationToken,
}

impl Receiving {
    /// Receives until `shutdown`, hands back, and lets what has started finish
    /// for `grace` from then on; what has not by then is dropped, with its
    /// connection. Returns when the grace period ends. No delivery is left.
    pub(super) async fn run(mut self, shutdown: &CancellationToken, grace: Duration) -> Instant {
        let mut subscription = self.subscribe(shutdown).await;
        if let Some(subscription) = &mut subscription {
            self.receive(subscription.as_mut(), shutdown).await;
        }
        let end = Instant::now() + grace;
        if let Some(subscription) = &mut subscription {
            self.hand_back(subscription.as_mut(), end).await;
        }
        self.tasks.close();
        if timeout_at(end, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                attempts = self.tasks.len(),
                "started attempts outlast the grace period: they will be recorded as unknown"
            );
            self.given_up.cancel();
            self.tasks.wait().await;
        }
        end
    }

    async fn subscribe(&self, shutdown: &CancellationToken) -> Option<Box<dyn Subscription>> {
        let mut failures = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            let subscribed = tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                subscribed = self.queue.subscribe(self.prefetch) => subscribed,
            };
            match subscribed {
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
                    tokio::select! {
                        biased;
                        () = shutdown.cancelled() => return,
                        () = tokio::time::sleep(failures.failed()) => {}
                    }
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
            for in_hand in self.hand.take_up(&delivery) {
                let deliverer = Arc::clone(&self.deliverer);
                let target = targets.get(&in_hand.permit.destination).cloned();
                let given_up = self.given_up.clone();
                // Boxed, because a task is moved several times until it is over: with one of
                // 11 KiB that was a twentieth of a worker's time.
                self.tasks.spawn(Box::pin(until_given_up(
                    given_up, deliverer, in_hand, target,
                )));
            }
        }
    }

    async fn settle(&self, subscription: &mut dyn Subscription) {
        let (settlements, unbegun) = self.hand.take_settled();
        if !unbegun.is_empty() {
            self.deliverer.release(&unbegun).await;
        }
        if settlements.is_empty() {
            return;
        }
        if let Err(error) = subscription.settle(&settlements).await {
            log_lost(&error);
        }
    }

    /// Gives back what has not begun: whole messages to the queue, the rest of
    /// half-begun ones to the store.
    async fn hand_back(&self, subscription: &mut dyn Subscription, end: Instant) {
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
                self.hand.settled_or_empty().await;
                self.settle(subscription).await;
            }
        };
        if timeout_at(end, given_back).await.is_err() {
            tracing::warn!("permits not handed back in time: they will expire");
        }
    }
}

/// Delivers, unless it is given up before that is over. The token's own
/// `run_until_cancelled` has room twice for what it runs.
async fn until_given_up(
    given_up: CancellationToken,
    deliverer: Arc<Deliverer>,
    in_hand: InHand,
    addressee: Option<Arc<Addressee>>,
) {
    if given_up.is_cancelled() {
        return;
    }
    tokio::select! {
        biased;
        () = deliverer.deliver(in_hand, addressee) => {}
        () = given_up.cancelled() => {}
    }
}

fn log_lost(error: &QueueError) {
    tracing::warn!(%error, "delivery queue lost, will be dialled again");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of<F: Future>(
        _: impl Fn(CancellationToken, Arc<Deliverer>, InHand, Option<Arc<Addressee>>) -> F,
    ) -> usize {
        size_of::<F>()
    }

    /// A worker has some thousands of them.
    #[test]
    fn a_permit_that_waits_in_hand_is_small() {
        let bytes = bytes_of(until_given_up);
        assert!(bytes <= 2_048, "{bytes} bytes");
    }
}
