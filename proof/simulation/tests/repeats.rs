//! A seed stands for one trace.

use simulation::StoreKind;
use simulation::counts::Counts;
use simulation::scenario::Scenario;
use simulation::world::{self, Report};

fn play(store: StoreKind, seed: u64) -> (Report, Counts) {
    let counts = Counts::default();
    let report = world::run_on(store, &Scenario::from_seed(seed), None, None, &counts);
    (report, counts)
}

fn gives_the_same_trace(store: StoreKind) {
    for seed in [2, 4] {
        let ((first, counts), (second, again)) = (play(store, seed), play(store, seed));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(counts.all(), again.all(), "seed {seed}");
        assert!(first.lines > 1_000, "seed {seed} traced almost nothing");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    gives_the_same_trace(StoreKind::Model);
}

#[test]
fn the_same_seed_gives_the_same_trace_on_sqlite() {
    gives_the_same_trace(StoreKind::Sqlite);
}

#[test]
fn another_thread_gives_the_same_trace() {
    for store in [StoreKind::Model, StoreKind::Sqlite] {
        let here = play(store, 6).0.hash;
        let there = std::thread::spawn(move || play(store, 6).0.hash).join();
        assert_eq!(there.ok(), Some(here));
    }
}

#[test]
fn another_seed_gives_another_trace() {
    assert_ne!(
        play(StoreKind::Model, 1).0.hash,
        play(StoreKind::Model, 2).0.hash
    );
}
