//! Admission by every shape of limit, and where the limit comes from.

use std::time::Duration;

use domain::admission::{Blocked, Look, SLACK};
use domain::limit::Shape;

use super::World;
use super::world::most_in_any;

/// The latest slot that any of them gives.
pub async fn two_limits_hold_at_once(world: &World) {
    let destination = world
        .destination()
        .per_second(3)
        .per_minute(5)
        .create()
        .await;
    world.accept(destination, 20).await;
    let until = world.now().await + Duration::from_millis(2_500);
    assert_eq!(world.drive(destination, until).await, 5);
    let starts = world.starts(destination).await;
    assert_eq!(most_in_any(Duration::from_secs(1), &starts), 3);
    let (_, _, blocked) = world.decide(destination).await;
    assert_eq!(blocked, Some(Blocked::Limit));
}

/// `burst` at once, then L per P; never more than burst + r·(t + slack).
pub async fn a_token_bucket_has_its_capacity_and_its_refill(world: &World) {
    let bucket = world
        .destination()
        .per_second(10)
        .shape(Shape::TokenBucket)
        .burst(15);
    let destination = bucket.create().await;
    world.accept(destination, 100).await;
    let began = world.now().await;
    let started = world
        .drive(destination, began + Duration::from_secs(2))
        .await;
    let starts = world.starts(destination).await;
    assert!(started >= 28, "only {started} starts");
    for (before, first) in starts.iter().enumerate() {
        for (up_to, last) in starts.iter().enumerate().skip(before) {
            let seconds = (last.since(*first) + SLACK).as_secs_f64();
            let bound = 15.0 + 10.0 * seconds;
            assert!(
                (up_to - before + 1) as f64 <= bound,
                "{seconds} s over {bound}"
            );
        }
    }
    let at_once = starts
        .iter()
        .filter(|start| **start <= starts[0] + Duration::from_millis(90));
    assert!(at_once.count() >= 10, "the capacity was not used");
}

/// A token is gone when its permit is given: it may start at any time.
pub async fn a_bucket_counts_permits_that_have_not_started(world: &World) {
    let bucket = world.destination().per_minute(3).shape(Shape::TokenBucket);
    let destination = bucket.burst(3).create().await;
    world.accept(destination, 10).await;
    assert_eq!(world.admit(destination).await.len(), 3);
    assert_eq!(world.admit(destination).await, []);
}

/// Slots are evenly spaced at P/L.
pub async fn a_leaky_bucket_spaces_its_starts(world: &World) {
    let leaky = world.destination().per_second(20).shape(Shape::LeakyBucket);
    let destination = leaky.create().await;
    world.accept(destination, 10).await;
    let mut permits = world.admit(destination).await;
    while permits.len() < 10 {
        world.pass(Duration::from_millis(60)).await;
        permits.extend(world.admit(destination).await);
    }
    for pair in permits.windows(2) {
        let apart = pair[1].not_before.since(pair[0].not_before);
        assert!(apart >= Duration::from_millis(50), "{apart:?} apart");
        assert_eq!(pair[1].deadline, pair[1].not_before + SLACK);
    }
}

/// A bucket that comes into force counts the starts before it, also those of
/// a window that came between two buckets: no burst on top of what the window
/// allowed.
pub async fn a_bucket_that_comes_into_force_counts_the_starts_before_it(world: &World) {
    let destination = world.destination().per_second(10).shape(Shape::TokenBucket);
    let destination = destination.burst(2).create().await;
    world.accept(destination, 60).await;
    let worker = world.worker().await;
    let set = async |columns: &str| {
        let set = format!("update destinations set {columns} where id = '{destination}'");
        world.sql(&set).await;
    };
    let permits = world.admit(destination).await;
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    world.pass(Duration::from_millis(1_500)).await;
    set("shape = 'sliding_window', burst = null").await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 10);
    let last = world.start(worker, &permits).await[9].claimed_at;
    world.finish(worker, &permits).await;
    set("shape = 'token_bucket', burst = 10").await;
    let permits = world.admit(destination).await;
    // Ten are missing; a token comes every 100 ms.
    let at_once = last + Duration::from_millis(90);
    let at_once = permits.iter().filter(|permit| permit.not_before < at_once);
    assert_eq!(
        at_once.count(),
        0,
        "a burst on top of a window: {permits:?}"
    );
}

