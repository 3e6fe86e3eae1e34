//! What the broker holds, and who gets what. No time passes in here.

use std::collections::{BTreeMap, VecDeque};

use domain::permit::PermitGroup;
use engine::ports::{Delivery, DeliveryTag, Published, Settlement};
use tokio::time::Instant;

use super::{Condition, Fate};

/// The queue, and the connections that consume from it.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) condition: Condition,
    capacity: usize,
    ready: VecDeque<Message>,
    /// Copies that are on their way, in the order in which they arrive.
    late: BTreeMap<(Instant, u64), Message>,
    connections: BTreeMap<u64, Connection>,
    last_connection: u64,
    last_copy: u64,
    /// Who was served last: the next one is next.
    served: u64,
}

#[derive(Debug)]
struct Message {
    group: PermitGroup,
    redelivered: bool,
}

#[derive(Debug)]
struct Connection {
    prefetch: usize,
    stopped: bool,
    last_number: u64,
    /// Prefetched, and not received yet.
    buffered: VecDeque<u64>,
    /// Prefetched or received, and not settled yet.
    unsettled: BTreeMap<u64, Message>,
}

impl Connection {
    fn has_room(&self) -> bool {
        !self.stopped && self.unsettled.len() < self.prefetch
    }
}

impl Broker {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            condition: Condition::Up,
            capacity,
            ready: VecDeque::new(),
            late: BTreeMap::new(),
            connections: BTreeMap::new(),
            last_connection: 0,
            last_copy: 0,
            served: 0,
        }
    }

    /// Messages that wait, are on their way, and are unsettled.
    pub(super) fn held(&self) -> usize {
        let unsettled = self.connections.values().map(|one| one.unsettled.len());
        self.ready.len() + self.late.len() + unsettled.sum::<usize>()
    }

    /// Takes one published group, as its fate says.
    pub(super) fn publish(&mut self, group: &PermitGroup, fate: &Fate, now: Instant) -> Published {
        if self.held() + fate.copies.len() > self.capacity {
            return Published::Unconfirmed;
        }
        for delay in &fate.copies {
            self.last_copy += 1;
            let message = Message {
                group: group.clone(),
                redelivered: false,
            };
            self.late.insert((now + *delay, self.last_copy), message);
        }
        fate.answer
    }

    /// Lets what has arrived by `now` be ready, and pushes what is ready to
    /// connections with room, one after the other.
    pub(super) fn dispatch(&mut self, now: Instant) {
        while let Some(copy) = self.late.first_entry().filter(|copy| copy.key().0 <= now) {
            self.ready.push_back(copy.remove());
        }
        while !self.ready.is_empty()
            && let Some(id) = self.next_with_room()
            && let Some(connection) = self.connections.get_mut(&id)
            && let Some(message) = self.ready.pop_front()
        {
            self.served = id;
            connection.last_number += 1;
            connection.buffered.push_back(connection.last_number);
            connection.unsettled.insert(connection.last_number, message);
        }
    }

    fn next_with_room(&self) -> Option<u64> {
        let after = self.connections.range(self.served + 1..);
        let up_to = self.connections.range(..=self.served);
        let mut in_turn = after.chain(up_to);
        in_turn.find(|(_, one)| one.has_room()).map(|(id, _)| *id)
    }

    /// When the next copy arrives.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.late.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn connect(&mut self, prefetch: usize) -> u64 {
        self.last_connection += 1;
        let connection = Connection {
            prefetch,
            stopped: false,
            last_number: 0,
            buffered: VecDeque::new(),
            unsettled: BTreeMap::new(),
        };
        self.connections.insert(self.last_connection, connection);
        self.last_connection
    }

    /// Whether a connection has not been lost.
    pub(super) fn is_connected(&self, id: u64) -> bool {
        self.connections.contains_key(&id)
    }

    /// Up to `max` of what a connection has prefetched.
    pub(super) fn receive(&mut self, id: u64, max: usize) -> Vec<Delivery> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Vec::new();
        };
        let many = max.max(1).min(connection.buffered.len());
        let numbers = connection.buffered.drain(..many);
        let delivery = |number| {
            let message = connection.unsettled.get(&number)?;
            Some(Delivery {
                tag: DeliveryTag {
                    connection: id,
                    number,
                },
                group: message.group.clone(),
                redelivered: message.redelivered,
            })
        };
        numbers.filter_map(delivery).collect()
    }

    /// Settles; tags of lost connections and settled ones are ignored.
    pub(super) fn settle<'a>(
        &mut self,
        settlements: impl Iterator<Item = &'a (DeliveryTag, Settlement)>,
    ) {
        let mut requeued = Vec::new();
        for (tag, settlement) in settlements {
            let connection = self.connections.get_mut(&tag.connection);
            let message = connection.and_then(|one| one.unsettled.remove(&tag.number));
            if *settlement == Settlement::Requeue {
                requeued.extend(message);
            }
        }
        self.redeliver(requeued);
    }

    /// Nothing more is pushed to this connection.
    pub(super) fn stop(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.stopped = true;
        }
    }

    /// A connection ends: what it left unsettled comes again.
    pub(super) fn disconnect(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.redeliver(connection.unsettled.into_values().collect());
        }
    }

    pub(super) fn disconnect_all(&mut self) {
        let all: Vec<_> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|id| self.disconnect(id));
    }

    pub(super) fn purge(&mut self) {
        self.ready.clear();
        self.late.clear();
    }

    pub(super) fn delete(&mut self) {
        self.purge();
        self.connections.clear();
    }

    /// Puts messages back, the oldest first, ahead of those never delivered.
    fn redeliver(&mut self, messages: Vec<Message>) {
        for message in messages.into_iter().rev() {
            let redelivered = true;
            self.ready.push_front(Message {
                redelivered,
                ..message
            });
        }
    }
}
