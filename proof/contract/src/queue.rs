//! What every [`DeliveryQueue`] must do. Each check takes a queue of its own,
//! empty and with room for a thousand groups.
//!
//! Judged are the promises of the port and nothing more: no check looks at the
//! order of messages, or at who gets them.

use std::ops::Range;
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::{MAX_GROUP, Permit, PermitGroup};
use domain::time::Timestamp;

use engine::ports::{Delivery, DeliveryQueue, DeliveryTag, Published, Settlement, Subscription};

/// Far beyond what any queue needs; a check that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// After this long without a message, none is coming.
const QUIET: Duration = Duration::from_millis(400);

/// A group of `size` permits that no other `seed` gives.
fn group(seed: i64, size: usize) -> PermitGroup {
    let destination = destination(seed);
    let permits = (0_i64..)
        .take(size)
        .map(|place| Permit {
            destination,
            attempt: AttemptId(seed * 100 + place),
            number: PermitNumber(seed),
            epoch: Epoch(7),
            not_before: Timestamp::from_micros(1_700_000_000_000_000 + place),
            deadline: Timestamp::from_micros(1_700_000_002_000_000 + place),
        })
        .collect();
    PermitGroup::new(permits).unwrap()
}

fn destination(seed: i64) -> DestinationId {
    let text = format!("00000000-0000-7000-8000-{seed:012x}");
    text.parse().unwrap()
}

fn groups(count: i64) -> Vec<PermitGroup> {
    (0..count).map(|seed| group(seed, 1)).collect()
}

async fn publish(queue: &dyn DeliveryQueue, groups: &[PermitGroup]) {
    let answers = queue.publish(groups).await.unwrap();
    assert_eq!(answers, vec![Published::Confirmed; groups.len()]);
}

/// Receives until there are `count` messages, in as many calls as it takes.
async fn receive(from: &mut dyn Subscription, count: usize, max: usize) -> Vec<Delivery> {
    let mut received = Vec::new();
    while received.len() < count {
        let next = tokio::time::timeout(PATIENCE, from.receive(max)).await;
        let next = next.unwrap_or_else(|_| panic!("{} of {count} messages came", received.len()));
        let next = next.unwrap();
        assert!(!next.is_empty(), "nothing, though it was not stopped");
        assert!(
            next.len() <= max,
            "{} messages, of at most {max}",
            next.len()
        );
        received.extend(next);
    }
    received
}

/// Receives until nothing comes any more.
async fn receive_until_quiet(from: &mut dyn Subscription) -> Vec<Delivery> {
    let mut received = Vec::new();
    while let Ok(next) = tokio::time::timeout(QUIET, from.receive(1_000)).await {
        received.extend(next.unwrap());
    }
    received
}

async fn assert_quiet(from: &mut dyn Subscription) {
    let received = receive_until_quiet(from).await;
    assert!(received.is_empty(), "{} messages too many", received.len());
}

async fn settle(from: &mut dyn Subscription, deliveries: &[Delivery], how: Settlement) {
    let settlements: Vec<_> = deliveries.iter().map(|one| (one.tag, how)).collect();
    from.settle(&settlements).await.unwrap();
}

/// Asserts that these are the messages that carry `expected`, each once.
fn assert_carries(deliveries: &[Delivery], expected: &[PermitGroup]) {
    let mut counts = vec![0; expected.len()];
    for one in deliveries {
        let place = expected.iter().position(|group| *group == one.group);
        counts[place.unwrap_or_else(|| panic!("never published: {one:?}"))] += 1;
    }
    for (group, count) in expected.iter().zip(counts) {
        assert_eq!(count, 1, "deliveries of {group:?}");
    }
}

/// What is confirmed is received, by exactly one of the subscribers.
pub async fn confirmed_messages_are_received_by_one(queue: &dyn DeliveryQueue) {
    let published = groups(120);
    let mut first = queue.subscribe(40).await.unwrap();
    let mut second = queue.subscribe(40).await.unwrap();
    publish(queue, &published).await;
    let mut received = Vec::new();
    while received.len() < published.len() {
        for subscription in [&mut first, &mut second] {
            let quick = Duration::from_millis(20);
            let next = tokio::time::timeout(quick, subscription.receive(10)).await;
            if let Ok(next) = next {
                let next = next.unwrap();
                settle(subscription.as_mut(), &next, Settlement::Done).await;
                received.extend(next);
            }
        }
    }
    assert_carries(&received, &published);
    assert!(received.iter().all(|one| !one.redelivered));
    assert_quiet(first.as_mut()).await;
    assert_quiet(second.as_mut()).await;
}

/// One answer a group; no group, no answer.
pub async fn every_group_is_answered(queue: &dyn DeliveryQueue) {
    assert_eq!(queue.publish(&[]).await.unwrap(), []);
    for count in [1, 2, 33, 300] {
        publish(queue, &groups(count)).await;
    }
    queue.health().unwrap();
}

