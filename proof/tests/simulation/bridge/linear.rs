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

/// One step of a call of a batch.
#[derive(Debug)]
pub(crate) struct Step<'a, C, A> {
    /// Which call.
    pub(crate) of: usize,
    /// Which step of it, from 0 on.
    pub(crate) number: usize,
    pub(crate) batch: &'a [Called<C, A>],
}

impl<'a, C, A> Step<'a, C, A> {
    pub(crate) fn called(&self) -> &'a Called<C, A> {
        &self.batch[self.of]
    }
}

/// A state of a model that may be the driver's.
pub(crate) trait Candidate: Sized {
    type Call;
    type Answer;

    /// In how many steps a call is made, between which others may come.
    fn steps(_: &Called<Self::Call, Self::Answer>) -> usize {
        1
    }

    /// The states in which a step may leave it. None: the driver's answer is
    /// not the model's.
    fn after(&self, step: Step<'_, Self::Call, Self::Answer>) -> impl Future<Output = Vec<Self>>;

    /// Whether no call can tell them apart.
    fn is_as(&self, other: &Self) -> bool;
}

/// All states in which an order of these calls can leave the model, beginning
/// in one of `candidates`. A call that ended before another began comes before
/// it. None: there is no such order.
///
/// It goes through what may have been done so far, by how much, and keeps equal
/// states once: at most 2ⁿ sets of calls, not n! orders. Calls that all met, and whose
/// order nothing shows, can leave so many states that they would take minutes: then it
/// gives up, and `None` says nothing of the driver.
pub(crate) async fn explain<S: Candidate>(
    candidates: Vec<S>,
    batch: &[Called<S::Call, S::Answer>],
) -> Option<Vec<S>> {
    let steps: Vec<usize> = batch.iter().map(S::steps).collect();
    let mut reached = BTreeMap::from([(vec![0; batch.len()], distinct(candidates))]);
    for _ in 0..steps.iter().sum() {
        let mut next: BTreeMap<Vec<usize>, Vec<S>> = BTreeMap::new();
        for (done, states) in &reached {
            for of in can_follow(done, &steps, batch) {
                let mut then = done.clone();
                then[of] += 1;
                for state in states {
                    let number = done[of];
                    for after in state.after(Step { of, number, batch }).await {
                        add(next.entry(then.clone()).or_default(), after);
                    }
                }
            }
        }
        reached = next;
        if reached.values().map(Vec::len).sum::<usize>() > MOST_STATES {
            return None;
        }
    }
    Some(reached.into_values().flatten().collect())
}

/// A few seconds' worth: common batches leave a few dozen.
const MOST_STATES: usize = 1_000;

fn distinct<S: Candidate>(states: Vec<S>) -> Vec<S> {
    states.into_iter().fold(Vec::new(), |mut distinct, state| {
        add(&mut distinct, state);
        distinct
    })
}

/// There are few: a comparison with each is cheaper than a name for each.
fn add<S: Candidate>(states: &mut Vec<S>, state: S) {
    if !states.iter().any(|other| other.is_as(&state)) {
        states.push(state);
    }
}

/// The calls of which a step may come next.
fn can_follow<C, A>(done: &[usize], steps: &[usize], batch: &[Called<C, A>]) -> Vec<usize> {
    let is_open = |index: &usize| done[*index] < steps[*index];
    let open = || (0..batch.len()).filter(is_open);
    let first_end = open().map(|index| batch[index].ended).min();
    open()
        .filter(|index| first_end.is_some_and(|end| batch[*index].begun < end))
        .collect()
}
