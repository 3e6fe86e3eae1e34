//! Limits so large that their starts are counted in coarse buckets: each
//! start exactly once, whatever state its row is in.

use std::time::Duration;

use domain::admission::Blocked;
use domain::ids::{DestinationId, WorkerId};

use super::World;

/// Admits and starts until nothing more is admitted; finishes all but
/// `unfinished` of each run. How many started, and what stops the rest.
async fn exhaust(
    world: &World,
    destination: DestinationId,
    worker: WorkerId,
    unfinished: usize,
) -> (usize, Option<Blocked>) {
    let mut started = 0;
    let mut empty = 0;
    let mut stopped = None;
    while empty < 3 {
        let (permits, _, blocked) = world.decide(destination).await;
        started += world.start(worker, &permits).await.len();
        world
            .finish(worker, &permits[unfinished.min(permits.len())..])
            .await;
        empty = if permits.is_empty() { empty + 1 } else { 0 };
        stopped = blocked;
        world.pass(Duration::from_millis(25)).await;
    }
    (started, stopped)
}

/// In flight or final, folded or not: all of them, once.
pub async fn a_coarse_limit_counts_started_and_finished(world: &World) {
    let limited = world.destination().per_minute(2_100).max_in_flight(700);
    let destination = limited.create().await;
    world.accept(destination, 2_300).await;
    let worker = world.worker().await;
    let stopped = exhaust(world, destination, worker, 20).await;
    assert_eq!(stopped, (2_100, Some(Blocked::Limit)));
    assert_eq!(world.backlog(destination).await, 200);
}

/// Successes of a coarse limit and of an exact one in one batch, which comes twice.
pub async fn what_is_recorded_together_counts_each_its_own_way(world: &World) {
    let coarse = world.destination().per_minute(2_100).max_in_flight(700);
    let coarse = coarse.create().await;
    let exact = world.destination().per_minute(5).max_in_flight(2);
    let exact = exact.create().await;
    world.accept(coarse, 2_200).await;
    world.accept(exact, 10).await;
    let worker = world.worker().await;
    let of_coarse = world.admit(coarse).await;
    let of_exact = world.admit(exact).await;
    assert!(!of_coarse.is_empty() && of_exact.len() == 2);
    world.start(worker, &of_coarse).await;
    world.start(worker, &of_exact).await;
    let together = [&of_coarse[..], &of_exact[..]].concat();
    for _ in 0..2 {
        assert_eq!(world.finish(worker, &together).await.skipped, []);
    }
    let stopped = exhaust(world, exact, worker, 0).await;
    assert_eq!(stopped, (3, Some(Blocked::Limit)));
    let stopped = exhaust(world, coarse, worker, 0).await;
    let left = 2_100 - of_coarse.len();
    assert_eq!(stopped, (left, Some(Blocked::Limit)));
}

/// Rows that were finished without being folded are counted all the same.
pub async fn a_limit_that_becomes_coarse_counts_what_started_before(world: &World) {
    let limited = world.destination().per_minute(150).max_in_flight(700);
    let destination = limited.create().await;
    world.accept(destination, 2_300).await;
    let worker = world.worker().await;
    let stopped = exhaust(world, destination, worker, 10).await;
    assert_eq!(stopped, (150, Some(Blocked::Limit)));
    let raise = "update destinations set limit_per_minute = 2100";
    world
        .sql(&format!("{raise} where id = '{destination}'"))
        .await;
    let stopped = exhaust(world, destination, worker, 10).await;
    assert_eq!(stopped, (1_950, Some(Blocked::Limit)));
}
