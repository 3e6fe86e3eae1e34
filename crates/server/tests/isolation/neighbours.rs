//! What one tenant does that the others must not notice.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::world::{TENANT_BACKLOG, Tenant, World};

/// Longer than anything here takes, and less than what hangs does: Postgres gives a
/// lock up after 2 s.
const SOON: Duration = Duration::from_millis(1_800);

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

async fn reads(world: &World, tenant: &Tenant) -> u16 {
    let path = format!("/v1/destinations/{}", tenant.destination);
    let answer = world.call(Some(&tenant.key), &Method::GET, &path, None);
    answer.await.status.as_u16()
}

/// Each had taken the room of the largest body, 8 MiB of 256, before a byte of it
/// came; and those of what reads had a place among their tenant's reads.
pub(crate) async fn bodies_that_drip_are_in_nobodys_way(world: &World) {
    const BODIES: u32 = 32;
    let of_destination = |what| format!("/v1/destinations/{}/{what}", world.ours.destination);
    let taken = Arc::new(Semaphore::new(0));
    let mut sending = JoinSet::new();
    for path in [
        "/v1/events/batch".to_owned(),
        "/v1/events/resend/preview".to_owned(),
        of_destination("resend/preview"),
        of_destination("plan"),
    ] {
        for _ in 0..BODIES {
            let request = Request::post(&path)
                .header("authorization", format!("Bearer {}", world.ours.key))
                .header("content-type", "application/json")
                .body(dripping(&taken))
                .unwrap();
            sending.spawn(world.router().oneshot(request));
        }
        let all = timeout(SOON * 5, taken.acquire_many(BODIES)).await;
        all.expect("each begins to be read").unwrap().forget();
        assert_eq!(renames(world, &world.theirs).await, 200, "{path}");
        assert_eq!(renames(world, &world.ours).await, 200, "{path}");
        let read = timeout(SOON * 5, reads(world, &world.ours)).await;
        assert_eq!(read.expect("its places are free"), 200, "{path}");
    }
}

/// Reads that hang, of two tenants that want all places: they keep their tenants' other
/// reads waiting, and a reader who is one too many is told so; but events come in, people
/// sign in and a third tenant reads at once. They had shared all connections.
pub(crate) async fn reads_that_hang_hold_up_no_events_and_no_sign_in(world: &World) {
    let third = world.tenant("third").await;
    let lock = world.lock_table("operational_events").await;
    let mut reading = JoinSet::new();
    for tenant in [&world.ours, &world.theirs] {
        for _ in 0..70 {
            let request = Request::get("/v1/operational-events")
                .header("authorization", format!("Bearer {}", tenant.key))
                .body(Body::empty())
                .unwrap();
            reading.spawn(world.router().oneshot(request));
        }
    }
    // 64 of each at work and in line: six are refused at once.
    for _ in 0..12 {
        let answer = reading.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), 429);
        assert!(answer.headers().contains_key("retry-after"));
    }
    let soon = async {
        let event = json!({"destination_id": world.theirs.destination, "payload": 1});
        let key = Some(world.theirs.key.as_str());
        let sent = world.call(key, &Method::POST, "/v1/events", Some(event));
        assert_eq!(sent.await.status, 202);
        let key = format!("key={}", world.theirs.key);
        let entered = world.page("", "/dashboard/sign-in", Some(&key)).await;
        assert_eq!(entered.status, 303);
        assert_eq!(renames(world, &world.ours).await, 200);
        assert_eq!(reads(world, &third).await, 200);
    };
    let waited = timeout(SOON, soon).await;
    waited.expect("others do not wait for what hangs");
    reading.abort_all();
    while reading.join_next().await.is_some() {}
    drop(lock);
    // Those who went away have left the line.
    assert_eq!(reads(world, &world.ours).await, 200);
}

