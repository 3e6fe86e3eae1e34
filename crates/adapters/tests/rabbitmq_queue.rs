//! What can happen to a broker, and how the delivery queue takes it.
//!
//! Most run on the broker at `PACELINE_TEST_AMQP_URL`, without which they
//! fail; the last starts one of its own with `scripts/servers`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "rabbitmq_queue/private_broker.rs"]
mod private_broker;
#[path = "rabbitmq_queue/proxy.rs"]
mod proxy;
#[path = "rabbitmq_queue/test_queue.rs"]
mod test_queue;

use std::time::Duration;

use adapters::rabbitmq::{QueueKind, RabbitQueue};
use domain::ids::{AttemptId, DestinationId, Epoch, PermitNumber};
use domain::permit::{Permit, PermitGroup};
use domain::time::Timestamp;
use engine::ports::{Delivery, DeliveryQueue, Published, QueueError, Settlement, Subscription};
use lapin::BasicProperties;
use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::private_broker::PrivateBroker;
use crate::proxy::Proxy;
use crate::test_queue::TestQueue;

/// A broker that starts again on a busy machine can take more than half a
/// minute until its quorum queue has a leader.
const PATIENCE: Duration = Duration::from_secs(180);

fn group(seed: i64) -> PermitGroup {
    let destination = "00000000-0000-7000-8000-000000000001";
    PermitGroup::new(vec![Permit {
        destination: destination.parse::<DestinationId>().unwrap(),
        attempt: AttemptId(seed),
        number: PermitNumber(seed),
        epoch: Epoch(1),
        not_before: Timestamp::from_micros(seed),
        deadline: Timestamp::from_micros(seed + 2_000_000),
    }])
    .unwrap()
}

fn groups(count: i64) -> Vec<PermitGroup> {
    (0..count).map(group).collect()
}

/// Publishes until it is confirmed.
async fn publish_in_the_end(queue: &RabbitQueue, group: &PermitGroup) {
    let trying = async {
        while !matches!(
            queue.publish(std::slice::from_ref(group)).await.as_deref(),
            Ok([Published::Confirmed])
        ) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, trying).await.expect("never confirmed");
}

/// Receives, through any errors, until `wanted` comes, and settles all.
/// Answers how many errors there were.
async fn receive_in_the_end(from: &mut dyn Subscription, wanted: &PermitGroup) -> usize {
    let mut errors = 0;
    let receiving = async {
        loop {
            let Ok(deliveries) = from.receive(10).await else {
                errors += 1;
                continue;
            };
            settle(from, &deliveries).await;
            if deliveries.iter().any(|one| one.group == *wanted) {
                return;
            }
        }
    };
    timeout(PATIENCE, receiving).await.expect("never received");
    errors
}

async fn settle(from: &mut dyn Subscription, deliveries: &[Delivery]) {
    let done = |one: &Delivery| (one.tag, Settlement::Done);
    let settlements: Vec<_> = deliveries.iter().map(done).collect();
    from.settle(&settlements).await.unwrap();
}

/// The next dead letter's body, once there is one.
async fn dead_letter(of: &TestQueue) -> Vec<u8> {
    let name = format!("{}.dead", of.name);
    loop {
        let options = BasicGetOptions { no_ack: true };
        let got = of.channel.basic_get(name.as_str().into(), options).await;
        match got.unwrap() {
            Some(message) => return message.delivery.data,
            None => sleep(Duration::from_millis(20)).await,
        }
    }
}