/// Two buckets, the first beside a minute's window: what the window let through
/// counts in the second one, whose level alone would say that it is full.
pub async fn a_bucket_after_a_bucket_beside_a_window_counts_the_starts(world: &World) {
    let destination = world.destination().per_second(50).per_minute(20);
    let destination = destination.shape(Shape::TokenBucket).create().await;
    world.accept(destination, 60).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 20);
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    // Long enough for the first bucket to be full again.
    world.pass(Duration::from_millis(1_100)).await;
    let set = "limit_per_second = null, limit_per_minute = 10, burst = 10";
    let set = format!("update destinations set {set} where id = '{destination}'");
    world.sql(&set).await;
    // 20 are missing of 10, a token comes every 6 s.
    assert_eq!(world.admit(destination).await, []);
}

/// A change that leaves the limits alone leaves the bucket's level alone: it is
/// not full again.
pub async fn another_url_does_not_fill_the_bucket(world: &World) {
    let destination = world.destination().per_minute(2).burst(5);
    let destination = destination.shape(Shape::TokenBucket).create().await;
    world.accept(destination, 20).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 5);
    world.start(worker, &permits).await;
    let set = "url = 'https://receiver.example/elsewhere'";
    let set = format!("update destinations set {set} where id = '{destination}'");
    world.sql(&set).await;
    assert_eq!(world.admit(destination).await, []);
}

/// What a large bucket used up does not stop a small one for longer than its
/// own burst and one period's worth.
pub async fn a_smaller_bucket_does_not_pay_for_the_larger_ones_burst(world: &World) {
    let destination = world.destination().per_second(1).burst(40);
    let destination = destination.shape(Shape::TokenBucket).create().await;
    world.accept(destination, 60).await;
    let worker = world.worker().await;
    let permits = world.admit(destination).await;
    assert_eq!(permits.len(), 40);
    world.start(worker, &permits).await;
    world.finish(worker, &permits).await;
    let set = format!("update destinations set burst = 1 where id = '{destination}'");
    world.sql(&set).await;
    let changed = world.now().await;
    let (permits, look, _) = world.decide(destination).await;
    assert_eq!(permits, []);
    // Two are missing of one: the next token but one comes within 2 s.
    let Look::At { at, .. } = look else {
        panic!("{look:?} with a backlog")
    };
    assert!(
        at <= changed + Duration::from_secs(2),
        "{:?}",
        at.since(changed)
    );
}

/// All at once, up to the default of `max_in_flight`.
pub async fn unlimited_is_bounded_by_max_in_flight_alone(world: &World) {
    let destination = world.destination().unlimited().create().await;
    world.accept(destination, 60).await;
    let (permits, _, blocked) = world.decide(destination).await;
    assert_eq!((permits.len(), blocked), (50, Some(Blocked::Concurrency)));
}

/// All four NULL: the tier's limit, shape and burst.
pub async fn without_limits_of_its_own_it_has_the_tiers(world: &World) {
    world
        .sql("update tiers set limit_per_second = 2, burst = 7 where name = 'standard'")
        .await;
    let destination = world.destination().create().await;
    world.accept(destination, 20).await;
    // The bucket of seven; the next token comes after half a second.
    assert_eq!(world.admit(destination).await.len(), 7);
    let tenant = engine::ports::DEFAULT_TENANT;
    let read = world
        .catalog
        .destination(tenant, destination)
        .await
        .unwrap();
    assert!(read.limits.inherits());
    assert_eq!(read.effective.per_second, Some(2));
    assert_eq!(read.effective.burst, Some(7));
    assert_eq!(read.effective.shape, Some(Shape::TokenBucket));
}

/// One set: the others do not limit, and the shape is a sliding window.
pub async fn one_limit_of_its_own_is_not_the_tiers(world: &World) {
    let destination = world.destination().per_minute(4).create().await;
    world.accept(destination, 20).await;
    assert_eq!(world.admit(destination).await.len(), 4);
    let tenant = engine::ports::DEFAULT_TENANT;
    let read = world
        .catalog
        .destination(tenant, destination)
        .await
        .unwrap();
    assert_eq!(
        (read.effective.per_second, read.effective.per_minute),
        (None, Some(4))
    );
    assert_eq!((read.effective.burst, read.effective.shape), (None, None));
}
