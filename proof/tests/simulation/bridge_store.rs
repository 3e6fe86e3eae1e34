//! The stores with 1 to 8 callers at once against the store on SQLite with one, which is
//! what the simulation runs; see [`bridge`], [`explained`] for SQLite and [`timed`] for
//! Postgres, which needs `PACELINE_TEST_DATABASE_URL`. What Postgres promises whatever
//! another store does is in [`checked`].
#[path = "bridge/calls.rs"]
mod calls;
#[path = "bridge/case.rs"]
mod case;
#[path = "bridge/checked.rs"]
mod checked;
#[path = "bridge/explained.rs"]
mod explained;
#[path = "bridge/faulty_store.rs"]
mod faulty;
#[path = "bridge/held.rs"]
mod held;
#[path = "bridge/known.rs"]
mod known;
#[path = "bridge/reference.rs"]
mod reference;
#[path = "../../../crates/adapters/tests/support/scratch.rs"]
mod scratch;
#[path = "bridge/shown.rs"]
mod shown;
#[path = "bridge/standing.rs"]
mod standing;
#[path = "bridge/stated.rs"]
mod stated;
#[path = "bridge/timed.rs"]
mod timed;

use std::sync::Arc;

use self::faulty::{Fault, Faulty};
use self::scratch::Scratch;
use crate::bridge::{CONNECTIONS, repeating, runner};
use adapters::postgres::{PostgresOptions, PostgresStore};
use adapters::sqlite::SqliteStore;

/// A store with this many connections, and its database.
async fn postgres(connections: usize) -> (PostgresStore, Scratch) {
    let scratch = Scratch::migrated("").await;
    let options = PostgresOptions {
        url: scratch.url(),
        max_connections: u32::try_from(connections).unwrap(),
    };
    (PostgresStore::connect(options).await.unwrap(), scratch)
}

#[test]
fn sqlite_answers_many_callers_as_it_does_one_in_some_order() {
    explained::agree(runner(24), &|store| Arc::new(store)).unwrap();
}

/// The bridge finds a fault planted in front of SQLite.
fn finds(fault: Fault) {
    let wrap = |store: SqliteStore| Arc::new(Faulty::new(store, fault)) as _;
    let found = explained::agree(repeating(60), &wrap);
    assert!(found.is_err(), "not found: {fault:?}");
}

#[test]
fn a_permit_that_starts_twice_is_found_in_sqlite() {
    finds(Fault::StartsTwice);
}

#[test]
fn a_lost_event_is_found_in_sqlite() {
    finds(Fault::LosesEvent);
}

#[test]
fn a_lost_outcome_is_found_in_sqlite() {
    finds(Fault::LosesOutcome);
}

#[test]
fn a_lost_wake_is_found_in_sqlite() {
    finds(Fault::LosesWakes);
}

#[test]
fn postgres_answers_one_caller_as_sqlite_does() {
    let compared = timed::agree(runner(6), 1..=1, 1, &|store| Arc::new(store)).unwrap();
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn postgres_answers_one_caller_as_sqlite_does_when_permits_lapse() {
    let compared = timed::agree(runner(3), 1..=1, 2, &|store| Arc::new(store)).unwrap();
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn postgres_answers_many_callers_as_sqlite_does_in_some_order() {
    let half = |cases| {
        let many = 2..=CONNECTIONS;
        timed::agree(cases, many, 1, &|store| Arc::new(store)).unwrap()
    };
    // It takes longest of all, and would be alone on one core in the end.
    let [first, rest] = runner(8).halves();
    let compared = std::thread::scope(|scope| {
        let first = scope.spawn(|| half(first));
        half(rest) + first.join().unwrap()
    });
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn postgres_answers_many_callers_as_sqlite_does_when_permits_lapse() {
    let many = 2..=CONNECTIONS;
    let compared = timed::agree(runner(3), many, 2, &|store| Arc::new(store)).unwrap();
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn postgres_keeps_every_promise_with_one_connection() {
    checked::keep(runner(4), 1..=1, &|store| Arc::new(store)).unwrap();
}

#[test]
fn postgres_keeps_every_promise_with_many_connections() {
    checked::keep(runner(8), 2..=CONNECTIONS, &|store| Arc::new(store)).unwrap();
}

/// The bridge finds a fault planted in front of Postgres: by SQLite's answers where one
/// calls after the other, and by what is checked of many at once.
fn finds_in_postgres(fault: Fault) {
    let wrap = |store: PostgresStore| Arc::new(Faulty::new(store, fault)) as _;
    // Many, because a slow machine compares little of each.
    let differs = timed::agree(repeating(60), 1..=CONNECTIONS, 1, &wrap);
    assert!(
        differs.is_err(),
        "not found by what SQLite answers: {fault:?}"
    );
    let found = checked::keep(repeating(40), 1..=CONNECTIONS, &wrap);
    assert!(found.is_err(), "not found: {fault:?}");
}

#[test]
fn a_permit_that_starts_twice_is_found_in_postgres() {
    finds_in_postgres(Fault::StartsTwice);
}

#[test]
fn a_lost_event_is_found_in_postgres() {
    finds_in_postgres(Fault::LosesEvent);
}

#[test]
fn a_lost_outcome_is_found_in_postgres() {
    finds_in_postgres(Fault::LosesOutcome);
}

#[test]
fn a_lost_wake_is_found_in_postgres() {
    finds_in_postgres(Fault::LosesWakes);
}
