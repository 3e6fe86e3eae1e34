//! Linearisation: is there an order of some calls in which a model answers as
//! the driver did?

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

/// One call and its answer, with the places of its begin and end among the
/// begins and ends of all calls.
#[derive(Debug, Clone)]
pub(crate) struct Called<C, A> {
    pub(crate) call: C,
    pub(crate) answer: A,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
}

/// Numbers begins and ends.
#[derive(Debug, Default)]
pub(crate) struct Order(AtomicU64);

impl Order {
    /// Makes a call and notes when.
    pub(crate) async fn note<C, A>(
        &self,
        call: C,
        answer: impl AsyncFnOnce(&C) -> A,
    ) -> Called<C, A> {
        let begun = self.0.fetch_add(1, Ordering::SeqCst);
        let answer = answer(&call).await;
        let ended = self.0.fetch_add(1, Ordering::SeqCst);
        Called {
            call,
            answer,
            begun,
            ended,
        }
    }
}

/// A state of a model that may be the driver's.
pub(crate) trait Candidate: Sized {
    type Call;
    type Answer;

    /// The state after a call, if its answer is the model's.
    fn after(
        &self,
        called: &Called<Self::Call, Self::Answer>,
    ) -> impl Future<Output = Option<Self>>;

    /// Equal for states that no call can tell apart.
    fn fingerprint(&self) -> String;
}

/// All states in which an order of these calls can leave the model, beginning
/// in one of `candidates`. A call that ended before another began comes before
/// it. None: there is no such order.
///
/// It goes through the sets of calls that may come first, by size, and keeps
/// equal states once: at most 2ⁿ sets, not n! orders.
pub(crate) async fn explain<S: Candidate>(
    candidates: Vec<S>,
    batch: &[Called<S::Call, S::Answer>],
) -> Vec<S> {
    let mut reached = BTreeMap::from([(0_u64, distinct(candidates))]);
    for _ in 0..batch.len() {
        let mut next: BTreeMap<u64, BTreeMap<String, S>> = BTreeMap::new();
        for (done, states) in &reached {
            for index in can_follow(*done, batch) {
                for state in states.values() {
                    if let Some(after) = state.after(&batch[index]).await {
                        let states = next.entry(done | 1 << index).or_default();
                        states.insert(after.fingerprint(), after);
                    }
                }
            }
        }
        reached = next;
    }
    let states = reached.into_values().flatten();
    states.map(|(_, state)| state).collect()
}

fn distinct<S: Candidate>(states: Vec<S>) -> BTreeMap<String, S> {
    let named = states.into_iter().map(|state| (state.fingerprint(), state));
    named.collect()
}

/// The calls that may come next when `done` are.
fn can_follow<C, A>(done: u64, batch: &[Called<C, A>]) -> Vec<usize> {
    let is_open = |index: &usize| done & (1 << index) == 0;
    let open = || (0..batch.len()).filter(is_open);
    let first_end = open().map(|index| batch[index].ended).min();
    open()
        .filter(|index| first_end.is_some_and(|end| batch[*index].begun < end))
        .collect()
}
