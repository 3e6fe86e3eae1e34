//! What a delivery writes, as ratios that no clock enters: versions of rows, and bytes of
//! the log.

use std::time::Duration;

use adapters::postgres::PostgresStore;
use bytes::Bytes;
use domain::event::NewEvent;
use domain::ids::{DestinationId, WorkerId};
use engine::ports::Store;
use tokio::time::sleep;

use crate::database::{Database, Versions, measured};
use crate::ratios::{admit, claim, destinations, event_of_today};

/// Destinations of a batch, and deliveries to each.
const DESTINATIONS: usize = 20;
const TO_EACH: usize = 5;
const DELIVERIES: usize = DESTINATIONS * TO_EACH;

/// Bytes of the log for each delivery of a batch, its payload of [`PAYLOAD`] with them.
const MOST_BYTES: i64 = 3_300;
const PAYLOAD: usize = 1_024;

/// Batches of which the least of each step counts.
const BATCHES: usize = 20;

/// How long nobody has written where nobody does.
const QUIET: Duration = Duration::from_millis(50);

const LOG: &str = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";

async fn events(database: &Database, to: &[DestinationId]) -> Vec<NewEvent> {
    let payload = Bytes::from(vec![b'x'; PAYLOAD]);
    let mut events = Vec::new();
    for to in to.iter().cycle().take(DELIVERIES) {
        events.push(NewEvent {
            payload: payload.clone(),
            ..event_of_today(database, *to).await
        });
    }
    events
}

/// The batch, from its events to its outcomes.
async fn deliver(
    database: &Database,
    store: &PostgresStore,
    worker: WorkerId,
    to: &[DestinationId],
) {
    let events = events(database, to).await;
    store.accept_events(&events).await.unwrap();
    let permits = admit(store, to).await;
    let outcomes = claim(store, worker, &permits).await;
    let recorded = store.record_outcomes(worker, &outcomes).await.unwrap();
    assert!(recorded.skipped.is_empty());
}

/// Accepted, admitted, started and over: no row is written more often, and no table beside.
#[tokio::test]
async fn a_delivery_has_three_versions_and_a_row_of_the_ledger() {
    let measure = async || {
        let database = Database::create().await;
        let to = destinations(&database, DESTINATIONS).await;
        let worker = database.worker().await;
        // With the first run of a destination begins what is remembered of it.
        deliver(&database, &database.store, worker, &to).await;
        let batch = async |store: PostgresStore| deliver(&database, &store, worker, &to).await;
        database.versions_of(batch).await
    };
    let (runs, all) = (DESTINATIONS as i64, DELIVERIES as i64);
    let expected: Versions = [
        ("events", [all, 0, 0]),
        ("deliveries", [all, 2 * all, all]),
        ("ledger", [all, 0, 0]),
        // A run, however much it admits.
        ("pacing", [0, runs, 0]),
    ]
    .map(|(table, counts)| (table.to_owned(), counts))
    .into();
    let what = "rows inserted, updated and deleted by a batch";
    measured(what, measure, |versions| *versions == expected).await;
}

/// Bytes of the log by step: accepted, admitted, started, recorded. None of a batch of which
/// something has lapsed.
async fn logged(database: &Database, worker: WorkerId, to: &[DestinationId]) -> Option<[i64; 4]> {
    let store = &database.store;
    let log = async || database.number(LOG).await;
    let events = events(database, to).await;
    let began = log().await;
    store.accept_events(&events).await.unwrap();
    let accepted = log().await;
    let permits = admit(store, to).await;
    let admitted = log().await;
    let outcomes = claim(store, worker, &permits).await;
    let started = log().await;
    let done = store.record_outcomes(worker, &outcomes).await.unwrap();
    let recorded = log().await;
    if outcomes.len() != DELIVERIES || !done.skipped.is_empty() {
        database.let_nothing_lapse().await;
        return None;
    }
    Some([
        accepted - began,
        admitted - accepted,
        started - admitted,
        recorded - started,
    ])
}

/// The log is the server's, and other tests write to it: waits for a moment in which nobody
/// does, which comes with their end at the latest.
async fn until_nobody_writes(database: &Database) {
    let mut before = None;
    loop {
        let now = database.number(LOG).await;
        if before == Some(now) {
            return;
        }
        before = Some(now);
        sleep(QUIET).await;
    }
}

/// The least of each step is of a batch beside which nobody wrote. So it has no image of a
/// page in it either, such as the first change after a checkpoint writes.
#[tokio::test]
async fn a_delivery_is_so_many_bytes_of_the_log() {
    let database = Database::create().await;
    let to = destinations(&database, DESTINATIONS).await;
    let worker = database.worker().await;
    let mut least = [i64::MAX; 4];
    let (mut batches, mut lapsed) = (0, 0);
    while batches < BATCHES {
        until_nobody_writes(&database).await;
        let Some(steps) = logged(&database, worker, &to).await else {
            lapsed += 1;
            assert!(lapsed < BATCHES, "permits lapse again and again");
            continue;
        };
        batches += 1;
        for (least, step) in least.iter_mut().zip(steps) {
            *least = step.min(*least);
        }
    }
    let each = least.iter().sum::<i64>() / DELIVERIES as i64;
    let said = format!(
        "{each} bytes of the log for each delivery; of {DELIVERIES} accepted, admitted, started \
         and recorded: {least:?}"
    );
    eprintln!("{said}");
    assert!(each > PAYLOAD as i64, "the payload is in it: {said}");
    assert!(each <= MOST_BYTES, "{said}");
}
