//! Seeds of every mood keep every promise.

use simulation::counts::{Counts, SOMETIMES};
use simulation::scenario::{Mood, Scenario};
use simulation::world;

/// Plays the first `count` seeds of a mood.
fn play(mood: Mood, count: usize) -> Counts {
    let counts = Counts::default();
    let scenarios = (0..).map(Scenario::from_seed);
    for scenario in scenarios.filter(|one| one.mood == mood).take(count) {
        let report = world::run(&scenario, None, &counts);
        let seed = scenario.seed;
        assert_eq!(report.broken, [], "seed {seed}: {}", scenario.as_rust());
        assert!(report.starts > 0, "seed {seed} started nothing");
    }
    counts
}

#[test]
fn in_calm_seas_the_limits_are_used_and_nobody_is_delayed() {
    play(Mood::Calm, 2);
}

#[test]
fn in_storms_every_promise_is_kept_and_faults_happen() {
    let counts = play(Mood::Stormy, 6);
    // The rarest need a long run; the program fails if it misses one of them.
    let never = counts.never();
    assert!(
        never.len() * 2 < SOMETIMES.len(),
        "never happened: {never:?}"
    );
}

#[test]
fn limits_of_an_hour_are_kept_for_longer_than_an_hour() {
    play(Mood::Long, 1);
}
