//! What a fake answers, and how long it takes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

type Answer<Q, A> = Box<dyn FnMut(Q) -> A + Send>;

/// One method of a fake: a closure that a test may replace, and a delay before
/// it is asked.
pub(crate) struct Script<Q, A> {
    answer: Mutex<Answer<Q, A>>,
    takes: Mutex<Duration>,
}

impl<Q, A> Script<Q, A> {
    pub(crate) fn new(answer: impl FnMut(Q) -> A + Send + 'static) -> Self {
        Self {
            answer: Mutex::new(Box::new(answer)),
            takes: Mutex::new(Duration::ZERO),
        }
    }

    /// Answers so from now on.
    pub(crate) fn answers(&self, answer: impl FnMut(Q) -> A + Send + 'static) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(answer);
    }

    /// Takes so long from now on.
    pub(crate) fn takes(&self, time: Duration) {
        *self.takes.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    pub(crate) async fn ask(&self, question: Q) -> A {
        let takes = *self.takes.lock().unwrap_or_else(PoisonError::into_inner);
        if !takes.is_zero() {
            tokio::time::sleep(takes).await;
        }
        self.ask_now(question)
    }

    pub(crate) fn ask_now(&self, question: Q) -> A {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer(question)
    }
}
