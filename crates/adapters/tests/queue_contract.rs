//! The contract of the delivery queue, on every adapter.
//!
//! RabbitMQ is the one at `PACELINE_TEST_AMQP_URL`; without it these fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "rabbitmq_queue/test_queue.rs"]
mod test_queue;

use adapters::in_process::InProcessQueue;
use adapters::queue_shards::QueueShards;
use adapters::rabbitmq::{QueueKind, RabbitQueue};
use engine::ports::DeliveryQueue;
use lapin::options::QueueDeleteOptions;

use crate::test_queue::TestQueue;

/// No divisor of the numbers of groups and of prefetches.
const SHARDS: u16 = 4;

fn in_process_shards() -> QueueShards {
    let shard = |_| Box::new(InProcessQueue::new(1_000)) as Box<dyn DeliveryQueue>;
    QueueShards::new((0..SHARDS).map(shard).collect()).unwrap()
}

async fn rabbitmq_shards(own: &TestQueue) -> QueueShards {
    let queue = RabbitQueue::connect_shards(&own.url, &own.name, QueueKind::Quorum, SHARDS);
    queue.await.unwrap()
}

async fn delete_shards(own: TestQueue) {
    for shard in 1..SHARDS {
        for end in ["", ".dead"] {
            let name = format!("{}.{shard}{end}", own.name);
            let deleted = own
                .channel
                .queue_delete(name.as_str().into(), QueueDeleteOptions::default());
            deleted.await.unwrap();
        }
    }
    own.delete().await;
}

/// A subscription with a prefetch of one has one message of each shard all the
/// same, and one that it has in hand keeps the others waiting: with fewer messages
/// than shards it is not shown who of several is woken. All else is.
macro_rules! sharded_test {
    (those_who_wait_are_woken) => {};
    ($check:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $check() {
            let own = crate::test_queue::TestQueue::shared().await;
            contract::queue::$check(&crate::rabbitmq_shards(&own).await).await;
            crate::delete_shards(own).await;
        }
    };
}

/// One test a check, on one adapter.
macro_rules! contract {
    ($($check:ident)*) => {
        mod in_process {
            $(
                #[tokio::test(start_paused = true)]
                async fn $check() {
                    let queue = adapters::in_process::InProcessQueue::new(1_000);
                    contract::queue::$check(&queue).await;
                }
            )*
        }

        mod in_process_in_shards {
            $(
                #[tokio::test(start_paused = true)]
                async fn $check() {
                    let queue = crate::in_process_shards();
                    contract::queue::$check(&queue).await;
                }
            )*
        }

        mod rabbitmq_in_shards {
            $(sharded_test!($check);)*
        }

        mod rabbitmq_classic {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let own = crate::test_queue::TestQueue::shared().await;
                    let kind = adapters::rabbitmq::QueueKind::Classic;
                    contract::queue::$check(&own.connect_as(kind).await).await;
                    own.delete().await;
                }
            )*
        }

        mod rabbitmq {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let own = crate::test_queue::TestQueue::shared().await;
                    contract::queue::$check(&own.connect().await).await;
                    own.delete().await;
                }
            )*
        }
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
