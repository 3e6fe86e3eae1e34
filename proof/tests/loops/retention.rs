//! Retention: a small part of the store's time, and patience.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use engine::ports::{Retain, RetainRules, Retained, StoreError, Walk};
use engine::retention::{RetentionLoop, RetentionOptions};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::{ms, store_away};

/// Answers in their order, each after so long; nothing is due after them.
struct Steps {
    began: Instant,
    answers: Mutex<VecDeque<(Duration, Result<Retained, StoreError>)>>,
    asked_at: Mutex<Vec<Duration>>,
}

impl Steps {
    fn of(answers: Vec<(Duration, Result<Retained, StoreError>)>) -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            answers: Mutex::new(answers.into()),
            asked_at: Mutex::default(),
        })
    }

    fn asked_at(&self) -> Vec<Duration> {
        self.asked_at.lock().unwrap().clone()
    }
}

#[async_trait]
impl Retain for Steps {
    async fn retain(&self, rules: &RetainRules) -> Result<Retained, StoreError> {
        assert_eq!(*rules, RetainRules::default());
        self.asked_at.lock().unwrap().push(self.began.elapsed());
        let answer = self.answers.lock().unwrap().pop_front();
        let (takes, answer) = answer.unwrap_or((Duration::ZERO, Ok(Retained::default())));
        tokio::time::sleep(takes).await;
        answer
    }
}

fn stepped(more: bool) -> Result<Retained, StoreError> {
    Ok(Retained {
        walk: Some(Walk::Attempts),
        examined: 1_000,
        removed: 10,
        more,
    })
}

async fn asked(
    answers: Vec<(Duration, Result<Retained, StoreError>)>,
    until: Duration,
) -> Vec<u128> {
    let steps = Steps::of(answers);
    let shutdown = CancellationToken::new();
    let retention = RetentionLoop::new(steps.clone(), RetentionOptions::default());
    let running = tokio::spawn(retention.run(shutdown.clone()));
    tokio::time::sleep(until).await;
    shutdown.cancel();
    running.await.unwrap();
    steps.asked_at().iter().map(Duration::as_millis).collect()
}

#[tokio::test(start_paused = true)]
async fn it_pauses_for_longer_than_a_step_took() {
    let answers = vec![
        (ms(100), stepped(true)),
        (ms(10), stepped(false)),
        (ms(1), stepped(true)),
    ];
    // 100 and four times that, 10 and 40, 1 and the shortest pause.
    let at = asked(answers, ms(2_600)).await;
    assert_eq!(at, [0, 500, 550, 571, 1_571, 2_571]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_is_not_hammered() {
    let answers = vec![(ms(3), Err(store_away())), (ms(0), Err(store_away()))];
    let at = asked(answers, ms(2_500)).await;
    assert_eq!(at, [0, 1_003, 2_003]);
}

#[tokio::test(start_paused = true)]
async fn it_ends_between_two_steps() {
    let answers = vec![(ms(400), stepped(true))];
    let steps = Steps::of(answers);
    let shutdown = CancellationToken::new();
    let retention = RetentionLoop::new(steps.clone(), RetentionOptions::default());
    let running = tokio::spawn(retention.run(shutdown.clone()));
    tokio::time::sleep(ms(100)).await;
    shutdown.cancel();
    running.await.unwrap();
    assert_eq!(steps.began.elapsed(), ms(400), "the step is not cut off");
    assert_eq!(steps.asked_at().len(), 1);
}
