//! What the operator asks of an API server is what it may: no more, and no less.
//!
//! That it asks for no more is checked in every scenario, by the server that they
//! play against.

use std::collections::BTreeSet;
use std::time::Duration;

use operator::permissions::PERMISSIONS;
use tokio_util::sync::CancellationToken;

use super::world::{SECRET, World, options, secret};

#[tokio::test(start_paused = true)]
async fn it_asks_for_all_that_it_may() {
    let world = World::new();
    let stop = CancellationToken::new();
    let client = world.cluster.client.clone();
    let running = operator::run(client, world.paceline.clone(), options(), stop.clone());
    let running = tokio::spawn(running);
    // The same event twice within minutes is one event, counted.
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.cluster.remove("secrets", "shop-signing");
        world.paceline.rows().rows.clear();
        touch(&world, 6);
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.cluster.put("secrets", secret(SECRET));
        touch(&world, 7);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    running.await.unwrap();
    let asked: BTreeSet<_> = world.cluster.state().calls.iter().copied().collect();
    let may: BTreeSet<_> = PERMISSIONS.into_iter().collect();
    let surplus: Vec<_> = may.difference(&asked).collect();
    assert!(surplus.is_empty(), "never asked for: {surplus:?}");
}

fn touch(world: &World, per_second: i32) {
    world.apply(super::world::spec(per_second));
}
