//! The delivery queue's contract on its model, in virtual time; and what the
//! model does to messages when it is told to.
use std::collections::VecDeque;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::{Permit, PermitGroup};
use domain::time::Timestamp;
use engine::ports::{Delivery, DeliveryQueue, Published, QueueError, Settlement, Subscription};
use simulation::model::{Condition, Fate, ModelQueue};
use uuid::Uuid;

macro_rules! contract {
    ($($check:ident)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $check() {
                contract::queue::$check(&ModelQueue::new(1_000)).await;
            }
        )*
    };
}

contract! {
    confirmed_messages_are_received_by_one
    every_group_is_answered
    contents_survive
    a_message_of_several_destinations_arrives_as_it_was_sent
    prefetch_bounds_the_unsettled
    a_prefetch_of_zero_means_one
    requeued_messages_come_again
    unsettled_messages_outlive_their_subscription
    foreign_and_settled_tags_are_ignored
    a_stopped_subscription_runs_dry
    receive_can_be_dropped
    those_who_wait_are_woken
    large_batches_pass
}

fn group(attempt: i64) -> PermitGroup {
    let permit = Permit {
        destination: DestinationId(Uuid::nil()),
        attempt: AttemptId(attempt),
        number: PermitNumber(1),
        epoch: Epoch(1),
        not_before: Timestamp::MIN,
        deadline: Timestamp::MAX,
    };
    PermitGroup::new(vec![permit]).unwrap()
}

fn groups(attempts: impl Iterator<Item = i64>) -> Vec<PermitGroup> {
    attempts.map(group).collect()
}

fn attempts(deliveries: &[Delivery]) -> Vec<i64> {
    let first = |delivery: &Delivery| delivery.group.permits()[0].attempt.0;
    deliveries.iter().map(first).collect()
}

/// All that comes until nothing does for a minute.
async fn drain(from: &mut dyn Subscription) -> Vec<Delivery> {
    let mut received = Vec::new();
    let minute = Duration::from_secs(60);
    while let Ok(next) = tokio::time::timeout(minute, from.receive(1_000)).await {
        received.extend(next.unwrap());
    }
    received
}

/// A queue whose next messages have these fates.
fn fated(fates: impl IntoIterator<Item = Fate>) -> ModelQueue {
    let queue = ModelQueue::new(1_000);
    let mut fates: VecDeque<_> = fates.into_iter().collect();
    queue.decide_by(move |_| fates.pop_front().unwrap_or_else(Fate::delivered));
    queue
}

#[tokio::test(start_paused = true)]
async fn messages_are_lost_doubled_and_reordered_as_decided() {
    let ms = Duration::from_millis;
    let twice = Fate {
        copies: vec![Duration::ZERO, ms(30)],
        answer: Published::Unconfirmed,
    };
    let queue = fated([Fate::lost(), Fate::after(ms(20)), twice]);
    let answers = queue.publish(&groups(1..=4)).await.unwrap();
    let (yes, no) = (Published::Confirmed, Published::Unconfirmed);
    assert_eq!(answers, [yes, yes, no, yes]);
    let mut subscription = queue.subscribe(100).await.unwrap();
    assert_eq!(attempts(&drain(&mut *subscription).await), [3, 4, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_late_message_wakes_who_waits() {
    let queue = fated([Fate::after(Duration::from_secs(5))]);
    queue.publish(&[group(1)]).await.unwrap();
    let began = tokio::time::Instant::now();
    let mut subscription = queue.subscribe(1).await.unwrap();
    assert_eq!(attempts(&subscription.receive(1).await.unwrap()), [1]);
    assert_eq!(began.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn what_one_has_prefetched_is_not_for_others() {
    let queue = ModelQueue::new(1_000);
    let frozen = queue.subscribe(3).await.unwrap();
    queue.publish(&groups(1..=5)).await.unwrap();
    let mut other = queue.subscribe(10).await.unwrap();
    assert_eq!(attempts(&drain(&mut *other).await), [4, 5]);
    drop(frozen);
    let again = drain(&mut *other).await;
    assert_eq!(attempts(&again), [1, 2, 3]);
    assert!(again.iter().all(|one| one.redelivered));
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_redelivers_and_ignores_its_tags() {
    let queue = ModelQueue::new(1_000);
    let mut subscription = queue.subscribe(10).await.unwrap();
    queue.publish(&groups(1..=2)).await.unwrap();
    let before = subscription.receive(10).await.unwrap();
    queue.break_connections();
    let error = subscription.receive(10).await.unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)), "got {error}");
    let tag = (before[0].tag, Settlement::Done);
    subscription.settle(&[tag]).await.unwrap();
    assert_eq!(attempts(&drain(&mut *subscription).await), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_purge_leaves_what_is_prefetched_and_a_deletion_nothing() {
    let queue = ModelQueue::new(1_000);
    let mut subscription = queue.subscribe(2).await.unwrap();
    queue.publish(&groups(1..=5)).await.unwrap();
    queue.purge();
    assert_eq!(queue.held(), 2);
    assert_eq!(attempts(&drain(&mut *subscription).await), [1, 2]);
    queue.publish(&groups(6..=7)).await.unwrap();
    queue.delete();
    assert_eq!(queue.held(), 0);
    assert!(subscription.receive(10).await.is_err());
    queue.publish(&[group(8)]).await.unwrap();
    assert_eq!(attempts(&drain(&mut *subscription).await), [8]);
}

#[tokio::test(start_paused = true)]
async fn down_it_does_nothing_and_blocked_it_only_gives() {
    let queue = ModelQueue::new(1_000);
    let mut subscription = queue.subscribe(2).await.unwrap();
    queue.publish(&[group(1)]).await.unwrap();
    queue.set_condition(Condition::Blocked);
    let blocked = queue.publish(&[group(2)]).await;
    assert!(matches!(blocked, Err(QueueError::Blocked(_))));
    assert_eq!(attempts(&subscription.receive(9).await.unwrap()), [1]);
    queue.set_condition(Condition::Down);
    assert!(queue.publish(&[group(2)]).await.is_err());
    assert!(queue.subscribe(1).await.is_err());
    assert!(queue.health().is_err());
    // Redialling takes as long as it takes.
    assert!(drain(&mut *subscription).await.is_empty());
    queue.set_condition(Condition::Up);
    assert!(subscription.receive(9).await.is_err());
    assert_eq!(attempts(&subscription.receive(9).await.unwrap()), [1]);
}

#[tokio::test(start_paused = true)]
async fn beyond_its_capacity_it_confirms_nothing() {
    let queue = ModelQueue::new(2);
    let answers = queue.publish(&groups(1..=3)).await.unwrap();
    assert_eq!(answers.last(), Some(&Published::Unconfirmed));
    let mut subscription = queue.subscribe(9).await.unwrap();
    assert_eq!(attempts(&drain(&mut *subscription).await), [1, 2]);
}
