//! What the audit reads: ledger and backlogs.

use std::time::Duration;

use domain::attempt::AttemptState;
use domain::compliance::Start;
use domain::ids::AttemptId;
use domain::time::Timestamp;

use super::World;
use engine::ports::{LedgerPosition, LedgerRow};

/// In the order of `(started_at, id)`, those that have not started last, each
/// once, whatever the size of the pages.
pub async fn the_ledger_is_paged_by_start(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(4)
        .create()
        .await;
    world.accept(destination, 11).await;
    let worker = world.worker().await;
    for _ in 0..2 {
        let permits = world.admit(destination).await;
        world.start(worker, &permits).await;
        world.finish(worker, &permits).await;
        world.pass(Duration::from_millis(10)).await;
    }
    world.admit(destination).await;
    let all = world.ledger(destination).await;
    let started = |row: &LedgerRow| row.started_at;
    assert_eq!(all.len(), 11);
    assert!(all[..8].is_sorted_by_key(|row| (row.started_at, row.attempt)));
    assert!(
        all[..8]
            .iter()
            .all(|row| row.state == AttemptState::Succeeded)
    );
    assert!(all[..8].iter().all(|row| row.finished_at > row.started_at));
    assert!(
        all[8..]
            .iter()
            .all(|row| started(row).is_none() && row.finished_at.is_none())
    );
    assert!(all[8..].is_sorted_by_key(|row| row.attempt));
    for size in [1, 3, 8] {
        let mut paged: Vec<LedgerRow> = Vec::new();
        loop {
            let after = paged.last().map(|row| LedgerPosition {
                started_at: row.started_at,
                attempt: row.attempt,
            });
            let until = Timestamp::from_millis(1 << 42);
            let zero = Timestamp::from_micros(0);
            let page = world.catalog.ledger(destination, zero, until, after, size);
            let page = page.await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= size as usize);
            paged.extend(page);
            assert!(paged.len() <= 11, "the ledger does not end");
        }
        assert_eq!(paged, all);
    }
}

/// `[since, until)` by start; what waits is there if it waits since before.
pub async fn the_ledger_begins_and_ends_where_asked(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(1)
        .create()
        .await;
    world.accept(destination, 4).await;
    let worker = world.worker().await;
    for _ in 0..3 {
        let permits = world.admit(destination).await;
        world.start(worker, &permits).await;
        world.finish(worker, &permits).await;
        world.pass(Duration::from_millis(10)).await;
    }
    let starts = world.starts(destination).await;
    let page = |since, until| world.catalog.ledger(destination, since, until, None, 100);
    let rows = page(starts[1], starts[2]).await.unwrap();
    let of: Vec<_> = rows.iter().map(|row| row.started_at).collect();
    assert_eq!(of, [Some(starts[1]), None]);
    assert_eq!(rows[1].state, AttemptState::Waiting);
    let created_at = rows[1].due_at;
    assert!(created_at <= starts[0]);
    assert_eq!(
        page(Timestamp::from_micros(0), created_at).await.unwrap(),
        []
    );
}

/// The newest first, from before a position back to a time, whatever the size of
/// the pages.
pub async fn starts_are_read_backwards(world: &World) {
    let destination = world
        .destination()
        .unlimited()
        .max_in_flight(3)
        .create()
        .await;
    world.accept(destination, 7).await;
    let worker = world.worker().await;
    for _ in 0..2 {
        let permits = world.admit(destination).await;
        world.start(worker, &permits).await;
        world.finish(worker, &permits).await;
        world.pass(Duration::from_millis(10)).await;
    }
    let ledger = world.ledger(destination).await;
    let starts = ledger
        .iter()
        .filter_map(|row| Some((row.started_at?, row.attempt)));
    let mut starts: Vec<Start> = starts.collect();
    assert_eq!(starts.len(), 6);
    starts.reverse();
    let end = (Timestamp::from_millis(1 << 42), AttemptId(i64::MIN));
    for size in [1, 4, 9] {
        let mut paged: Vec<Start> = Vec::new();
        loop {
            let before = paged.last().copied().unwrap_or(end);
            let zero = Timestamp::from_micros(0);
            let page = world.catalog.starts_before(destination, zero, before, size);
            let page = page.await.unwrap();
            if page.is_empty() {
                break;
            }
            assert!(page.len() <= size as usize);
            paged.extend(page);
            assert!(paged.len() <= 6, "it does not end");
        }
        assert_eq!(paged, starts);
    }
    // What started with `since` is in, and with the position's time is not.
    let (since, until) = (starts[5].0, (starts[0].0, AttemptId(i64::MIN)));
    let found = world.catalog.starts_before(destination, since, until, 9);
    let expected = starts.iter().filter(|start| start.0 < until.0);
    assert_eq!(found.await.unwrap(), expected.copied().collect::<Vec<_>>());
    let found = world
        .catalog
        .starts_before(destination, starts[0].0, until, 9);
    assert_eq!(found.await.unwrap(), []);
}

/// Per destination given, in order; a retry that is due later waits too.
pub async fn backlogs_are_counted_up_to_the_cap(world: &World) {
    let many = world
        .destination()
        .unlimited()
        .max_in_flight(2)
        .create()
        .await;
    let none = world.destination().create().await;
    world.accept(many, 8).await;
    let worker = world.worker().await;
    let permits = world.admit(many).await;
    world.start(worker, &permits[..1]).await;
    let later = engine::ports::NextTry::RetryAfter(Duration::from_secs(60));
    let failed = domain::attempt::OutcomeKind::Failed;
    world.record(worker, &permits[0], failed, later).await;
    let backlogs = world.catalog.backlogs(&[none, many], 100).await.unwrap();
    assert_eq!(backlogs, [0, 7]);
    assert_eq!(
        world.catalog.backlogs(&[many, none], 5).await.unwrap(),
        [5, 0]
    );
    assert!(world.catalog.backlogs(&[], 5).await.unwrap().is_empty());
}
