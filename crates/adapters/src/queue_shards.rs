//! One delivery queue over several, so that it scales out: each may be on
//! another node of a broker, or on a broker of its own.
//!
//! Owns which shard a group goes to (each in turn, past those that are away) and
//! one subscription to each. Promises all that the port does, over all shards
//! together. No destination belongs to a shard: the port promises no order, and
//! a busy destination has all of them to itself.
//!
//! A subscription holds one message of each shard at least. Where it may have
//! fewer than that in hand, the rest wait in it, and their permits may lapse: so
//! workers should have places for sixteen permits a shard, or more.
//!
//! The number of shards may be changed while work goes on. A message in a shard
//! that nobody reads any more is a lost one: its permits end at their deadlines
//! and go out again. So that none has to, readers have the larger number first
//! and publishers the smaller.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use domain::permit::PermitGroup;
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};
use futures_util::FutureExt;
use futures_util::future::{join_all, select_all, try_join_all};

/// Several queues that are one.
pub struct QueueShards {
    shards: Vec<Box<dyn DeliveryQueue>>,
    /// Whose turn it is.
    turn: AtomicUsize,
}

impl QueueShards {
    /// One queue over these. Fails if there are none.
    pub fn new(shards: Vec<Box<dyn DeliveryQueue>>) -> Result<Self, QueueError> {
        if shards.is_empty() {
            let problem = "a delivery queue needs at least one shard";
            return Err(QueueError::Unavailable(problem.to_owned()));
        }
        Ok(Self {
            shards,
            turn: AtomicUsize::new(0),
        })
    }

    /// The shards that take groups now; all, where none does, so that they say why.
    fn open(&self) -> Vec<usize> {
        let all = 0..self.shards.len();
        let healthy: Vec<usize> = (all.clone())
            .filter(|shard| self.shards[*shard].health().is_ok())
            .collect();
        match healthy.is_empty() {
            true => all.collect(),
            false => healthy,
        }
    }
}

#[async_trait]
impl DeliveryQueue for QueueShards {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        let open = self.open();
        let turn = self.turn.fetch_add(groups.len().max(1), Ordering::Relaxed);
        let mut parts: Vec<Vec<PermitGroup>> = vec![Vec::new(); open.len()];
        for (place, group) in groups.iter().enumerate() {
            parts[turn.wrapping_add(place) % open.len()].push(group.clone());
        }
        // One that has no group is not asked, unless nobody has any.
        let asked = (open.iter().zip(&parts)).map(|(shard, part)| async {
            match part.is_empty() && !groups.is_empty() {
                true => Ok(Vec::new()),
                false => self.shards[*shard].publish(part).await,
            }
        });
        let answers = join_all(asked).await;
        let asked_all = answers.iter().all(Result::is_ok);
        let confirmed_some = (answers.iter().flatten()).any(|answers| !answers.is_empty());
        if !asked_all && !confirmed_some {
            // An error is of all; of some, those are unconfirmed.
            return answers
                .into_iter()
                .find(Result::is_err)
                .unwrap_or(Ok(Vec::new()));
        }
        let mut answers: Vec<_> = (answers.into_iter())
            .map(|answer| answer.unwrap_or_default().into_iter())
            .collect();
        let answer = |place: usize| {
            let next = answers[turn.wrapping_add(place) % open.len()].next();
            next.unwrap_or(Published::Unconfirmed)
        };
        Ok((0..groups.len()).map(answer).collect())
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        let prefetch = usize::from(prefetch.max(1));
        if prefetch < self.shards.len() {
            let shards = self.shards.len();
            tracing::warn!(
                prefetch,
                shards,
                "fewer messages in hand than shards: some wait here while others are idle"
            );
        }
        let share = |shard: usize| {
            let count = self.shards.len();
            let share = prefetch / count + usize::from(shard < prefetch % count);
            u16::try_from(share.max(1)).unwrap_or(u16::MAX)
        };
        let opened =
            (self.shards.iter().enumerate()).map(|(shard, queue)| queue.subscribe(share(shard)));
        Ok(Box::new(ShardedSubscription {
            shards: try_join_all(opened).await?,
            prefetch,
            unsettled: HashSet::new(),
            first: 0,
            is_stopped: false,
        }))
    }

    /// As long as one shard works, permits go out and come in.
    fn health(&self) -> Result<(), QueueError> {
        let mut problem = Ok(());
        for shard in &self.shards {
            problem = shard.health();
            if problem.is_ok() {
                break;
            }
        }
        problem
    }
}

