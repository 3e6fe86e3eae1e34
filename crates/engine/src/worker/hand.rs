//! What a worker holds: messages whose permits the store does not know of yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::permit::Permit;
use tokio::sync::Notify;

use crate::ports::{Delivery, DeliveryTag, Settlement};

/// The messages in hand. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Hand {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    settled: Notify,
}

#[derive(Default)]
struct State {
    /// Open messages.
    open: HashMap<DeliveryTag, Message>,
    /// Closed ones, to be settled with the queue.
    settlements: Vec<(DeliveryTag, Settlement)>,
    /// Permits of half-begun messages, to be given back to the store.
    unbegun: Vec<Permit>,
}

struct Message {
    permits: usize,
    left: usize,
    unbegun: Vec<Permit>,
}

/// One permit in hand. Dropping it without [`InHand::known`] says that it was
/// not begun, also when its task panics.
pub(super) struct InHand {
    pub(super) permit: Permit,
    tag: DeliveryTag,
    hand: Hand,
    known: bool,
}

impl Hand {
    /// Takes up a message.
    pub(super) fn take_up(&self, delivery: &Delivery) -> Vec<InHand> {
        let permits = delivery.group.permits();
        let message = Message {
            permits: permits.len(),
            left: permits.len(),
            unbegun: Vec::new(),
        };
        self.state().open.insert(delivery.tag, message);
        (permits.iter())
            .map(|permit| InHand {
                permit: *permit,
                tag: delivery.tag,
                hand: self.clone(),
                known: false,
            })
            .collect()
    }

    /// Waits until there is something for [`Hand::take_settled`].
    pub(super) async fn settled(&self) {
        loop {
            let notified = self.shared.settled.notified();
            if !self.state().settlements.is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// The messages that can be settled now, and the permits that go back to
    /// the store.
    pub(super) fn take_settled(&self) -> (Vec<(DeliveryTag, Settlement)>, Vec<Permit>) {
        let mut state = self.state();
        (
            std::mem::take(&mut state.settlements),
            std::mem::take(&mut state.unbegun),
        )
    }

    /// Nothing in hand and nothing to settle.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.open.is_empty() && state.settlements.is_empty()
    }

    fn ended(&self, tag: DeliveryTag, unbegun: Option<Permit>) {
        let mut state = self.state();
        let Some(message) = state.open.get_mut(&tag) else {
            return;
        };
        message.left -= 1;
        message.unbegun.extend(unbegun);
        if message.left > 0 {
            return;
        }
        let Some(message) = state.open.remove(&tag) else {
            return;
        };
        if message.unbegun.len() == message.permits {
            state.settlements.push((tag, Settlement::Requeue));
        } else {
            state.settlements.push((tag, Settlement::Done));
            state.unbegun.extend(message.unbegun);
        }
        drop(state);
        self.shared.settled.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl InHand {
    /// The message that it came in.
    pub(super) fn tag(&self) -> DeliveryTag {
        self.tag
    }

    /// The store knows of this permit, or it is past its deadline.
    pub(super) fn known(mut self) {
        self.known = true;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let unbegun = (!self.known).then_some(self.permit);
        self.hand.ended(self.tag, unbegun);
    }
}
