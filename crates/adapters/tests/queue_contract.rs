//! The contract of the delivery queue, on every adapter.
//!
//! RabbitMQ is the one at `PACELINE_TEST_AMQP_URL`; without it these fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "rabbitmq_queue/test_queue.rs"]
mod test_queue;

/// One test a check, on one adapter.
macro_rules! contract {
    ($($check:ident)*) => {
        mod in_process {
            $(
                #[tokio::test(start_paused = true)]
                async fn $check() {
                    let queue = adapters::in_process::InProcessQueue::new(1_000);
                    engine::contract::queue::$check(&queue).await;
                }
            )*
        }

        mod rabbitmq {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let own = crate::test_queue::TestQueue::shared().await;
                    engine::contract::queue::$check(&own.connect().await).await;
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