/// A subscription to each shard.
struct ShardedSubscription {
    shards: Vec<Box<dyn Subscription>>,
    /// With fewer than there are shards, each of them prefetches one all the
    /// same; what is handed out stays within this.
    prefetch: usize,
    unsettled: HashSet<DeliveryTag>,
    /// Who is asked first next time.
    first: usize,
    is_stopped: bool,
}

impl ShardedSubscription {
    fn shard_of(&self, tag: DeliveryTag) -> (usize, DeliveryTag) {
        let count = self.shards.len() as u64;
        let own = DeliveryTag {
            connection: tag.connection / count,
            number: tag.number,
        };
        ((tag.connection % count) as usize, own)
    }

    /// Hands out what a shard gave, under tags that no other shard gives.
    fn hand_out(&mut self, shard: usize, deliveries: Vec<Delivery>, into: &mut Vec<Delivery>) {
        let count = self.shards.len() as u64;
        for mut delivery in deliveries {
            delivery.tag.connection = delivery.tag.connection * count + shard as u64;
            self.unsettled.insert(delivery.tag);
            into.push(delivery);
        }
    }

    /// What a shard lost with its connection comes again under other tags.
    fn forget(&mut self, lost: usize) {
        let count = self.shards.len() as u64;
        self.unsettled
            .retain(|tag| tag.connection % count != lost as u64);
    }
}

#[async_trait]
impl Subscription for ShardedSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        let room = match self.is_stopped {
            // All that is left is to be handed out, and given back.
            true => max.max(1),
            false => (self.prefetch.saturating_sub(self.unsettled.len())).min(max.max(1)),
        };
        if room == 0 {
            // Settling makes room, and whoever settles asks again.
            return std::future::pending().await;
        }
        let count = self.shards.len();
        self.first = (self.first + 1) % count;
        let mut received = Vec::new();
        let mut ended = HashSet::new();
        while ended.len() < count {
            // Each receive is cancel-safe, so those that are dropped lose nothing.
            let waiting = (self.shards.iter_mut().enumerate())
                .filter(|(shard, _)| !ended.contains(shard))
                .map(|(shard, from)| from.receive(room).map(move |given| (shard, given)).boxed());
            let mut waiting: Vec<_> = waiting.collect();
            let turn = self.first % waiting.len();
            waiting.rotate_left(turn);
            let ((shard, given), _, others) = select_all(waiting).await;
            drop(others);
            match given {
                Err(error) => {
                    self.forget(shard);
                    return Err(error);
                }
                Ok(deliveries) if deliveries.is_empty() => {
                    ended.insert(shard);
                }
                Ok(deliveries) => {
                    self.hand_out(shard, deliveries, &mut received);
                    break;
                }
            }
        }
        self.add_at_hand(room, &ended, &mut received);
        Ok(received)
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        let mut parts = vec![Vec::new(); self.shards.len()];
        for (tag, settlement) in settlements {
            self.unsettled.remove(tag);
            let (shard, own) = self.shard_of(*tag);
            parts[shard].push((own, *settlement));
        }
        let settled = (self.shards.iter_mut().zip(&parts))
            .filter(|(_, part)| !part.is_empty())
            .map(|(from, part)| from.settle(part));
        // All are told, whatever one of them answers.
        join_all(settled).await.into_iter().collect()
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.is_stopped = true;
        let stopped = self.shards.iter_mut().map(|from| from.stop());
        join_all(stopped).await.into_iter().collect()
    }
}

impl ShardedSubscription {
    /// Adds what the others have at hand, without waiting for any.
    fn add_at_hand(&mut self, room: usize, ended: &HashSet<usize>, received: &mut Vec<Delivery>) {
        for shard in 0..self.shards.len() {
            if received.is_empty() || received.len() >= room || ended.contains(&shard) {
                continue;
            }
            let more = self.shards[shard].receive(room - received.len());
            match more.now_or_never() {
                Some(Ok(deliveries)) => self.hand_out(shard, deliveries, received),
                // It is dialling again, and has said so once: its tags are over.
                Some(Err(error)) => {
                    tracing::warn!(%error, shard, "lost a shard of the delivery queue");
                    self.forget(shard);
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
