//! A seed stands for one trace.

use simulation::counts::Counts;
use simulation::scenario::Scenario;
use simulation::world::{self, Report};

fn play(seed: u64) -> (Report, Counts) {
    let counts = Counts::default();
    let report = world::run(&Scenario::from_seed(seed), None, &counts);
    (report, counts)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [2, 4] {
        let ((first, counts), (second, again)) = (play(seed), play(seed));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(counts.all(), again.all(), "seed {seed}");
        assert!(first.lines > 1_000, "seed {seed} traced almost nothing");
    }
}

#[test]
fn another_thread_gives_the_same_trace() {
    let here = play(6).0.hash;
    let there = std::thread::spawn(|| play(6).0.hash).join();
    assert_eq!(there.ok(), Some(here));
}

#[test]
fn another_seed_gives_another_trace() {
    assert_ne!(play(1).0.hash, play(2).0.hash);
}
