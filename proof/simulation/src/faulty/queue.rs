//! One process's way to the delivery queue. What the broker does with messages
//! is decided by [`fates`], whoever publishes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};

use super::store::short;
use crate::dice::Dice;
use crate::gate::Gate;
use crate::model::{Fate, ModelQueue};
use crate::scenario::Fault;
use crate::site::Site;
use crate::weather::Surroundings;

/// How late a delayed message is at most.
const LATEST: Duration = Duration::from_secs(4);

/// How far apart messages may arrive that were published together, where they
/// change places.
const APART: Duration = Duration::from_millis(50);

/// Says what becomes of each published group: lost, doubled, delayed, shuffled
/// or not confirmed.
pub(crate) fn fates(
    around: Surroundings,
    dice: Dice,
) -> impl FnMut(&PermitGroup) -> Fate + Send + 'static {
    let mut published = 0;
    move |_| {
        published += 1;
        let dice = dice.of(published);
        let mut fate = Fate::delivered();
        let strikes = |fault, called| around.strikes(fault, dice, called);
        if strikes(Fault::MessagesReordered, "messages reordered") {
            fate.copies = vec![dice.of(1).up_to(APART)];
        }
        if strikes(Fault::MessageDelayed, "message delayed") {
            fate.copies = vec![dice.of(2).up_to(LATEST)];
        }
        if strikes(Fault::MessageDuplicated, "message duplicated") {
            fate.copies.push(dice.of(3).up_to(LATEST));
        }
        if strikes(Fault::MessageLost, "message lost") {
            fate.copies.clear();
        }
        if strikes(Fault::PublishUnconfirmed, "publish unconfirmed") {
            fate.answer = Published::Unconfirmed;
        }
        fate
    }
}

/// A line's word for a message: the destination of each of its permits.
struct Whose<'a>(&'a PermitGroup);

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("permits of")?;
        for permit in self.0.permits() {
            write!(f, " {}", short(permit.destination))?;
        }
        Ok(())
    }
}

/// One process's way to the queue.
#[derive(Clone)]
pub(crate) struct FaultyQueue {
    pub(crate) inner: Arc<ModelQueue>,
    pub(crate) gate: Arc<Gate>,
}

impl FaultyQueue {
    fn line(&self, site: Site, what: fmt::Arguments<'_>) {
        let process = self.gate.process;
        (self.gate.around.trace).line(format_args!("{process} {site:?}: {what}"));
    }

    /// Notes and hands on an error of the broker.
    fn failed(&self, site: Site, error: QueueError) -> QueueError {
        self.line(site, format_args!("{error}"));
        error
    }
}

#[async_trait]
impl DeliveryQueue for FaultyQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        self.gate.enter(Site::Publish).await;
        let published = self.inner.publish(groups).await;
        let published = published.map_err(|error| self.failed(Site::Publish, error))?;
        for (group, answer) in groups.iter().zip(&published) {
            let permits = Whose(group);
            self.line(Site::Publish, format_args!("{permits} {answer:?}"));
        }
        self.gate.leave(Site::Publish).await;
        Ok(published)
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        self.gate.enter(Site::Subscribe).await;
        let inner = self.inner.subscribe(prefetch).await;
        let inner = inner.map_err(|error| self.failed(Site::Subscribe, error))?;
        self.gate.leave(Site::Subscribe).await;
        let queue = self.clone();
        Ok(Box::new(FaultySubscription { queue, inner }))
    }

    fn health(&self) -> Result<(), QueueError> {
        self.inner.health()
    }
}

/// A subscription of a process that may stand still or die.
struct FaultySubscription {
    queue: FaultyQueue,
    inner: Box<dyn Subscription>,
}

#[async_trait]
impl Subscription for FaultySubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        self.queue.gate.enter(Site::Receive).await;
        // No waiting after this: the future may be dropped, and what was
        // received with it.
        let received = self.inner.receive(max).await;
        let received = received.map_err(|error| self.queue.failed(Site::Receive, error))?;
        for delivery in received.iter().filter(|delivery| delivery.redelivered) {
            self.queue.gate.around.counts.note("message redelivered");
            let permits = Whose(&delivery.group);
            (self.queue).line(Site::Receive, format_args!("{permits} redelivered"));
        }
        Ok(received)
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        self.queue.gate.enter(Site::Settle).await;
        let settled = self.inner.settle(settlements).await;
        settled.map_err(|error| self.queue.failed(Site::Settle, error))?;
        self.queue.gate.leave(Site::Settle).await;
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.inner.stop().await
    }
}
