//! # Bridge
//!
//! From the models to the drivers: drawn batches of calls on 1 to 8
//! connections at once, each batch explained by the model.
//!
//! The simulation proves what it proves of the engine on the models. The
//! bridge shows that a real driver, under real concurrency, does nothing that
//! its model would not do: after each batch it looks for an order of the
//! batch's calls in which the model gives the same answers ([`linear`]). The
//! states in which such orders leave the model are where the next batch
//! begins; if there is none, the driver did something that no sequence of
//! calls can do.
//!
//! `PACELINE_BRIDGE_CASES` sets how many cases each test draws.

pub(crate) mod linear;

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The most connections.
pub(crate) const CONNECTIONS: usize = 8;

/// Draws `cases` cases, or as many as the environment says.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let cases = match std::env::var("PACELINE_BRIDGE_CASES") {
        Ok(cases) => cases.parse().expect("PACELINE_BRIDGE_CASES is a number"),
        Err(_) => cases,
    };
    TestRunner::new(config(cases))
}

/// Draws the same cases in every run: those that must find a planted fault.
pub(crate) fn repeating(cases: u32) -> TestRunner {
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(config(cases), random)
}

fn config(cases: u32) -> Config {
    Config {
        cases,
        // A case that is run again may come out otherwise, and takes long.
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    }
}
