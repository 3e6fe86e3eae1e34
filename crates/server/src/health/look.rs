//! A look at a part: asked by as many as like, at the cost of one a second.
//!
//! The routes that use it need no key. So an answer is good for a moment, whoever
//! comes meanwhile waits for the same one, and a part that does not answer is not
//! asked again before it has: what strangers do never adds up in a pool of
//! connections.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// How long an answer is good for. Probes come every few seconds.
const LASTS: Duration = Duration::from_secs(1);

/// How long a part may take to answer. Probes give up after a few seconds, and
/// an answer that names the part is worth more than none.
pub const PATIENCE: Duration = Duration::from_secs(2);

type Answer<T> = Result<T, String>;

/// What is asked of one part.
pub struct Look<T> {
    ask: Box<dyn Fn() -> BoxFuture<'static, Answer<T>> + Send + Sync>,
    last: Arc<Mutex<Last<T>>>,
}

struct Last<T> {
    answer: Option<(Instant, Answer<T>)>,
    /// The question that has not ended, as far as we know.
    asked: Option<JoinHandle<Answer<T>>>,
}

impl<T: Clone + Send + 'static> Look<T> {
    /// Asks so.
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let last = Last {
            answer: None,
            asked: None,
        };
        Self {
            ask: Box::new(move || ask().boxed()),
            last: Arc::new(Mutex::new(last)),
        }
    }

    /// The answer of the last second, or a new one.
    pub async fn now(&self) -> Answer<T> {
        let mut last = self.last.lock().await;
        if let Some((at, answer)) = &last.answer
            && at.elapsed() < LASTS
        {
            return answer.clone();
        }
        if last.asked.as_ref().is_some_and(JoinHandle::is_finished) {
            // Its end is from a time when nobody waited for it.
            last.asked = None;
        }
        // In a task of its own: giving up on the answer must not cancel the
        // question, which a pooled connection would not survive. It stays where
        // the next one finds it, also if whoever waits here goes away.
        let asked = last.asked.get_or_insert_with(|| tokio::spawn((self.ask)()));
        let answer = match timeout(PATIENCE, asked).await {
            Ok(ended) => {
                last.asked = None;
                ended.unwrap_or_else(|broken| Err(broken.to_string()))
            }
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        };
        // From the end, not from the beginning: all who waited for a slow one
        // share it.
        last.answer = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    /// A question that takes so long, and how often it was asked.
    fn counted(takes: Duration) -> (Arc<Look<usize>>, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let look = Look::new(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                tokio::time::sleep(takes).await;
                Ok(number)
            }
        });
        (Arc::new(look), count)
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_the_part_is_asked_once_a_second() {
        let (look, count) = counted(Duration::from_millis(100));
        for second in 1..=3 {
            let mut all = JoinSet::new();
            for _ in 0..500 {
                let look = Arc::clone(&look);
                all.spawn(async move { look.now().await });
            }
            for answer in all.join_all().await {
                assert_eq!(answer, Ok(second));
            }
            assert_eq!(count.load(Ordering::SeqCst), second);
            tokio::time::advance(LASTS).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_is_not_asked_again_before_it_has() {
        let (look, count) = counted(Duration::from_secs(10));
        for _ in 0..3 {
            assert!(look.now().await.unwrap_err().contains("no answer"));
            tokio::time::advance(LASTS).await;
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(
            look.now().await.is_err(),
            "its answer was too late: a new question"
        );
        assert_eq!(count.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_go_away_leave_no_questions_behind() {
        let (look, count) = counted(Duration::from_secs(1));
        for _ in 0..20 {
            let gone = timeout(Duration::from_millis(10), look.now()).await;
            assert!(gone.is_err());
        }
        assert_eq!(look.now().await, Ok(1));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
}
