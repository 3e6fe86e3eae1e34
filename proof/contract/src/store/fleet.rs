//! [`Store::heartbeat`](engine::ports::Store::heartbeat) and
//! [`Store::fleet`](engine::ports::Store::fleet).

use std::time::Duration;

use domain::ids::WorkerId;
use domain::share::Room;

use super::World;
use engine::ports::{HEARTBEAT_TIMEOUT, Heartbeat, Recorded};

/// A sign of life, and the fleet after it.
async fn beat(world: &World, worker: WorkerId, places: u32) -> (u32, u32) {
    let before = world.now().await;
    let heartbeat = Heartbeat { worker, places };
    let now = world.store.heartbeat(&heartbeat).await.unwrap();
    assert!(before <= now && now <= world.now().await, "{now:?}");
    fleet(world).await
}

async fn fleet(world: &World) -> (u32, u32) {
    let fleet = world.store.fleet().await.unwrap();
    (fleet.workers, fleet.places)
}

/// A heartbeat is in the next count; its places may change.
pub async fn live_workers_and_their_places_count(world: &World) {
    assert_eq!(fleet(world).await, (0, 0));
    let (one, two) = (WorkerId(world.id()), WorkerId(world.id()));
    assert_eq!(beat(world, one, 10).await, (1, 10));
    assert_eq!(beat(world, two, 5).await, (2, 15));
    assert_eq!(beat(world, one, 20).await, (2, 25));
    assert_eq!(fleet(world).await, (2, 25));
}

/// No places: it retires.
pub async fn a_retired_worker_does_not_count(world: &World) {
    let (one, two) = (WorkerId(world.id()), WorkerId(world.id()));
    beat(world, one, 10).await;
    beat(world, two, 5).await;
    assert_eq!(beat(world, one, 0).await, (1, 5));
    assert_eq!(fleet(world).await, (1, 5));
}

/// Older than the timeout: gone, and a late heartbeat does not bring it back.
pub async fn a_lapsed_worker_does_not_count_and_is_not_revived(world: &World) {
    let worker = WorkerId(world.id());
    beat(world, worker, 10).await;
    world
        .pass(HEARTBEAT_TIMEOUT + Duration::from_millis(100))
        .await;
    assert_eq!(fleet(world).await, (0, 0));
    assert_eq!(beat(world, worker, 10).await, (0, 0));
    assert_eq!(beat(world, WorkerId(world.id()), 3).await, (1, 3));
}

/// Admitted, of all destinations; not the waiting, not the started.
pub async fn outstanding_permits_count(world: &World) {
    let one = world
        .destination()
        .unlimited()
        .max_in_flight(3)
        .create()
        .await;
    let two = world
        .destination()
        .unlimited()
        .max_in_flight(2)
        .create()
        .await;
    world.accept(one, 5).await;
    world.accept(two, 5).await;
    let permits = world.admit(one).await;
    world.admit(two).await;
    assert_eq!(world.store.fleet().await.unwrap().outstanding, 5);
    let worker = world.worker().await;
    world.start(worker, &permits[..1]).await;
    assert_eq!(world.store.fleet().await.unwrap().outstanding, 4);
}

/// A process asks for nothing to make its statements ready, also before its
/// worker is known.
pub async fn empty_batches_touch_nothing(world: &World) {
    let one = world.destination().unlimited().create().await;
    world.accept(one, 1).await;
    let worker = WorkerId(world.id());
    let before = world.now().await;
    let admitted = world.store.admit(&[], &Room::of(100)).await.unwrap();
    assert!(admitted.results.is_empty() && admitted.given.is_empty());
    let claims = world.store.claim_starts(worker, &[]).await.unwrap();
    assert!(claims.answers.is_empty() && claims.wakes.is_empty());
    for now in [admitted.now, claims.now] {
        assert!(before <= now && now <= world.now().await, "{now:?}");
    }
    let recorded = world.store.record_outcomes(worker, &[]).await.unwrap();
    assert_eq!(recorded, Recorded::default());
    assert_eq!(world.store.targets(&[]).await.unwrap(), []);
    assert_eq!(world.store.release_permits(&[]).await.unwrap(), []);
    assert_eq!(fleet(world).await, (0, 0));
    assert_eq!(world.admit(one).await.len(), 1);
}
