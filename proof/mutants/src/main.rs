//! Small wrong versions of Paceline, and the named test that kills each.
//!
//! The shipped code has no switches. This program copies the workspace into
//! the target folder, puts every mutant of the list into the copy behind a
//! switch, builds the test programs once, and runs each killer: without a
//! mutant it must pass, with its mutant it must fail. A mutant whose text is
//! not found exactly once in the shipped code fails the run, so the list
//! follows the code.
//!
//! ```text
//! scripts/with-servers cargo run -p mutants             # and writes docs/mutants.md
//! scripts/with-servers cargo run -p mutants -- --check  # the page must say the same
//! scripts/with-servers cargo run -p mutants -- NAME...  # only these, no page
//! scripts/with-servers cargo run -p mutants -- --changed-since REVISION
//!                       # those of files that changed, and others in turn, no page
//! ```

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a tool that reports to a terminal"
)]

mod apply;
mod list;
mod mutant;
mod page;
mod programs;
mod run;
mod short;
mod tree;
mod trial;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use mutant::Mutant;

fn main() -> ExitCode {
    match try_main() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn try_main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = list::all()?;
    let root = root();
    let (check, is_whole, mutants) = match &arguments[..] {
        [] => (false, true, all.iter().collect()),
        [only] if only == "--check" => (true, true, all.iter().collect()),
        [option, revision] if option == "--changed-since" => {
            (false, false, short::chosen(&root, &all, revision)?)
        }
        names => (false, false, named(&all, names)?),
    };
    let killed = run::run(&root, &all, &mutants)?;
    if killed.len() < mutants.len() {
        println!("{} of {} mutants killed", killed.len(), mutants.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("all {} mutants killed", mutants.len());
    if is_whole {
        return publish(&root, &page::table(&killed), check);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the page, or checks it.
fn publish(root: &Path, table: &str, check: bool) -> Result<ExitCode> {
    let path = root.join(page::PAGE);
    let old = std::fs::read_to_string(&path).context(page::PAGE)?;
    let new = page::with_table(&old, table)?;
    if old == new {
        return Ok(ExitCode::SUCCESS);
    }
    if check {
        println!(
            "{} says something else: run `cargo run -p mutants`",
            page::PAGE
        );
        return Ok(ExitCode::FAILURE);
    }
    std::fs::write(&path, new).context(page::PAGE)?;
    println!("{} written", page::PAGE);
    Ok(ExitCode::SUCCESS)
}

fn named<'a>(all: &'a [Mutant], names: &[String]) -> Result<Vec<&'a Mutant>> {
    for name in names {
        if !all.iter().any(|mutant| mutant.name == name) {
            bail!("there is no mutant {name}");
        }
    }
    let is_named = |mutant: &&Mutant| names.iter().any(|name| name == mutant.name);
    Ok(all.iter().filter(is_named).collect())
}

/// The root of the workspace that this program was built in.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.join("../..")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutant_is_found_exactly_once_in_the_shipped_code() {
        let mut files = tree::read(&root()).unwrap();
        apply::apply(&mut files, &list::all().unwrap()).unwrap();
        tree::mark(&mut files).unwrap();
    }

    #[test]
    fn names_are_unique_and_every_mutant_changes_something() {
        let all = list::all().unwrap();
        let names: BTreeSet<_> = all.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.len() >= 20);
    }

    /// Without the long run: the page has a row for each mutant of the list.
    #[test]
    fn the_page_is_the_lists() {
        let all = list::all().unwrap();
        let page = std::fs::read_to_string(root().join(page::PAGE)).unwrap();
        let table = page::table(&all.iter().collect::<Vec<_>>());
        let same = page::with_table(&page, &table).unwrap() == page;
        assert!(
            same,
            "{} is not the list's: run `cargo run -p mutants`",
            page::PAGE
        );
    }
}
