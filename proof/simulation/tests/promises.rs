//! Seeds of every mood keep every promise, on the model and on the shipped store.

use simulation::StoreKind;
use simulation::counts::{Counts, SOMETIMES};
use simulation::scenario::{Mood, Scenario};
use simulation::world;

/// Plays the first `count` seeds of a mood.
fn play(store: StoreKind, mood: Mood, count: usize) -> Counts {
    let counts = Counts::default();
    let scenarios = (0..).map(Scenario::from_seed);
    for scenario in scenarios.filter(|one| one.mood == mood).take(count) {
        let report = world::run_on(store, &scenario, None, None, &counts);
        let seed = scenario.seed;
        assert_eq!(report.broken, [], "seed {seed}: {}", scenario.as_rust());
        assert!(report.starts > 0, "seed {seed} started nothing");
    }
    counts
}

fn every_promise_is_kept_in_storms(store: StoreKind) {
    let counts = play(store, Mood::Stormy, 6);
    // The rarest need a long run; the program fails if it misses one of them.
    let never = counts.never(store);
    assert!(
        never.len() * 2 < SOMETIMES.len(),
        "never happened: {never:?}"
    );
}

#[test]
fn in_calm_seas_the_limits_are_used_and_nobody_is_delayed() {
    play(StoreKind::Model, Mood::Calm, 2);
}

#[test]
fn in_calm_seas_sqlite_uses_the_limits_and_delays_nobody() {
    play(StoreKind::Sqlite, Mood::Calm, 2);
}

#[test]
fn in_storms_every_promise_is_kept_and_faults_happen() {
    every_promise_is_kept_in_storms(StoreKind::Model);
}

#[test]
fn in_storms_sqlite_keeps_every_promise() {
    every_promise_is_kept_in_storms(StoreKind::Sqlite);
}

#[test]
fn limits_of_an_hour_are_kept_for_longer_than_an_hour() {
    play(StoreKind::Model, Mood::Long, 1);
}
