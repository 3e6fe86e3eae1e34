//! # Bridge
//!
//! From what the simulation runs to the other drivers: drawn batches of calls on 1 to 8
//! connections at once, each batch explained by one caller after the other.
//!
//! The simulation proves what it proves of the engine on the store on SQLite and on the
//! schedule in process. The bridge shows that another driver, under real concurrency,
//! does nothing that these would not do: after each batch it looks for an order of the
//! batch's calls in which they give the same answers ([`linear`]). The states in which
//! such orders leave them are where the next batch begins; if there is none, the driver
//! did something that no sequence of calls can do.
//!
//! `PACELINE_BRIDGE_CASES` sets how many cases each test draws, and
//! `PACELINE_BRIDGE_SEED` the seed of the first; each further case has the next
//! one. A failure says the seed of its case.

pub(crate) mod linear;

use std::fmt::Debug;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rand::TryRng as _;
use rand::rngs::SysRng;

/// The most connections.
pub(crate) const CONNECTIONS: usize = 8;

/// The cases that a test draws, each from a seed of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cases {
    count: u32,
    first: u64,
}

impl Cases {
    /// The same in two parts, for two cores.
    pub(crate) fn halves(self) -> [Self; 2] {
        let first = self.count.div_ceil(2);
        let rest = Self {
            count: self.count - first,
            first: self.first + u64::from(first),
        };
        let first = Self {
            count: first,
            ..self
        };
        [first, rest]
    }
}

/// Draws `cases` cases, or as many as the environment says.
pub(crate) fn runner(cases: u32) -> Cases {
    Cases {
        count: number("PACELINE_BRIDGE_CASES").unwrap_or(cases),
        first: number("PACELINE_BRIDGE_SEED").unwrap_or_else(any_seed),
    }
}

/// Draws the same cases in every run: those that must find a planted fault.
pub(crate) fn repeating(count: u32) -> Cases {
    Cases { count, first: 0 }
}

fn number<T: std::str::FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("what bounds the bridge is a number"))
}

fn any_seed() -> u64 {
    let mut seed = [0; 4];
    SysRng.try_fill_bytes(&mut seed).unwrap();
    u64::from(u32::from_be_bytes(seed))
}

impl Cases {
    /// Draws each case and makes it. A case that is made again may come out
    /// otherwise, and takes long: none is shrunk.
    pub(crate) fn run<V: Debug>(
        self,
        of: &impl Strategy<Value = V>,
        mut make: impl FnMut(V) -> Result<(), TestCaseError>,
    ) -> Result<(), String> {
        for seed in (self.first..).take(usize::try_from(self.count).unwrap()) {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
            let mut runner = TestRunner::new_with_rng(Config::default(), random);
            let case = of.new_tree(&mut runner).unwrap().current();
            make(case).map_err(|error| format!("PACELINE_BRIDGE_SEED={seed}: {error}"))?;
        }
        Ok(())
    }
}