async fn until_healthy(queue: &RabbitQueue) {
    let healthy = async {
        while queue.health().is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, healthy).await.expect("never healthy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_queue_comes_back() {
    let own = TestQueue::shared().await;
    let queue = own.connect().await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    publish_in_the_end(&queue, &group(0)).await;
    receive_in_the_end(subscription.as_mut(), &group(0)).await;

    let options = QueueDeleteOptions::default();
    let name = own.name.as_str();
    own.channel
        .queue_delete(name.into(), options)
        .await
        .unwrap();
    // The consumer is told, and may have declared the queue by now.
    let answers = queue.publish(&groups(50)).await.unwrap();
    assert_eq!(answers.len(), 50);
    publish_in_the_end(&queue, &group(99)).await;
    let errors = receive_in_the_end(subscription.as_mut(), &group(99)).await;
    assert_eq!(errors, 1, "one lost consumer is told once");
    until_healthy(&queue).await;
    drop((queue, subscription));
    own.delete().await;
}

/// The broker then takes the consumer for one of the new queue, and never
/// gives it anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_is_deleted_and_made_again_at_once_is_consumed() {
    let own = TestQueue::shared().await;
    let queue = own.connect().await;
    let mut subscription = queue.subscribe(10).await.unwrap();
    let options = QueueDeleteOptions::default();
    let name = own.name.as_str();
    own.channel
        .queue_delete(name.into(), options)
        .await
        .unwrap();
    let other = own.connect().await;
    publish_in_the_end(&other, &group(1)).await;
    receive_in_the_end(subscription.as_mut(), &group(1)).await;
    // By the new channel as by any.
    publish_in_the_end(&queue, &group(2)).await;
    receive_in_the_end(subscription.as_mut(), &group(2)).await;
    drop((queue, other, subscription));
    own.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_queue_takes_is_unconfirmed() {
    let own = TestQueue::shared().await;
    let queue = own.connect().await;
    let options = QueueDeleteOptions::default();
    let name = own.name.as_str();
    own.channel
        .queue_delete(name.into(), options)
        .await
        .unwrap();
    // Nobody consumes, so only the returned messages tell.
    let answers = queue.publish(&groups(200)).await.unwrap();
    assert_eq!(answers, vec![Published::Unconfirmed; 200]);
    publish_in_the_end(&queue, &group(1)).await;
    assert_eq!(
        queue.publish(&groups(3)).await.unwrap(),
        [Published::Confirmed; 3]
    );
    drop(queue);
    own.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purged_queue_goes_on() {
    let own = TestQueue::shared().await;
    let queue = own.connect().await;
    assert_eq!(
        queue.publish(&groups(20)).await.unwrap(),
        [Published::Confirmed; 20]
    );
    let mut subscription = queue.subscribe(2).await.unwrap();
    let held = subscription.receive(1).await.unwrap();
    let options = QueuePurgeOptions::default();
    let name = own.name.as_str();
    own.channel.queue_purge(name.into(), options).await.unwrap();
    settle(subscription.as_mut(), &held).await;
    publish_in_the_end(&queue, &group(99)).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(99)).await,
        0
    );
    drop((queue, subscription));
    own.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_no_group_is_a_dead_letter() {
    let own = TestQueue::shared().await;
    let queue = own.connect().await;
    let mut subscription = queue.subscribe(1).await.unwrap();
    // Unconfirmed, poison could come behind the group, which has all of the prefetch.
    let confirmed = ConfirmSelectOptions::default();
    own.channel.confirm_select(confirmed).await.unwrap();
    // Headers come in one frame, which is larger than any message of ours.
    let mut headers = FieldTable::default();
    let text = "x".repeat(20_000);
    headers.insert("of-others".into(), AMQPValue::LongString(text.into()));
    let large = BasicProperties::default().with_headers(headers);
    let plain = BasicProperties::default();
    let poisons = [
        (&b""[..], &plain),
        (b"\x03 of a version to come", &plain),
        (b"{}", &large),
    ];
    for (poison, properties) in poisons {
        let options = BasicPublishOptions::default();
        let name = own.name.as_str().into();
        let published =
            own.channel
                .basic_publish("".into(), name, options, poison, properties.clone());
        assert!(published.await.unwrap().await.unwrap().is_ack());
    }
    publish_in_the_end(&queue, &group(1)).await;
    let received = timeout(PATIENCE, subscription.receive(10))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].group, group(1));
    for _ in poisons {
        let dead = timeout(PATIENCE, dead_letter(&own))
            .await
            .expect("no dead letter");
        assert!(poisons.iter().any(|(poison, _)| *poison == dead));
    }
    drop((queue, subscription));
    own.delete().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_and_dead_connections_are_redialled() {
    let own = TestQueue::shared().await;
    let parsed = url::Url::parse(&own.url).unwrap();
    let (host, port) = (parsed.host_str().unwrap(), parsed.port().unwrap_or(5672));
    let proxy = Proxy::to(format!("{host}:{port}")).await;
    let mut through = parsed.clone();
    through.set_port(Some(proxy.port)).unwrap();
    // A consumer has only the heartbeat to find a dead connection by.
    through.set_query(Some("heartbeat=1"));
    let queue = RabbitQueue::connect(through.as_str(), &own.name, QueueKind::Quorum)
        .await
        .unwrap();
    let mut subscription = queue.subscribe(10).await.unwrap();
    publish_in_the_end(&queue, &group(0)).await;
    receive_in_the_end(subscription.as_mut(), &group(0)).await;

    // Received, unsettled, and cut off: it comes again, under another tag.
    publish_in_the_end(&queue, &group(1)).await;
    let before = subscription.receive(10).await.unwrap();
    proxy.cut();
    let error = timeout(PATIENCE, subscription.receive(10)).await.unwrap();
    assert!(
        matches!(error, Err(QueueError::Unavailable(_))),
        "{error:?}"
    );
    settle(subscription.as_mut(), &before).await;
    let again = timeout(PATIENCE, subscription.receive(10))
        .await
        .unwrap()
        .unwrap();
    assert!(again[0].redelivered && again[0].group == group(1));
    assert_ne!(again[0].tag.connection, before[0].tag.connection);
    settle(subscription.as_mut(), &before).await;
    settle(subscription.as_mut(), &again).await;
    publish_in_the_end(&queue, &group(2)).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(2)).await,
        0
    );

    // Not cut, only dead: nothing tells, but the clock.
    proxy.freeze();
    let unanswered = groups(3);
    let given_up = timeout(PATIENCE, queue.publish(&unanswered)).await;
    let answers = given_up.expect("publishing hangs").unwrap();
    assert_eq!(answers, [Published::Unconfirmed; 3]);
    publish_in_the_end(&queue, &group(3)).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(3)).await,
        1
    );
    until_healthy(&queue).await;
    drop((queue, subscription));
    own.delete().await;
}

