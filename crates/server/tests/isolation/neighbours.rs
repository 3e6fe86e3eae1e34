//! What one tenant does that the others must not notice.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::world::{Tenant, World};

/// A body of which one byte comes, and no more; tells when that has been taken.
fn dripping(taken: &Arc<Semaphore>) -> Body {
    let taken = Arc::clone(taken);
    let first = stream::iter([Bytes::from_static(b"{")]);
    let rest = stream::once(async move {
        taken.add_permits(1);
        std::future::pending::<Bytes>().await
    });
    Body::from_stream(first.chain(rest).map(Ok::<_, Infallible>))
}

async fn renames(world: &World, tenant: &Tenant) -> u16 {
    let path = format!("/v1/destinations/{}", tenant.destination);
    let body = json!({"name": "another"});
    let answer = world.call(Some(&tenant.key), &Method::PATCH, &path, Some(body));
    answer.await.status.as_u16()
}

/// Each had taken the room of the largest body, 8 MiB of 256, before a byte of it
/// came.
pub(crate) async fn bodies_that_drip_are_in_nobodys_way(world: &World) {
    const BODIES: u32 = 32;
    let taken = Arc::new(Semaphore::new(0));
    let mut sending = JoinSet::new();
    for _ in 0..BODIES {
        let request = Request::post("/v1/events/batch")
            .header("authorization", format!("Bearer {}", world.ours.key))
            .header("content-type", "application/json")
            .body(dripping(&taken))
            .unwrap();
        sending.spawn(world.router().oneshot(request));
    }
    let all = taken.acquire_many(BODIES).await.unwrap();
    assert_eq!(renames(world, &world.theirs).await, 200);
    assert_eq!(renames(world, &world.ours).await, 200);
    all.forget();
}
