//! Judging inputs, and looking for one that fails.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::corpus::File;
use crate::{Verdict, mutate, shrink};

/// The most inputs that are mutated, and kinds that are told apart: a property
/// whose words repeat the input must not fill the memory.
const MAX_KINDS: usize = 4_096;

/// How much is tried, and from which seed.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    pub(crate) inputs: usize,
    /// Instead of `inputs`.
    pub(crate) time: Option<Duration>,
    pub(crate) seed: u64,
}

impl Budget {
    /// So many inputs from a fixed seed, unless the environment has
    /// `FUZZ_SECONDS` or `FUZZ_SEED`. Not `PACELINE_…`: those are settings of
    /// the program, which refuses the ones that it does not know.
    pub(crate) fn from_environment(inputs: usize) -> Result<Self> {
        let number = |name: &str| -> Result<Option<u64>> {
            let Some(text) = std::env::var_os(name) else {
                return Ok(None);
            };
            let text = text.to_string_lossy();
            let number = text.parse().with_context(|| format!("{name}={text}"))?;
            Ok(Some(number))
        };
        Ok(Self {
            inputs,
            time: number("FUZZ_SECONDS")?.map(Duration::from_secs),
            seed: number("FUZZ_SEED")?.unwrap_or(1),
        })
    }

    fn left(&self, tried: usize, began: Instant) -> bool {
        match self.time {
            Some(time) => began.elapsed() < time,
            None => tried < self.inputs,
        }
    }
}

/// A property and what it has shown so far.
pub(crate) struct Judge<P> {
    property: P,
    kinds: HashSet<String>,
}

impl<P: FnMut(&[u8]) -> Verdict> Judge<P> {
    pub(crate) fn new(property: P) -> Self {
        Self {
            property,
            kinds: HashSet::new(),
        }
    }

    /// Whether the input showed something new, or why the property fails.
    pub(crate) fn judge(&mut self, input: &[u8]) -> Result<bool, String> {
        let verdict = catch_unwind(AssertUnwindSafe(|| (self.property)(input)));
        match verdict {
            Ok(Ok(kind)) => Ok(self.kinds.len() < MAX_KINDS && self.kinds.insert(kind)),
            Ok(Err(why)) => Err(format!("{why:#}")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                Err(format!("panicked: {}", text.unwrap_or("without words")))
            }
        }
    }

    /// Judges all files; returns a line for each that fails.
    pub(crate) fn files(&mut self, files: &[File]) -> Vec<String> {
        let failure = |file: &File| {
            let why = self.judge(&file.bytes).err()?;
            Some(format!("{}: {why}", file.name))
        };
        files.iter().filter_map(failure).collect()
    }
}

/// An input that fails.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) input: Vec<u8>,
    pub(crate) why: String,
}

/// What was tried without a failure.
#[derive(Debug)]
pub(crate) struct Report {
    tried: usize,
    kinds: usize,
    /// The mutations that showed something new.
    pub(crate) fresh: Vec<Vec<u8>>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tried,
            kinds,
            fresh,
        } = self;
        let fresh = fresh.len();
        write!(
            f,
            "{tried} mutations, {kinds} kinds of answers, {fresh} of them new"
        )
    }
}

/// Mutates inputs until the budget is used up or one fails.
#[expect(
    clippy::disallowed_methods,
    reason = "how long to search; no outcome depends on it"
)]
pub(crate) fn search<P: FnMut(&[u8]) -> Verdict>(
    judge: &mut Judge<P>,
    mut inputs: Vec<Vec<u8>>,
    budget: &Budget,
) -> Result<Report, Found> {
    let mut random = StdRng::seed_from_u64(budget.seed);
    let (began, seeds, mut tried) = (Instant::now(), inputs.len(), 0);
    while budget.left(tried, began) {
        let input = mutate::mutated(&inputs, &mut random);
        tried += 1;
        match judge.judge(&input) {
            Ok(true) => inputs.push(input),
            Ok(false) => {}
            Err(_) => return Err(smallest(judge, input)),
        }
    }
    Ok(Report {
        tried,
        kinds: judge.kinds.len(),
        fresh: inputs.split_off(seeds),
    })
}

fn smallest<P: FnMut(&[u8]) -> Verdict>(judge: &mut Judge<P>, input: Vec<u8>) -> Found {
    let input = shrink::smallest(input, |bytes| judge.judge(bytes).is_err());
    let why = judge.judge(&input).err();
    Found {
        input,
        why: why.unwrap_or_else(|| "fails, but not every time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    fn budget(inputs: usize, seed: u64) -> Budget {
        Budget {
            inputs,
            time: None,
            seed,
        }
    }

    /// Fails on what begins with `{[:%`, and tells how far an input got.
    fn lock(input: &[u8]) -> Verdict {
        let right = input
            .iter()
            .zip(b"{[:%")
            .take_while(|(a, b)| a == b)
            .count();
        ensure!(right < 4, "open");
        Ok(format!("{right} right"))
    }

    #[test]
    fn words_lead_to_what_chance_would_not_find() {
        let seeds = || vec![b"abcdefgh".to_vec()];
        let found = search(&mut Judge::new(lock), seeds(), &budget(20_000, 1)).unwrap_err();
        assert_eq!(
            (found.input.as_slice(), found.why.as_str()),
            (&b"{[:%"[..], "open")
        );

        let silent = |input: &[u8]| lock(input).map(|_| String::new());
        search(&mut Judge::new(silent), seeds(), &budget(20_000, 1)).unwrap();
    }

    #[test]
    fn a_panic_is_a_failure() {
        let mut judge = Judge::new(|input: &[u8]| {
            assert!(!input.contains(&b'\\'), "no {}", "backslash");
            Ok(String::new())
        });
        let found = search(&mut judge, vec![b"a".to_vec()], &budget(10_000, 1)).unwrap_err();
        assert_eq!(
            (found.input.as_slice(), found.why.as_str()),
            (&b"\\"[..], "panicked: no backslash")
        );
    }

    #[test]
    fn equal_seeds_try_equal_inputs() {
        let tried = |seed| {
            let mut tried = Vec::new();
            let mut judge = Judge::new(|input: &[u8]| {
                tried.push(input.to_vec());
                Ok(input.len().to_string())
            });
            search(&mut judge, vec![b"abc".to_vec()], &budget(1_000, seed)).unwrap();
            tried
        };
        assert_eq!(tried(1), tried(1));
        assert_ne!(tried(1), tried(2));
    }

    #[test]
    fn every_failing_file_is_named() {
        let file = |name: &str, bytes: &[u8]| File {
            name: name.to_owned(),
            bytes: bytes.to_vec(),
        };
        let files = [
            file("good", b"{"),
            file("bad", b"{[:%"),
            file("worse", b"{[:%!"),
        ];
        assert_eq!(Judge::new(lock).files(&files), ["bad: open", "worse: open"]);
    }

    #[test]
    fn time_ends_a_search() {
        let budget = Budget {
            time: Some(Duration::ZERO),
            ..budget(usize::MAX, 1)
        };
        let report = search(&mut Judge::new(lock), vec![Vec::new()], &budget).unwrap();
        assert_eq!(report.tried, 0);
    }
}
