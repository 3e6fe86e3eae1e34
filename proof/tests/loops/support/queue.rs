//! A queue with one subscriber, filled by the test.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use domain::permit::{Permit, PermitGroup};
use engine::ports::{
    Delivery, DeliveryQueue, DeliveryTag, Published, QueueError, Settlement, Subscription,
};
use tokio::sync::Notify;

use super::script::Script;
use super::{Event, Journal};

pub(crate) struct FakeQueue {
    journal: Arc<Journal>,
    inbox: Arc<Inbox>,
    pub(crate) health: Script<(), Result<(), QueueError>>,
    pub(crate) publish: Script<usize, Result<Vec<Published>, QueueError>>,
    pub(crate) subscribe: Script<(), Result<(), QueueError>>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Result<Delivery, QueueError>>,
    number: u64,
    stopped: bool,
}

impl FakeQueue {
    pub(crate) fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            inbox: Arc::new(Inbox::default()),
            health: Script::new(|()| Ok(())),
            publish: Script::new(|groups| Ok(vec![Published::Confirmed; groups])),
            subscribe: Script::new(|()| Ok(())),
        }
    }

    /// Delivers one message with these permits.
    pub(crate) fn delivers(&self, permits: &[Permit]) -> DeliveryTag {
        let group = PermitGroup::new(permits.to_vec()).expect("a group");
        let mut state = self.inbox.state.lock().unwrap();
        state.number += 1;
        let tag = DeliveryTag {
            connection: 1,
            number: state.number,
        };
        let redelivered = false;
        state.waiting.push_back(Ok(Delivery {
            tag,
            group,
            redelivered,
        }));
        drop(state);
        self.inbox.filled.notify_one();
        tag
    }

    /// Loses the subscriber's connection.
    pub(crate) fn drops_connection(&self) {
        let lost = Err(QueueError::Unavailable("connection lost".to_owned()));
        self.inbox.state.lock().unwrap().waiting.push_back(lost);
        self.inbox.filled.notify_one();
    }
}

#[async_trait]
impl DeliveryQueue for FakeQueue {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        self.journal.note(Event::Publish(groups.to_vec()));
        self.publish.ask(groups.len()).await
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        self.journal.note(Event::Subscribe(prefetch));
        self.subscribe.ask(()).await?;
        Ok(Box::new(FakeSubscription {
            journal: Arc::clone(&self.journal),
            inbox: Arc::clone(&self.inbox),
        }))
    }

    fn health(&self) -> Result<(), QueueError> {
        self.health.ask_now(())
    }
}

struct FakeSubscription {
    journal: Arc<Journal>,
    inbox: Arc<Inbox>,
}

impl FakeSubscription {
    /// What is at hand; `None` if that is nothing.
    fn at_hand(&self, max: usize) -> Option<Result<Vec<Delivery>, QueueError>> {
        let mut state = self.inbox.state.lock().unwrap();
        let mut received = Vec::new();
        while received.len() < max {
            match state.waiting.pop_front() {
                Some(Ok(delivery)) => received.push(delivery),
                Some(Err(error)) if received.is_empty() => return Some(Err(error)),
                Some(error) => {
                    state.waiting.push_front(error);
                    break;
                }
                None => break,
            }
        }
        (state.stopped || !received.is_empty()).then_some(Ok(received))
    }
}

#[async_trait]
impl Subscription for FakeSubscription {
    async fn receive(&mut self, max: usize) -> Result<Vec<Delivery>, QueueError> {
        loop {
            if let Some(received) = self.at_hand(max) {
                return received;
            }
            self.inbox.filled.notified().await;
        }
    }

    async fn settle(
        &mut self,
        settlements: &[(DeliveryTag, Settlement)],
    ) -> Result<(), QueueError> {
        for (tag, settlement) in settlements {
            self.journal.note(Event::Settle(*tag, *settlement));
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), QueueError> {
        self.journal.note(Event::Stop);
        self.inbox.state.lock().unwrap().stopped = true;
        self.inbox.filled.notify_one();
        Ok(())
    }
}
