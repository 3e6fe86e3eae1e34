//! The delivery queue of the embedded size: a bounded deque in memory.
//!
//! Promises the order of publishing, and that what a dropped subscription left
//! unsettled comes again. Refuses more messages than its capacity, counting
//! the unsettled ones. Holds no lock while it waits, and reads no clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};
use tokio::sync::Notify;

/// A queue within this process, for any number of subscriptions.
#[derive(Debug)]
pub struct InProcessQueue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    capacity: usize,
    messages: Mutex<Messages>,
    /// There is something to take. All who wait are woken and look: with one
    /// wake-up a message, one that was spent on a `receive` which is being
    /// dropped would leave a message lying beside somebody who waits.
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Messages {
    ready: VecDeque<Message>,
    unsettled: usize,
    subscriptions: u64,
}

#[derive(Debug)]
struct Message {
    group: PermitGroup,
    redelivered: bool,
}

impl InProcessQueue {
    /// Holds at most `capacity` groups, ready and unsettled together.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                capacity,
                messages: Mutex::default(),
                arrived: Notify::new(),
            }),
        }
    }
}

impl Shared {
    fn messages(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives messages back, oldest first, ahead of those never delivered.
    fn redeliver(&self, groups: impl DoubleEndedIterator<Item = PermitGroup>) {
        {
            let mut messages = self.messages();
            for group in groups.rev() {
                messages.unsettled -= 1;
                messages.ready.push_front(Message {
                    group,
                    redelivered: true,
                });
            }
        }
        self.arrived.notify_waiters();
    }
}

#[async_trait]
impl DeliveryQueue for InProcessQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        let mut answers = vec![Published::Unconfirmed; groups.len()];
        {
            let mut messages = self.shared.messages();
            let held = messages.ready.len() + messages.unsettled;
            let room = self.shared.capacity.saturating_sub(held);
            for (group, answer) in groups.iter().zip(&mut answers).take(room) {
                messages.ready.push_back(Message {
                    group: group.clone(),
                    redelivered: false,
                });
                *answer = Published::Confirmed;
            }
        }
        self.shared.arrived.notify_waiters();
        Ok(answers)
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let connection = {
            let mut messages = self.shared.messages();
            messages.subscriptions += 1;
            messages.subscriptions
        };
        Ok(Box::new(InProcessSubscription {
            shared: Arc::clone(&self.shared),
            connection,
            prefetch: usize::from(prefetch.max(1)),
            last: 0,
            unsettled: BTreeMap::new(),
            is_stopped: false,
        }))
    }

    fn health(&self) -> Result<(), QueueError> {
        Ok(())
    }
}

/// Takes from the shared deque only when asked, so that it has nothing
/// prefetched that a `stop` would leave to be received.
struct InProcessSubscription {
    shared: Arc<Shared>,
    connection: u64,
    prefetch: usize,
    last: u64,
    unsettled: BTreeMap<u64, PermitGroup>,
    is_stopped: bool,
}

impl InProcessSubscription {
    fn take(&mut self, max: usize) -> Vec<Delivery> {
        let room = self.prefetch - self.unsettled.len();
        let mut messages = self.shared.messages();
        let many = max.max(1).min(room).min(messages.ready.len());
        messages.unsettled += many;
        let mut taken = Vec::with_capacity(many);
        for message in messages.ready.drain(..many) {
            self.last += 1;
            self.unsettled.insert(self.last, message.group.clone());
            taken.push(Delivery {
                tag: DeliveryTag {
                    connection: self.connection,
                    number: self.last,
                },
                group: message.group,
                redelivered: message.redelivered,
            });
        }
        taken
    }
}

#[async_trait]
impl Subscription for InProcessSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let shared = Arc::clone(&self.shared);
        while !self.is_stopped {
            // Listening before looking: a message that arrives in between
            // finds us listening.
            let arrived = shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let taken = self.take(max);
            if !taken.is_empty() {
                return Ok(taken);
            }
            arrived.await;
        }
        Ok(Vec::new())
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        let mut requeued = BTreeMap::new();
        let mut done = 0;
        for (tag, settlement) in settlements {
            if tag.connection != self.connection {
                continue;
            }
            let Some(group) = self.unsettled.remove(&tag.number) else {
                continue;
            };
            match settlement {
                Settlement::Done => done += 1,
                Settlement::Requeue => {
                    requeued.insert(tag.number, group);
                }
            }
        }
        self.shared.messages().unsettled -= done;
        if !requeued.is_empty() {
            self.shared.redeliver(requeued.into_values());
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.is_stopped = true;
        Ok(())
    }
}

impl Drop for InProcessSubscription {
    fn drop(&mut self) {
        if !self.unsettled.is_empty() {
            let unsettled = std::mem::take(&mut self.unsettled);
            self.shared.redeliver(unsettled.into_values());
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
    use domain::permit::Permit;
    use domain::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn group(attempt: i64) -> PermitGroup {
        PermitGroup::new(vec![Permit {
            destination: DestinationId(Uuid::nil()),
            attempt: AttemptId(attempt),
            number: PermitNumber(1),
            epoch: Epoch(1),
            not_before: Timestamp::MIN,
            deadline: Timestamp::MAX,
        }])
        .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn beyond_its_capacity_it_confirms_nothing() {
        let queue = InProcessQueue::new(2);
        let answers = queue
            .publish(&[group(1), group(2), group(3)])
            .await
            .unwrap();
        let (yes, no) = (Published::Confirmed, Published::Unconfirmed);
        assert_eq!(answers, [yes, yes, no]);
        // Unsettled ones are still held.
        let mut subscription = queue.subscribe(10).await.unwrap();
        let received = subscription.receive(1).await.unwrap();
        assert_eq!(queue.publish(&[group(4)]).await.unwrap(), [no]);
        let done = (received[0].tag, Settlement::Done);
        subscription.settle(&[done]).await.unwrap();
        assert_eq!(
            queue.publish(&[group(5), group(6)]).await.unwrap(),
            [yes, no]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_again_comes_first_and_in_order() {
        let queue = InProcessQueue::new(10);
        queue
            .publish(&[group(1), group(2), group(3)])
            .await
            .unwrap();
        let mut first = queue.subscribe(2).await.unwrap();
        assert_eq!(first.receive(10).await.unwrap().len(), 2);
        drop(first);
        let mut second = queue.subscribe(10).await.unwrap();
        let again = second.receive(10).await.unwrap();
        let attempts: Vec<_> = again
            .iter()
            .map(|one| one.group.permits()[0].attempt.0)
            .collect();
        assert_eq!(attempts, [1, 2, 3]);
        let marks: Vec<_> = again.iter().map(|one| one.redelivered).collect();
        assert_eq!(marks, [true, true, false]);
    }
}
