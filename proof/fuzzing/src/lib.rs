//! Fuzz targets as plain tests.
//!
//! A target is a corpus, which is a folder of files, and a property, which is a
//! function of bytes. [`run`] judges every file of the corpus, and then as many
//! mutations of them as the target asks for. The property also says in a few
//! words what it made of the input; an input that brings words which no other
//! brought joins the inputs to be mutated. So the search follows what the
//! parser does, without instrumenting it: that works on the stable toolchain,
//! inside `cargo test`.
//!
//! A run without variables is the same every time. `docs/fuzzing.md` has the
//! variables, the targets, and what to do with an input that was found.

mod corpus;
mod mutate;
mod search;
mod shrink;

use std::fmt;
use std::path::Path;

pub use anyhow::{Context, Result, bail, ensure};

/// What a property says: in a few words what became of the input, or why it
/// does not hold. The words are to name kinds, such as `refused: url`, and
/// never to repeat the input: each new kind makes its input worth mutating.
pub type Verdict = Result<String>;

/// What a test function returns that runs a target.
pub type Outcome = std::result::Result<(), Failure>;

/// Why a target fails, as text for people: that is how a test shows it.
pub struct Failure(anyhow::Error);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

/// Runs a target: the folder `corpus/NAME` of a crate, and then `inputs`
/// mutations of what is in it, or as many as fit into `FUZZ_SECONDS`.
///
/// Prints what was tried (`cargo test -- --nocapture` shows it); fails with the
/// smallest input found for which the property fails or panics.
///
/// # Errors
/// The corpus is missing or empty, a file of it fails, or a mutation does.
#[expect(clippy::print_stdout, reason = "the report of a test")]
pub fn run(
    crate_folder: &str,
    name: &str,
    inputs: usize,
    property: impl FnMut(&[u8]) -> Verdict,
) -> Outcome {
    let report = outcome(crate_folder, name, inputs, property).map_err(Failure)?;
    println!("{name}: {report}");
    Ok(())
}

fn outcome(
    crate_folder: &str,
    name: &str,
    inputs: usize,
    property: impl FnMut(&[u8]) -> Verdict,
) -> Result<String> {
    let folder = Path::new(crate_folder).join("corpus").join(name);
    let budget = search::Budget::from_environment(inputs)?;
    let mut judge = search::Judge::new(property);
    let seeds = corpus::read(&folder)?;
    let failures = judge.files(&seeds);
    if !failures.is_empty() {
        bail!("{name}: the corpus fails\n{}", failures.join("\n"));
    }
    let seeds = seeds.into_iter().map(|file| file.bytes).collect();
    match search::search(&mut judge, seeds, &budget) {
        Ok(report) => {
            corpus::keep(name, &report.fresh)?;
            Ok(report.to_string())
        }
        Err(found) => {
            let saved = corpus::save(name, &found.input)?;
            bail!(
                "{name}: {}\ninput: b\"{}\"\nseed: {}\nsaved; fix it, and keep the input: mv {} {}/",
                found.why,
                found.input.escape_ascii(),
                budget.seed,
                saved.display(),
                folder.display(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_with(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let corpus = folder.path().join("corpus").join("letters");
        std::fs::create_dir_all(&corpus).unwrap();
        for (name, bytes) in files {
            std::fs::write(corpus.join(name), bytes).unwrap();
        }
        folder
    }

    fn run_letters(folder: &tempfile::TempDir) -> Result<String> {
        let crate_folder = folder.path().to_str().unwrap();
        outcome(crate_folder, "letters", 10, |input| {
            ensure!(input != b"bad", "it is bad");
            Ok(String::new())
        })
    }

    #[test]
    fn a_corpus_is_needed_and_judged() {
        let missing = tempfile::tempdir().unwrap();
        assert!(run_letters(&missing).is_err());
        assert!(run_letters(&crate_with(&[])).is_err());
        let report = run_letters(&crate_with(&[("one", b"good")])).unwrap();
        assert_eq!(report, "10 mutations, 1 kinds of answers, 0 of them new");
        let error = run_letters(&crate_with(&[("one", b"good"), ("two", b"bad")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "letters: the corpus fails\ntwo: it is bad"
        );
    }
}
