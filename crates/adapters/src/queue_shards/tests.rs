//! Over queues in process that can be away.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::Permit;
use domain::time::Timestamp;
use uuid::Uuid;

use super::*;
use crate::in_process::InProcessQueue;

/// A queue that can be away.
struct Shard {
    queue: Arc<InProcessQueue>,
    is_away: Arc<AtomicBool>,
}

impl Shard {
    fn problem(&self) -> Result<(), QueueError> {
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(QueueError::Unavailable("away".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl DeliveryQueue for Shard {
    async fn publish(&self, groups: &[PermitGroup]) -> Result<Vec<Published>, QueueError> {
        self.problem()?;
        self.queue.publish(groups).await
    }

    async fn subscribe(&self, prefetch: u16) -> Result<Box<dyn Subscription>, QueueError> {
        self.queue.subscribe(prefetch).await
    }

    fn health(&self) -> Result<(), QueueError> {
        self.problem()
    }
}

struct World {
    queues: Vec<Arc<InProcessQueue>>,
    away: Vec<Arc<AtomicBool>>,
}

impl World {
    fn new(count: usize) -> Self {
        Self {
            queues: (0..count)
                .map(|_| Arc::new(InProcessQueue::new(100)))
                .collect(),
            away: (0..count).map(|_| Arc::default()).collect(),
        }
    }

    /// As one process sees it that has been told so many shards.
    fn seen_with(&self, count: usize) -> QueueShards {
        let shards = (self.queues.iter().zip(&self.away)).take(count);
        let shard = |(queue, is_away): (&Arc<InProcessQueue>, &Arc<AtomicBool>)| {
            Box::new(Shard {
                queue: queue.clone(),
                is_away: is_away.clone(),
            }) as Box<dyn DeliveryQueue>
        };
        QueueShards::new(shards.map(shard).collect()).unwrap()
    }
}

fn groups(numbers: std::ops::Range<i64>) -> Vec<PermitGroup> {
    let permit = |number| Permit {
        destination: DestinationId(Uuid::from_u128(1)),
        attempt: AttemptId(number),
        number: PermitNumber(number),
        epoch: Epoch(1),
        not_before: Timestamp::from_millis(number),
        deadline: Timestamp::from_millis(number),
    };
    let group = |number| PermitGroup::new(vec![permit(number)]).unwrap();
    numbers.map(group).collect()
}

/// Whose attempts come, and are settled, until so many have.
async fn attempts(from: &mut dyn Subscription, count: usize) -> Vec<i64> {
    let mut attempts = Vec::new();
    while attempts.len() < count {
        let deliveries = from.receive(100).await.unwrap();
        let done = deliveries.iter().map(|one| (one.tag, Settlement::Done));
        from.settle(&done.collect::<Vec<_>>()).await.unwrap();
        let came = deliveries.iter().flat_map(|one| one.group.permits());
        attempts.extend(came.map(|permit| permit.attempt.0));
    }
    attempts.sort_unstable();
    attempts
}

#[tokio::test(start_paused = true)]
async fn groups_of_one_destination_go_to_every_shard() {
    let world = World::new(3);
    let answers = world.seen_with(3).publish(&groups(0..30)).await.unwrap();
    assert_eq!(answers, [Published::Confirmed; 30]);
    for queue in &world.queues {
        let mut from = queue.subscribe(100).await.unwrap();
        assert_eq!(attempts(from.as_mut(), 10).await.len(), 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_away_is_passed_over_until_none_is_left() {
    let world = World::new(3);
    let queue = world.seen_with(3);
    let mut from = queue.subscribe(30).await.unwrap();
    world.away[1].store(true, Ordering::SeqCst);
    let answers = queue.publish(&groups(0..10)).await.unwrap();
    assert_eq!(answers, [Published::Confirmed; 10]);
    assert_eq!(
        attempts(from.as_mut(), 10).await,
        (0..10).collect::<Vec<_>>()
    );
    queue.health().unwrap();
    for is_away in &world.away {
        is_away.store(true, Ordering::SeqCst);
    }
    queue.publish(&groups(0..10)).await.unwrap_err();
    queue.health().unwrap_err();
}

/// With more shards readers first, with fewer publishers first.
#[tokio::test(start_paused = true)]
async fn no_message_is_lost_when_the_number_changes() {
    let world = World::new(3);
    let (one, three) = (world.seen_with(1), world.seen_with(3));
    let mut from = three.subscribe(30).await.unwrap();
    one.publish(&groups(0..10)).await.unwrap();
    three.publish(&groups(10..20)).await.unwrap();
    one.publish(&groups(20..30)).await.unwrap();
    assert_eq!(
        attempts(from.as_mut(), 30).await,
        (0..30).collect::<Vec<_>>()
    );
    drop(from);
    let mut from = one.subscribe(30).await.unwrap();
    one.publish(&groups(30..40)).await.unwrap();
    assert_eq!(
        attempts(from.as_mut(), 10).await,
        (30..40).collect::<Vec<_>>()
    );
}
