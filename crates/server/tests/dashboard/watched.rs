//! Pages that are watched, and say what changes.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::place::Place;
use crate::visit::World;

/// So far apart one tenant's pages are looked at.
const APART: Duration = Duration::from_millis(50);

on_both! {
    the_pages_of_one_tenant_are_looked_at_by_turns
}

/// However many it watches at once: each has what it shows after those before it.
async fn the_pages_of_one_tenant_are_looked_at_by_turns(world: &World) {
    let (_, key, _) = world.tenant("ours", &["read"]).await;
    let visitors = &[world.sign_in(&key).await, world.sign_in(&key).await];
    let watching = (0..12).map(|nth| {
        let path = format!("/dashboard/live?search={nth}");
        async move { world.watch(&visitors[nth % 2], &path).await }
    });
    let began = Instant::now();
    join_all(watching).await;
    assert!(began.elapsed() >= APART * 11, "{:?}", began.elapsed());
}
