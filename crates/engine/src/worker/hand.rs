//! What a worker holds: messages whose permits the store does not know of yet, and
//! permits that wait for longer than a message is kept in hand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use domain::permit::Permit;
use tokio::sync::Notify;

use super::apart::Leave;
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
    /// Permits of half-begun messages, and such as have left theirs, to be given back to
    /// the store.
    unbegun: Vec<Permit>,
    /// Permits that wait, and whose messages do not wait with them.
    alone: usize,
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
    /// Its message does not wait for it; with what leave, where it takes one.
    alone: OnceLock<Option<Leave>>,
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
                alone: OnceLock::new(),
            })
            .collect()
    }

    /// Waits until there is something for [`Hand::take_settled`].
    pub(super) async fn settled(&self) {
        self.until(State::has_settled).await;
    }

    /// The same, or until nothing is in hand.
    pub(super) async fn settled_or_empty(&self) {
        self.until(|state| state.has_settled() || state.is_empty())
            .await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        loop {
            let notified = self.shared.settled.notified();
            if is_so(&self.state()) {
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
        self.state().is_empty()
    }

    /// The permit goes on without its message.
    fn left(&self, tag: DeliveryTag) {
        let mut state = self.state();
        state.alone += 1;
        let is_over = state.ended(tag, None);
        drop(state);
        self.tell(is_over);
    }

    /// One of a message has ended.
    fn ended(&self, tag: DeliveryTag, unbegun: Option<Permit>) {
        let is_over = self.state().ended(tag, unbegun);
        self.tell(is_over);
    }

    /// Whoever settles is woken once for each message, and not for each of its permits.
    fn tell(&self, is_over: bool) {
        if is_over {
            self.shared.settled.notify_one();
        }
    }

    /// One that had left its message has ended.
    fn ended_alone(&self, unbegun: Option<Permit>) {
        let mut state = self.state();
        state.alone -= 1;
        state.unbegun.extend(unbegun);
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

impl State {
    fn has_settled(&self) -> bool {
        !self.settlements.is_empty() || !self.unbegun.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.alone == 0 && !self.has_settled()
    }

    /// Whether it was the last of its message.
    fn ended(&mut self, tag: DeliveryTag, unbegun: Option<Permit>) -> bool {
        let Some(message) = self.open.get_mut(&tag) else {
            return false;
        };
        message.left -= 1;
        message.unbegun.extend(unbegun);
        if message.left > 0 {
            return false;
        }
        let Some(message) = self.open.remove(&tag) else {
            return false;
        };
        if message.unbegun.len() == message.permits {
            self.settlements.push((tag, Settlement::Requeue));
        } else {
            self.settlements.push((tag, Settlement::Done));
            self.unbegun.extend(message.unbegun);
        }
        true
    }
}

impl InHand {
    /// The message that it came in.
    pub(super) fn tag(&self) -> DeliveryTag {
        self.tag
    }

    /// From now on its message waits for the others in it only. If it is not begun it goes
    /// back to the store, and if this process dies, at its deadline. The leave is its own as
    /// long as it is in hand.
    pub(super) fn leaves_its_message(&self, leave: Option<Leave>) {
        if self.alone.set(leave).is_ok() {
            self.hand.left(self.tag);
        }
    }

    pub(super) fn has_left_its_message(&self) -> bool {
        self.alone.get().is_some()
    }

    /// The store knows of this permit, or it is past its deadline.
    pub(super) fn known(mut self) {
        self.known = true;
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        let unbegun = (!self.known).then_some(self.permit);
        match self.has_left_its_message() {
            true => self.hand.ended_alone(unbegun),
            false => self.hand.ended(self.tag, unbegun),
        }
    }
}
