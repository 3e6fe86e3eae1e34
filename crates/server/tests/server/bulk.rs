//! Bulk bodies: answered line by line, and never held in memory.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use domain::event::MAX_PAYLOAD_BYTES;
use futures_util::{StreamExt, stream};
use http::Request;
use serde_json::{Value, json};
use server::api::bulk::{COMMIT_EVENTS, MAX_BULK_EVENTS};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::described::Described;
use crate::world::{KEY, World, bulk_lines};

fn line(n: usize) -> String {
    format!("{{\"type\":\"a\",\"payload\":{n}}}\n")
}

/// The payloads that the store holds, in order.
fn stored(world: &World) -> Vec<String> {
    let state = world.store.state();
    let text = |payload: &Bytes| String::from_utf8(payload.to_vec()).unwrap();
    state
        .events
        .iter()
        .map(|event| text(&event.payload))
        .collect()
}

fn end(accepted: u32, refused: u32, complete: bool) -> Value {
    json!({"accepted": accepted, "refused": refused, "complete": complete})
}

#[tokio::test]
async fn every_line_is_answered_in_order() {
    let world = World::new();
    let lines = 3 * COMMIT_EVENTS + 7;
    let body: String = (1..=lines).map(line).collect();
    let (answers, last) = world.bulk(body).await;
    assert_eq!(last, end(lines as u32, 0, true));
    let numbers: Vec<_> = answers
        .iter()
        .map(|answer| answer["line"].clone())
        .collect();
    let expected: Vec<_> = (1..=lines).map(Value::from).collect();
    assert_eq!(numbers, expected);
    let payloads: Vec<_> = (1..=lines).map(|n| n.to_string()).collect();
    assert_eq!(stored(&world), payloads);
    let state = world.store.state();
    for (answer, event) in answers.iter().zip(&state.events) {
        assert_eq!(answer["id"], event.id.to_string());
    }
}

#[tokio::test]
async fn a_broken_line_is_answered_by_its_number_and_the_others_are_taken() {
    let world = World::new();
    let large = json!({"type": "a", "payload": "x".repeat(MAX_PAYLOAD_BYTES)});
    let huge = "x".repeat(2 * 1024 * 1024);
    let nowhere = "00000000-0000-0000-0000-000000000009";
    let body = [
        line(1),
        "{\"type\":\"a\"\n".to_owned(),
        "\n".to_owned(),
        "[1]\n".to_owned(),
        format!("{large}\n"),
        format!("{huge}\n"),
        format!("{{\"destination_id\":\"{nowhere}\",\"payload\":1}}\n"),
        line(8).trim_end().to_owned(),
    ];
    let (answers, last) = world.bulk(body.concat()).await;
    assert_eq!(last, end(2, 5, true));
    let seen: Vec<_> = (answers.iter())
        .map(|answer| {
            (
                answer["line"].as_u64().unwrap(),
                answer["problem"]["status"].clone(),
            )
        })
        .collect();
    let expected = [
        (1, Value::Null),
        (2, 400.into()),
        (4, 422.into()),
        (5, 413.into()),
        (6, 413.into()),
        (7, 422.into()),
        (8, Value::Null),
    ];
    assert_eq!(seen, expected);
    assert_eq!(stored(&world), ["1", "8"]);
}

/// Schemathesis asks every other route whether it answers what is described.
#[tokio::test]
async fn each_line_of_an_answer_is_what_is_described() {
    let described = Described::by(serde_json::to_value(server::api::openapi()).unwrap());
    let of_a_line = "/paths/~1v1~1events~1bulk/post/responses/200/content\
                     /application~1x-ndjson/schema";
    let world = World::new();
    let nowhere = "00000000-0000-0000-0000-000000000009";
    let body = [
        line(1),
        "{\"type\":\"a\"\n".to_owned(),
        "[1]\n".to_owned(),
        format!("{{\"destination_id\":\"{nowhere}\",\"payload\":1}}\n"),
    ];
    let (answers, last) = world.bulk(body.concat()).await;
    assert_eq!((answers.len(), &last), (4, &end(1, 3, true)));
    let too_many: String = (0..MAX_BULK_EVENTS as usize + 2).map(line).collect();
    let (_, cut_off) = World::new().bulk(too_many).await;
    for last in [&last, &cut_off] {
        assert_eq!(described.problems("BulkEnd", last), [""; 0], "{last}");
        assert_ne!(described.of(of_a_line, last), [""; 0], "it is no line's");
    }
    for answer in &answers {
        assert_eq!(described.of(of_a_line, answer), [""; 0], "{answer}");
        assert_ne!(described.problems("BulkEnd", answer), [""; 0], "{answer}");
    }
    let nobodys = Request::post("/v1/events/bulk").body(Body::from(line(1)));
    let refused = world.request(nobodys.unwrap()).await;
    assert_eq!(refused.status, 401);
    assert_eq!(described.problems("Problem", &refused.json), [""; 0]);
}

