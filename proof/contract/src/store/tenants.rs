//! Tenants beside each other: whose permits they are.

use domain::admission::Blocked;
use domain::ids::{DestinationId, TenantId};
use domain::share::{Load, Room};

use super::World;
use engine::ports::{Admitted, DEFAULT_TENANT, Run, RunResult};

/// A tenant of its own.
pub(crate) async fn new_tenant(world: &World) -> TenantId {
    let id = TenantId(world.id());
    let insert = format!("insert into tenants (id, name, tier) values ('{id}', 'new', 'free')");
    world.sql(&insert).await;
    id
}

/// Unlimited destinations of a tenant, with so many events each.
async fn busy<const N: usize>(
    world: &World,
    tenant: TenantId,
    waiting: usize,
) -> [DestinationId; N] {
    let mut destinations = Vec::new();
    for _ in 0..N {
        let destination = world.destination().unlimited().create_for(tenant).await;
        world.accept_for(tenant, destination, waiting).await;
        destinations.push(destination);
    }
    destinations.try_into().unwrap()
}

async fn admit(world: &World, destinations: &[DestinationId], room: &Room) -> Admitted {
    let run = |destination: &DestinationId| Run {
        destination: *destination,
        republish: false,
    };
    let runs: Vec<Run> = destinations.iter().map(run).collect();
    world.store.admit(&runs, room).await.unwrap()
}

/// The room as it is now, if the fleet may have so many permits.
async fn room(world: &World, capacity: u32) -> Room {
    let fleet = world.store.fleet().await.unwrap();
    Room {
        capacity,
        outstanding: fleet.outstanding,
        loads: fleet.loads,
    }
}

fn permits(admitted: &Admitted) -> Vec<usize> {
    let each = admitted.results.iter().map(|result| match result {
        RunResult::Decided { permits, .. } => permits.len(),
        other => panic!("expected a decision, got {other:?}"),
    });
    each.collect()
}

/// However many one of them has.
pub async fn tenants_share_before_their_destinations_do(world: &World) {
    let other = new_tenant(world).await;
    let many: [_; 9] = busy(world, DEFAULT_TENANT, 10).await;
    let [single] = busy(world, other, 40).await;
    let all = [&many[..], &[single]].concat();
    let admitted = admit(world, &all, &Room::of(36)).await;
    assert_eq!(permits(&admitted), [2, 2, 2, 2, 2, 2, 2, 2, 2, 18]);
    let given: Vec<_> = (admitted.given.iter())
        .map(|one| (one.tenant, one.permits))
        .collect();
    let mut expected = [(DEFAULT_TENANT, 18), (other, 18)];
    expected.sort();
    assert_eq!(given, expected);
}

/// And the other gets no more until it is down to its own.
pub async fn a_share_is_given_though_another_has_taken_the_room(world: &World) {
    let other = new_tenant(world).await;
    let [greedy] = busy(world, DEFAULT_TENANT, 60).await;
    let [single] = busy(world, other, 40).await;
    let taken = admit(world, &[greedy], &Room::of(40)).await;
    assert_eq!(permits(&taken), [40], "alone it has it all");
    let admitted = admit(world, &[greedy, single], &room(world, 40).await).await;
    assert_eq!(permits(&admitted), [0, 20]);
    let RunResult::Decided { blocked, .. } = &admitted.results[0] else {
        panic!("expected a decision");
    };
    assert_eq!(*blocked, Some(Blocked::Places));
}

/// Queued and in flight.
pub async fn the_fleet_says_what_each_tenant_has(world: &World) {
    assert_eq!(world.store.fleet().await.unwrap().loads, []);
    let other = new_tenant(world).await;
    let [ours] = busy(world, DEFAULT_TENANT, 5).await;
    let [theirs] = busy(world, other, 3).await;
    let permits = world.admit(ours).await;
    world.admit(theirs).await;
    let worker = world.worker().await;
    world.start(worker, &permits[..2]).await;
    let load = |tenant, outstanding, in_flight| Load {
        tenant,
        outstanding,
        in_flight,
    };
    let mut expected = [load(DEFAULT_TENANT, 3, 2), load(other, 3, 0)];
    expected.sort_by_key(|load| load.tenant);
    let fleet = world.store.fleet().await.unwrap();
    assert_eq!((fleet.loads, fleet.outstanding), (expected.to_vec(), 6));
    world.finish(worker, &permits[..2]).await;
    let loads = world.store.fleet().await.unwrap().loads;
    assert!(loads.contains(&load(DEFAULT_TENANT, 3, 0)), "{loads:?}");
}

/// Until an outcome makes room.
pub async fn a_tenants_max_in_flight_holds_over_all_its_destinations(world: &World) {
    let tenant = new_tenant(world).await;
    let bound = format!("update tenants set max_in_flight = 5 where id = '{tenant}'");
    world.sql(&bound).await;
    let two: [_; 2] = busy(world, tenant, 10).await;
    let [free] = busy(world, DEFAULT_TENANT, 10).await;
    let all = [two[0], two[1], free];
    let first = admit(world, &all, &Room::of(1_000)).await;
    assert_eq!(permits(&first), [3, 2, 10], "the other has no bound");
    let RunResult::Decided {
        permits: admitted, ..
    } = &first.results[0]
    else {
        panic!("expected a decision");
    };
    let worker = world.worker().await;
    world.start(worker, &admitted[..2]).await;
    let again = admit(world, &two, &room(world, 1_000).await).await;
    assert_eq!(permits(&again), [0, 0], "three queued and two in flight");
    world.finish(worker, &admitted[..2]).await;
    let after = admit(world, &two, &room(world, 1_000).await).await;
    assert_eq!(permits(&after).iter().sum::<usize>(), 2);
}
