//! The delivery queue, which loses, doubles, delays and shuffles messages, goes
//! away, and drops connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::gate::{Gate, Site};
use crate::model::ModelQueue;
use crate::scenario::Fault;

/// How late a delayed message is at most.
const LATEST: Duration = Duration::from_secs(4);

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

    /// Whether the broker is away.
    fn is_down(&self, dice: Dice) -> Result<(), QueueError> {
        if self.gate.strikes(Fault::QueueDown, dice, "queue down") {
            return Err(QueueError::Unavailable("the broker is away".to_owned()));
        }
        Ok(())
    }

    /// What arrives at once of what was published, in what order; what is
    /// delayed comes by itself.
    fn arriving(&self, groups: &[PermitGroup], dice: Dice) -> Vec<PermitGroup> {
        let mut arriving = Vec::new();
        for (number, group) in (3..).zip(groups) {
            let dice = dice.of(number);
            if (self.gate).strikes(Fault::MessageLost, dice, "message lost") {
                continue;
            }
            if (self.gate).strikes(Fault::MessageDelayed, dice, "message delayed") {
                self.deliver_later(group.clone(), dice.up_to(LATEST));
                continue;
            }
            if (self.gate).strikes(Fault::MessageDuplicated, dice, "message duplicated") {
                self.deliver_later(group.clone(), dice.up_to(LATEST));
            }
            arriving.push(group.clone());
        }
        let shuffles = arriving.len() > 1
            && (self.gate).strikes(Fault::MessagesReordered, dice, "messages reordered");
        if shuffles {
            arriving.reverse();
        }
        arriving
    }

    fn deliver_later(&self, group: PermitGroup, after: Duration) {
        let queue = Arc::clone(&self.inner);
        tokio::spawn(async move {
            sleep(after).await;
            queue.publish(&[group]).await.map(drop)
        });
    }
}

#[async_trait]
impl DeliveryQueue for FaultyQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        let (_, dice) = self.gate.enter(Site::Publish).await;
        self.is_down(dice)?;
        let arriving = self.arriving(groups, dice);
        self.line(
            Site::Publish,
            format_args!("{} groups, {} at once", groups.len(), arriving.len()),
        );
        if !arriving.is_empty() {
            self.inner.publish(&arriving).await?;
        }
        let answers = (1_000..)
            .zip(groups)
            .map(|(number, _)| {
                let dice = dice.of(number);
                let lost = "publish unconfirmed";
                match self.gate.strikes(Fault::PublishUnconfirmed, dice, lost) {
                    true => Published::Unconfirmed,
                    false => Published::Confirmed,
                }
            })
            .collect();
        self.gate.leave(Site::Publish).await;
        Ok(answers)
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let (_, dice) = self.gate.enter(Site::Subscribe).await;
        self.is_down(dice)?;
        let inner = self.inner.subscribe(prefetch).await?;
        self.gate.leave(Site::Subscribe).await;
        Ok(Box::new(FaultySubscription {
            queue: self.clone(),
            prefetch,
            inner: Some(inner),
            is_stopped: false,
        }))
    }

    fn health(&self) -> Result<(), QueueError> {
        self.is_down(self.gate.roll(Site::Publish))?;
        self.inner.health()
    }
}

/// A subscription whose connection may break; then it is dialled again.
struct FaultySubscription {
    queue: FaultyQueue,
    prefetch: u16,
    inner: Option<Box<dyn Subscription>>,
    is_stopped: bool,
}

impl FaultySubscription {
    async fn connected(&mut self) -> Result<&mut Box<dyn Subscription>, QueueError> {
        if self.inner.is_none() {
            let inner = self.queue.inner.subscribe(self.prefetch).await?;
            self.inner = Some(inner);
        }
        (self.inner.as_mut()).ok_or_else(|| QueueError::Unavailable("not connected".to_owned()))
    }
}

#[async_trait]
impl Subscription for FaultySubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let gate = Arc::clone(&self.queue.gate);
        let (_, dice) = gate.enter(Site::Receive).await;
        self.queue.is_down(dice)?;
        if self.is_stopped && self.inner.is_none() {
            return Ok(Vec::new());
        }
        let lost = "queue connection lost";
        if gate.strikes(Fault::ConnectionLost, dice, lost) {
            // What was unsettled goes back to the queue.
            self.inner = None;
            self.queue.line(Site::Receive, format_args!("lost"));
            return Err(QueueError::Unavailable("the connection broke".to_owned()));
        }
        let deliveries = self.connected().await?.receive(max).await?;
        // No waiting from here on: this future may be dropped, and what was
        // received with it.
        for delivery in deliveries.iter().filter(|delivery| delivery.redelivered) {
            gate.around.counts.note("message redelivered");
            let group = delivery.group.destination();
            self.queue
                .line(Site::Receive, format_args!("{group} redelivered"));
        }
        Ok(deliveries)
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        let gate = Arc::clone(&self.queue.gate);
        let (_, dice) = gate.enter(Site::Settle).await;
        self.queue.is_down(dice)?;
        if let Some(inner) = &mut self.inner {
            inner.settle(settlements).await?;
        }
        gate.leave(Site::Settle).await;
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.is_stopped = true;
        match &mut self.inner {
            Some(inner) => inner.stop().await,
            None => Ok(()),
        }
    }
}