#[tokio::test]
async fn a_broker_that_says_nothing_is_an_error() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("amqp://guest:s3cret@127.0.0.1:{port}/%2f");
    let given_up = timeout(
        PATIENCE,
        RabbitQueue::connect(&url, "never", QueueKind::Quorum),
    )
    .await;
    let error = given_up.expect("dialling hangs").unwrap_err();
    assert!(matches!(error, QueueError::Unavailable(_)));
    assert!(!error.to_string().contains("s3cret"), "{error}");
    drop(silent);
    let refused = RabbitQueue::connect(&url, "never", QueueKind::Quorum)
        .await
        .unwrap_err();
    assert!(!refused.to_string().contains("s3cret"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_with_other_arguments_is_refused() {
    let own = TestQueue::shared().await;
    let options = QueueDeclareOptions::durable();
    let arguments = FieldTable::default();
    let name = own.name.as_str().into();
    own.channel
        .queue_declare(name, options, arguments)
        .await
        .unwrap();
    let error = RabbitQueue::connect(&own.url, &own.name, QueueKind::Quorum)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("inequivalent arg"), "{error}");
    own.delete().await;
}

/// It is not made anew: whoever has made it may be using it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_the_other_kind_is_refused() {
    for (made, asked) in [
        (QueueKind::Quorum, QueueKind::Classic),
        (QueueKind::Classic, QueueKind::Quorum),
    ] {
        let own = TestQueue::shared().await;
        drop(own.connect_as(made).await);
        let error = RabbitQueue::connect(&own.url, &own.name, asked)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("x-queue-type"), "{error}");
        own.delete().await;
    }
}

/// One broker for both, as it takes seconds to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_alarm_and_a_crash_are_survived() {
    let broker = tokio::task::block_in_place(PrivateBroker::start);
    let own = TestQueue::at(broker.url()).await;
    let queue = own.connect().await;
    let mut subscription = queue.subscribe(2).await.unwrap();
    assert_eq!(
        queue.publish(&groups(5)).await.unwrap(),
        [Published::Confirmed; 5]
    );
    let held = subscription.receive(2).await.unwrap();

    tokio::task::block_in_place(|| broker.control(&["set_vm_memory_high_watermark", "0"]));
    let blocking = async {
        while !matches!(queue.publish(&groups(1)).await, Err(QueueError::Blocked(_))) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, blocking).await.expect("never blocked");
    assert!(matches!(queue.health(), Err(QueueError::Blocked(_))));
    for _ in 0..100 {
        let answer = queue.publish(&groups(100)).await;
        assert!(matches!(answer, Err(QueueError::Blocked(_))), "{answer:?}");
    }
    // Consuming goes on, and settling: with two unsettled, no third comes.
    settle(subscription.as_mut(), &held).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(4)).await,
        0
    );

    tokio::task::block_in_place(|| broker.control(&["set_vm_memory_high_watermark", "0.6"]));
    until_healthy(&queue).await;
    publish_in_the_end(&queue, &group(10)).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(10)).await,
        0
    );

    let written = async {
        while !broker.has_written(&own.name) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, written).await.expect("never written");
    tokio::task::block_in_place(|| broker.kill());
    let error = timeout(PATIENCE, subscription.receive(1)).await.unwrap();
    assert!(
        matches!(error, Err(QueueError::Unavailable(_))),
        "{error:?}"
    );
    assert!(matches!(queue.health(), Err(QueueError::Unavailable(_))));
    assert_ne!(
        queue.publish(&groups(1)).await.ok(),
        Some(vec![Published::Confirmed])
    );
    tokio::task::block_in_place(|| broker.start_again());
    publish_in_the_end(&queue, &group(11)).await;
    assert_eq!(
        receive_in_the_end(subscription.as_mut(), &group(11)).await,
        0
    );
    until_healthy(&queue).await;
    drop((queue, subscription));
    drop(own);
    tokio::task::block_in_place(|| drop(broker));
}