/// Counts the lines that were read of the body and are not yet in the store:
/// those, and no others, are in memory.
#[tokio::test]
async fn fifty_thousand_events_are_never_in_memory() {
    let world = World::new();
    let (store, most) = (world.store.clone(), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let lines = stream::iter(0..MAX_BULK_EVENTS as usize).map(move |n| {
        let in_memory = n + 1 - store.state().events.len();
        seen.fetch_max(in_memory, Ordering::Relaxed);
        Ok::<_, Infallible>(line(n))
    });
    let (answers, last) = world.bulk(Body::from_stream(lines)).await;
    assert_eq!(last, end(MAX_BULK_EVENTS, 0, true));
    assert_eq!(answers.len(), MAX_BULK_EVENTS as usize);
    let most = most.load(Ordering::Relaxed);
    assert!(most <= COMMIT_EVENTS + 1, "{most} events were in memory");
    assert!(most >= COMMIT_EVENTS, "commits are of many events: {most}");
}

/// However often it pauses, and each time has its lines committed and answered.
#[tokio::test(start_paused = true)]
async fn a_client_may_send_all_before_it_reads() {
    const LINES: usize = 300;
    let world = World::new();
    let sent = Arc::new(Semaphore::new(0));
    let all = Arc::clone(&sent);
    let lines = stream::iter(0..LINES).then(|n| async move {
        sleep(Duration::from_millis(50)).await;
        Ok::<_, Infallible>(line(n))
    });
    let last = stream::once(async move {
        all.add_permits(1);
        Ok(String::new())
    });
    let answer = world.begin_bulk(Body::from_stream(lines.chain(last))).await;
    let all = timeout(Duration::from_secs(60), sent.acquire()).await;
    all.expect("it is read to its end").unwrap().forget();
    let (answers, last) = bulk_lines(answer).await;
    assert_eq!(answers.len(), LINES);
    assert_eq!(last, end(LINES as u32, 0, true));
}

#[tokio::test]
async fn what_is_too_much_is_not_read() {
    let world = World::new();
    let body: String = (0..MAX_BULK_EVENTS as usize + 2).map(line).collect();
    let (answers, mut last) = world.bulk(body).await;
    assert_eq!(last["problem"].take()["status"], 413);
    assert_eq!(
        (&last["accepted"], &last["complete"]),
        (&MAX_BULK_EVENTS.into(), &false.into())
    );
    assert_eq!(answers.len(), MAX_BULK_EVENTS as usize);
}

/// What was answered with an id is durable; the rest may be sent again.
#[tokio::test]
async fn a_store_that_goes_away_stops_the_body() {
    let world = World::new();
    let store = world.store.clone();
    let lines = stream::iter(0..5 * COMMIT_EVENTS).map(move |n| {
        if n == 2 * COMMIT_EVENTS {
            store.state().away = true;
        }
        Ok::<_, Infallible>(line(n))
    });
    let (answers, mut last) = world.bulk(Body::from_stream(lines)).await;
    assert_eq!(last["problem"].take()["status"], 503);
    assert_eq!(last["complete"], false);
    let durable = answers.iter().filter(|answer| answer["id"].is_string());
    assert_eq!(durable.count(), stored(&world).len());
    assert_eq!(last["accepted"], stored(&world).len());
    assert_eq!(answers.len(), 3 * COMMIT_EVENTS);
}

#[tokio::test]
async fn a_body_that_is_no_ndjson_is_refused() {
    let world = World::new();
    let request = |name: &str, value: &str| {
        Request::post("/v1/events/bulk")
            .header("authorization", format!("Bearer {KEY}"))
            .header("content-type", "application/x-ndjson")
            .header(name, value)
    };
    let json = Request::post("/v1/events/bulk")
        .header("authorization", format!("Bearer {KEY}"))
        .header("content-type", "application/json");
    let refused = world.request(json.body(Body::from("[]")).unwrap()).await;
    assert_eq!(refused.status, 415);
    let keyed = request("idempotency-key", "a").body(Body::empty()).unwrap();
    world.request(keyed).await.refuses(422, "Idempotency-Key");
    let (answers, last) = world.bulk(Body::empty()).await;
    assert_eq!((answers, last), (Vec::new(), end(0, 0, true)));
}
