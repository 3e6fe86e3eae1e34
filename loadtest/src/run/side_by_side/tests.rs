//! Ways to limit, by what they come to.

use domain::limit::Period;

use super::super::settings::tests::settings;
use super::*;

fn burst(seed: u64) -> Vec<Way> {
    ways(&Settings {
        rate: Rate(0.0),
        destinations: 1,
        events: 3_000,
        limit: Limit::Per(100, Period::Second),
        seed,
        ..settings(Shape::Import)
    })
}

/// What the others exceed ours keep, and ours lose no time by it.
#[test]
fn ours_keep_their_promise_where_the_others_do_not() {
    for seed in 0..5 {
        let ways = burst(seed);
        assert_eq!(ways.len(), 5);
        for way in &ways[..2] {
            assert!(way.worst_at_sender > 120, "seed {seed}: {way:?}");
            assert!(way.worst_at_receiver > 110, "seed {seed}: {way:?}");
        }
        for way in &ways[2..] {
            let promised = way.promised.unwrap();
            assert!(way.worst_at_sender <= promised, "seed {seed}: {way:?}");
            // Three thousand at a hundred a second, to within a second.
            assert!((29.0..31.0).contains(&way.last_start_seconds), "{way:?}");
        }
        assert_eq!(ways[2].worst_at_sender, 100, "the whole limit is used");
    }
}

#[test]
fn a_window_is_half_open() {
    let second = Duration::from_secs(1);
    assert_eq!(fullest(vec![], second), 0);
    assert_eq!(fullest(vec![1_000_000, 0], second), 1);
    assert_eq!(fullest(vec![999_999, 0, 1_500_000], second), 2);
}

#[test]
fn without_a_limit_there_is_nothing_to_compare() {
    assert_eq!(ways(&settings(Shape::Burst)), []);
}