/// Reports are made one of a tenant at a time where two are made at once, three more wait,
/// and whoever gives up takes his place in the line with him.
pub(crate) async fn reports_are_bounded_and_end_with_their_client(world: &World) {
    let lock = world.lock_table("limit_history").await;
    let report = |tenant: &Tenant| {
        let request = Request::get("/v1/compliance")
            .header("authorization", format!("Bearer {}", tenant.key))
            .body(Body::empty())
            .unwrap();
        world.router().oneshot(request)
    };
    let mut reports = JoinSet::new();
    for _ in 0..20 {
        reports.spawn(report(&world.ours));
    }
    for _ in 0..16 {
        let answer = reports.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), 429);
    }
    reports.abort_all();
    while reports.join_next().await.is_some() {}
    drop(lock);
    let answers = async {
        // The one at work ends by itself.
        loop {
            let ours = report(&world.ours).await.unwrap().status();
            if ours == 200 {
                return report(&world.theirs).await.unwrap().status();
            }
            assert_eq!(ours, 429);
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(timeout(SOON * 5, answers).await.unwrap(), 200);
}

/// The history of limits is kept, and shared locks are taken for each change.
pub(crate) async fn changes_are_bounded_and_keep_nobody_else_from_any(world: &World) {
    const CALLS: usize = 400;
    let path = format!("/v1/destinations/{}", world.ours.destination);
    let mut changing = JoinSet::new();
    for _ in 0..CALLS {
        let request = Request::patch(&path)
            .header("authorization", format!("Bearer {}", world.ours.key))
            .body(Body::from(r#"{"limits": {"per_second": 2}}"#))
            .unwrap();
        changing.spawn(world.router().oneshot(request));
    }
    let (mut done, mut refused) = (0, 0);
    while let Some(answer) = changing.join_next().await {
        let answer = answer.unwrap().unwrap();
        match answer.status().as_u16() {
            200 => done += 1,
            429 => {
                assert!(answer.headers().contains_key("retry-after"));
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert!(done > 0 && refused >= CALLS / 2, "{done} of {CALLS}");
    assert_eq!(renames(world, &world.theirs).await, 200);
    // What is no change still goes through.
    let key = Some(world.ours.key.as_str());
    let event = json!({"destination_id": world.ours.destination, "payload": 1});
    let sent = world.call(key, &Method::POST, "/v1/events", Some(event));
    assert_eq!(sent.await.status, 202);
    let read = world.call(key, &Method::GET, &path, None).await;
    assert_eq!(read.status, 200);
}

/// However wide one request is: what is written of it ends soon after the bound, and
/// what was written is answered.
pub(crate) async fn a_fan_out_ends_where_its_backlog_is_full(world: &World) {
    const SUBSCRIBERS: u64 = 40;
    let wide = world.tenant("wide").await;
    let key = Some(wide.key.as_str());
    for number in 0..SUBSCRIBERS {
        let destination = json!({
            "url": format!("https://example.com/{number}"), "event_types": ["sale"],
            "limits": {"per_minute": 1},
        });
        let made = world.call(key, &Method::POST, "/v1/destinations", Some(destination));
        assert_eq!(made.await.status, 201);
    }
    let event = json!({"type": "sale", "payload": 1});
    // What is narrow says nothing of what follows.
    let narrow = json!({"type": "hello", "payload": 1});
    let events = [vec![narrow; 20], vec![event; 480]].concat();
    let events = json!({"events": events});
    let path = "/v1/events/batch";
    let answer = world.call(key, &Method::POST, path, Some(events)).await;
    let each = answer.json["results"].as_array().unwrap();
    let with = |field| each.iter().filter(|one| one.get(field).is_some()).count() as u64;
    let (accepted, refused) = (with("id"), with("problem"));
    assert_eq!(accepted + refused, 500, "{answer:?}");
    let deliveries = (accepted - 20) * SUBSCRIBERS;
    let most = TENANT_BACKLOG.get() + 10_000;
    assert!(
        refused > 0 && (1..=most).contains(&deliveries),
        "{deliveries}"
    );
    assert_eq!(
        each[499]["problem"]["type"],
        "urn:paceline:problem:backlog-full"
    );
}

/// Each holds all bytes of an answer for as long as its client does not read them.
pub(crate) async fn answers_that_nobody_reads_leave_others_theirs(world: &World) {
    // 32 MiB of one tenant are 163 of them.
    const BYTES: usize = 200 * 1024;
    let mut payloads = Vec::new();
    for tenant in [&world.ours, &world.theirs] {
        let event = json!({"destination_id": tenant.destination, "payload": "x".repeat(BYTES)});
        let key = Some(tenant.key.as_str());
        let sent = world.call(key, &Method::POST, "/v1/events", Some(event));
        let id = sent.await.json["id"].as_str().unwrap().to_owned();
        payloads.push(format!("/v1/events/{id}/payload"));
    }
    let asks = |tenant: &Tenant, path: &str| {
        let request = Request::get(path)
            .header("authorization", format!("Bearer {}", tenant.key))
            .body(Body::empty())
            .unwrap();
        world.router().oneshot(request)
    };
    let mut unread = Vec::new();
    let refused = loop {
        let answer = asks(&world.ours, &payloads[0]).await.unwrap();
        if answer.status() != 200 {
            break answer;
        }
        unread.push(answer);
        assert!(unread.len() < 200, "nothing bounds them");
    };
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    assert!(unread.len() > 100, "{}", unread.len());
    let others = asks(&world.theirs, &payloads[1]).await.unwrap();
    assert_eq!(others.status(), 200);
    assert_eq!(reads(world, &world.ours).await, 200, "what is small");
    unread.clear();
    let again = asks(&world.ours, &payloads[0]).await.unwrap();
    assert_eq!(again.status(), 200);
}
