//! Tests of the program as it is called.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn simulation(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulation"))
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn a_seed_is_played_alike_each_time() {
    let once = simulation(&["--seed", "7"]);
    let twice = simulation(&["--seed", "7"]);
    assert!(once.status.success(), "{once:?}");
    let said = String::from_utf8(once.stdout).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("seed 7: "), "{last}");
    assert_eq!(said, String::from_utf8(twice.stdout).unwrap());
}

#[test]
fn many_seeds_are_summed() {
    let summed = simulation(&["--from", "7", "--seconds", "1", "--jobs", "1"]);
    assert!(summed.status.success(), "{summed:?}");
    let said = String::from_utf8(summed.stdout).unwrap();
    assert!(
        said.lines().last().unwrap().contains(" scenarios, "),
        "{said}"
    );
}

#[test]
fn one_seed_has_no_number_of_seconds() {
    let refused = simulation(&["--seed", "7", "--seconds", "5"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("--seconds"), "{why}");
}