/// Permits arrive as they were sent, whatever is in them.
pub async fn contents_survive(queue: &dyn DeliveryQueue) {
    let extreme = |value: i64| Permit {
        destination: destination(1),
        attempt: AttemptId(value),
        number: PermitNumber(value.wrapping_add(1)),
        epoch: Epoch(value.wrapping_sub(1)),
        not_before: Timestamp::from_micros(value),
        deadline: Timestamp::from_micros(!value),
    };
    let extremes = [i64::MIN, -1, 0, 1, i64::MAX].map(extreme).to_vec();
    let published = [
        PermitGroup::new(extremes).unwrap(),
        group(2, MAX_GROUP),
        group(3, 1),
    ];
    publish(queue, &published).await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    let received = receive(subscription.as_mut(), 3, 10).await;
    assert_carries(&received, &published);
}

/// A message carries permits of whatever destinations, and stays whole.
pub async fn a_message_of_several_destinations_arrives_as_it_was_sent(queue: &dyn DeliveryQueue) {
    let across = |seeds: Range<i64>, of_each: usize| {
        let permits = seeds.flat_map(|seed| group(seed, of_each).permits().to_vec());
        PermitGroup::new(permits.collect()).unwrap()
    };
    let published = [across(0..16, 1), across(16..19, 5), across(19..21, 1)];
    publish(queue, &published).await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    let received = receive(subscription.as_mut(), 3, 10).await;
    assert_carries(&received, &published);
    settle(subscription.as_mut(), &received, Settlement::Requeue).await;
    let again = receive(subscription.as_mut(), 3, 10).await;
    assert_carries(&again, &published);
}

/// At most `prefetch` messages are unsettled; settling makes room.
pub async fn prefetch_bounds_the_unsettled(queue: &dyn DeliveryQueue) {
    publish(queue, &groups(10)).await;
    let mut subscription = queue.subscribe(3).await.unwrap();
    let received = receive_until_quiet(subscription.as_mut()).await;
    assert_eq!(received.len(), 3);
    settle(subscription.as_mut(), &received[1..2], Settlement::Done).await;
    assert_eq!(receive_until_quiet(subscription.as_mut()).await.len(), 1);
    settle(subscription.as_mut(), &received[..1], Settlement::Done).await;
    settle(subscription.as_mut(), &received[2..], Settlement::Done).await;
    assert_eq!(receive_until_quiet(subscription.as_mut()).await.len(), 2);
}

/// A prefetch of none would be no limit to some and no message to others.
pub async fn a_prefetch_of_zero_means_one(queue: &dyn DeliveryQueue) {
    publish(queue, &groups(3)).await;
    let mut subscription = queue.subscribe(0).await.unwrap();
    assert_eq!(receive_until_quiet(subscription.as_mut()).await.len(), 1);
}

/// What is requeued comes again, and says so.
pub async fn requeued_messages_come_again(queue: &dyn DeliveryQueue) {
    let published = groups(4);
    publish(queue, &published).await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    let received = receive(subscription.as_mut(), 4, 10).await;
    let how = [
        Settlement::Done,
        Settlement::Requeue,
        Settlement::Done,
        Settlement::Requeue,
    ];
    let settlements: Vec<_> = received.iter().map(|one| one.tag).zip(how).collect();
    subscription.settle(&settlements).await.unwrap();
    let again = receive(subscription.as_mut(), 2, 10).await;
    assert!(again.iter().all(|one| one.redelivered));
    assert_carries(
        &again,
        &[received[1].group.clone(), received[3].group.clone()],
    );
    settle(subscription.as_mut(), &again, Settlement::Done).await;
    assert_quiet(subscription.as_mut()).await;
}

/// What a subscription that ends leaves unsettled comes again elsewhere; what
/// it settled does not, in whatever order it was settled.
pub async fn unsettled_messages_outlive_their_subscription(queue: &dyn DeliveryQueue) {
    publish(queue, &groups(40)).await;
    let mut first = queue.subscribe(100).await.unwrap();
    let received = receive(first.as_mut(), 40, 100).await;
    // An oldest run, then some with gaps below them.
    settle(first.as_mut(), &received[..10], Settlement::Done).await;
    settle(first.as_mut(), &received[15..20], Settlement::Done).await;
    let (left, done): (Vec<_>, Vec<_>) = (20..40).partition(|place| place % 2 == 0);
    for place in done.iter().rev() {
        settle(first.as_mut(), &received[*place..=*place], Settlement::Done).await;
    }
    let left: Vec<_> = (10..15)
        .chain(left)
        .map(|place| received[place].group.clone())
        .collect();
    drop(first);
    let mut second = queue.subscribe(100).await.unwrap();
    let again = receive(second.as_mut(), left.len(), 100).await;
    assert!(again.iter().all(|one| one.redelivered));
    assert_carries(&again, &left);
    settle(second.as_mut(), &again, Settlement::Done).await;
    assert_quiet(second.as_mut()).await;
    drop(second);
    let mut third = queue.subscribe(100).await.unwrap();
    assert_quiet(third.as_mut()).await;
}

