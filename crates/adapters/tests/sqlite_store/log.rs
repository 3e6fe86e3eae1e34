//! What a delivery adds to SQLite's log, as a ratio that no clock enters.

use bytes::Bytes;
use contract::store::World;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use domain::permit::Permit;
use domain::share::Room;
use engine::ports::{ClaimAnswer, Run, RunResult};

use super::{Place, Shell, open};

/// Destinations of a batch, and deliveries to each.
const DESTINATIONS: usize = 20;
const TO_EACH: usize = 5;
const DELIVERIES: usize = DESTINATIONS * TO_EACH;

/// Of each payload, in bytes.
const PAYLOAD: usize = 1_024;

/// Pages of the log for a batch: what it writes, and 15 % more. The payloads alone are 25.
const MOST_PAGES: u64 = 150;

/// A page in the log, with its head; and the head of the log.
const FRAME: u64 = 4_096 + 24;
const HEAD: u64 = 32;

/// A batch, from its events to its outcomes, each step at once.
async fn deliver(world: &World, worker: WorkerId, to: &[DestinationId]) {
    let payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let event = |to: &DestinationId| NewEvent {
        payload: payload.clone(),
        ..world.event(*to)
    };
    let events: Vec<_> = (0..TO_EACH).flat_map(|_| to.iter().map(event)).collect();
    world.store.accept_events(&events).await.unwrap();
    let run = |destination: &DestinationId| Run {
        destination: *destination,
        republish: false,
    };
    let runs: Vec<_> = to.iter().map(run).collect();
    let admitted = world.store.admit(&runs, &Room::of(10_000)).await.unwrap();
    let given = |result| match result {
        RunResult::Decided { permits, .. } => permits,
        RunResult::Skipped | RunResult::Gone => Vec::new(),
    };
    let permits: Vec<Permit> = admitted.results.into_iter().flat_map(given).collect();
    let claims = world.claim(worker, &permits).await;
    let started = |answer: &&ClaimAnswer| matches!(answer, ClaimAnswer::Started(_));
    assert_eq!(claims.answers.iter().filter(started).count(), DELIVERIES);
    world.finish(worker, &permits).await;
}

#[tokio::test]
async fn a_delivery_is_so_many_pages_of_the_log() {
    let place = Place::new();
    let path = place.file("paceline.db");
    let world = open(&path);
    let worker = world.worker().await;
    let mut to = Vec::new();
    for _ in 0..DESTINATIONS {
        to.push(world.destination().unlimited().create().await);
    }
    // With the first ones begins what is remembered of a destination.
    deliver(&world, worker, &to).await;
    // The log begins anew with the next commit, and is too short then for another
    // checkpoint before it is looked at.
    let shell = Shell(path).connect();
    let empty = || {
        let busy = "pragma wal_checkpoint(truncate)";
        shell
            .query_row(busy, [], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    while empty() != 0 {
        tokio::task::yield_now().await;
    }
    let log = || place.file("paceline.db-wal").metadata().unwrap().len();
    assert_eq!(log(), 0);
    deliver(&world, worker, &to).await;
    let pages = log().saturating_sub(HEAD) / FRAME;
    let said = format!("{pages} pages of the log for {DELIVERIES} deliveries");
    eprintln!("{said}");
    assert!(pages >= 25, "the payloads are in it: {said}");
    assert!(pages <= MOST_PAGES, "{said}");
}