/// Tags of another connection, and tags that are settled already, are ignored.
pub async fn foreign_and_settled_tags_are_ignored(queue: &dyn DeliveryQueue) {
    publish(queue, &groups(2)).await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    let received = receive(subscription.as_mut(), 2, 10).await;
    let foreign = received.iter().map(|one| DeliveryTag {
        connection: one.tag.connection + 1_000,
        number: one.tag.number,
    });
    let foreign: Vec<_> = foreign.map(|tag| (tag, Settlement::Done)).collect();
    subscription.settle(&foreign).await.unwrap();
    settle(subscription.as_mut(), &received[..1], Settlement::Done).await;
    settle(subscription.as_mut(), &received[..1], Settlement::Requeue).await;
    settle(subscription.as_mut(), &received[..1], Settlement::Done).await;
    subscription.settle(&[]).await.unwrap();
    drop(subscription);
    let mut next = queue.subscribe(10).await.unwrap();
    let again = receive(next.as_mut(), 1, 10).await;
    assert_carries(&again, &[received[1].group.clone()]);
}

/// After a stop, what was prefetched is handed out and can be settled, then
/// nothing comes; what was not prefetched is for others.
pub async fn a_stopped_subscription_runs_dry(queue: &dyn DeliveryQueue) {
    let published = groups(20);
    publish(queue, &published).await;
    let mut first = queue.subscribe(8).await.unwrap();
    let mut received = receive(first.as_mut(), 2, 2).await;
    first.stop().await.unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, first.receive(3)).await;
        let next = next.expect("a stopped subscription does not wait").unwrap();
        if next.is_empty() {
            break;
        }
        received.extend(next);
    }
    assert!(received.len() <= 8, "{} were prefetched", received.len());
    settle(first.as_mut(), &received, Settlement::Done).await;
    assert_eq!(first.receive(3).await.unwrap(), []);
    first.stop().await.unwrap();
    assert_eq!(first.receive(3).await.unwrap(), []);
    let mut second = queue.subscribe(100).await.unwrap();
    let rest = receive(second.as_mut(), published.len() - received.len(), 100).await;
    received.extend(rest);
    assert_carries(&received, &published);
    drop(first);
    assert_quiet(second.as_mut()).await;
}

/// A `receive` that is dropped while it waits loses nothing.
pub async fn receive_can_be_dropped(queue: &dyn DeliveryQueue) {
    let published = groups(200);
    let mut subscription = queue.subscribe(7).await.unwrap();
    let publishing = async {
        for batch in published.chunks(3) {
            publish(queue, batch).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let receiving = async {
        let mut received = Vec::new();
        let mut patience: Duration = Duration::ZERO;
        while received.len() < published.len() && patience < PATIENCE {
            let moment = Duration::from_micros(300);
            patience += moment;
            if let Ok(next) = tokio::time::timeout(moment, subscription.receive(2)).await {
                let next = next.unwrap();
                settle(subscription.as_mut(), &next, Settlement::Done).await;
                received.extend(next);
            }
        }
        received
    };
    let ((), received) = tokio::join!(publishing, receiving);
    assert_carries(&received, &published);
    assert_quiet(subscription.as_mut()).await;
}

/// Of several who wait, each message wakes one that takes it.
pub async fn those_who_wait_are_woken(queue: &dyn DeliveryQueue) {
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(queue.subscribe(1).await.unwrap());
    }
    let published = groups(3);
    let receiving =
        futures_util::future::join_all(waiting.iter_mut().map(|one| receive(one.as_mut(), 1, 1)));
    let publishing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        for one in &published {
            publish(queue, std::slice::from_ref(one)).await;
        }
    };
    let (received, ()) = tokio::join!(receiving, publishing);
    assert_carries(&received.concat(), &published);
}

/// Hundreds in one publish, received and settled in large batches.
pub async fn large_batches_pass(queue: &dyn DeliveryQueue) {
    let published: Vec<_> = (0..800).map(|seed| group(seed, 4)).collect();
    publish(queue, &published).await;
    let mut subscription = queue.subscribe(300).await.unwrap();
    let mut received = Vec::new();
    while received.len() < published.len() {
        let next = receive(subscription.as_mut(), 1, 300).await;
        settle(subscription.as_mut(), &next, Settlement::Done).await;
        received.extend(next);
    }
    assert_carries(&received, &published);
    assert_quiet(subscription.as_mut()).await;
}
