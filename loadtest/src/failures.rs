//! The matrix of failures: what goes wrong, what makes it harmless, what is
//! left of it, and what exercises it.
//!
//! The rows are in this program, so that a test can hold them to the tests and
//! faults that they name; `docs/failures.md` is written from them.

mod outages;
mod processes;
mod rules;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};

const BEGIN: &str = "<!-- begin: written by `loadtest failures --write` -->";
const END: &str = "<!-- end -->";

/// One failure.
pub(crate) struct Row {
    /// What goes wrong.
    pub(crate) fault: &'static str,
    /// What makes it harmless.
    pub(crate) mechanism: &'static str,
    /// What is left of it.
    pub(crate) residue: &'static str,
    /// Tests by the names of their functions, and kinds of chaos faults.
    pub(crate) exercised: &'static [By],
}

/// What exercises a failure.
pub(crate) enum By {
    /// A test, or a case of a contract suite, by the name of its function.
    Test(&'static str),
    /// A fault of the chaos run, by its kind; `name-*` is all that begin so.
    Chaos(&'static str),
    /// A destination of every chaos run, by its name: its receiver or its tenant
    /// does this without a fault.
    Cast(&'static str),
    /// Nothing yet, and why.
    Nothing(&'static str),
}

/// Every row, in the order of the document.
fn rows() -> impl Iterator<Item = &'static Row> {
    processes::ROWS
        .iter()
        .chain(&outages::ROWS)
        .chain(&rules::ROWS)
}

/// Writes the table of failures, or compares it with the document.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write it into `docs/failures.md`; otherwise the two are compared.
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = root().join("docs/failures.md");
    let document = read(&path)?;
    let written = with_table(&document)?;
    if args.write {
        std::fs::write(&path, written).context("write docs/failures.md")?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        written == document,
        "docs/failures.md is not what the rows say: write it again"
    );
    Ok(ExitCode::SUCCESS)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

/// The document with the table in its place.
fn with_table(document: &str) -> anyhow::Result<String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .context("no beginning of the table")?;
    let (_, after) = rest.split_once(END).context("no end of the table")?;
    Ok(format!("{before}{BEGIN}\n{}{END}{after}", table()))
}

fn table() -> String {
    let mut table =
        "| fault | mechanism | residue | exercised by |\n|---|---|---|---|\n".to_owned();
    for row in rows() {
        let exercised: Vec<_> = row.exercised.iter().map(By::cell).collect();
        let cells = [row.fault, row.mechanism, row.residue, &exercised.join(", ")];
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

impl By {
    fn cell(&self) -> String {
        match self {
            Self::Test(name) => format!("`{name}`"),
            Self::Chaos(kind) => format!("chaos `{kind}`"),
            Self::Cast(name) => format!("chaos, destination `{name}`"),
            Self::Nothing(why) => format!("**nothing yet:** {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::chaos::fault::KINDS;
    use crate::chaos::world::destinations;

    /// Names of all functions in the sources below a folder.
    fn functions(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                functions(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let names = text.lines().filter_map(|line| {
                    let line = line.trim_start().trim_start_matches("pub ");
                    let line = line.trim_start_matches("pub(crate) ");
                    let line = line.trim_start_matches("async ");
                    Some(
                        line.strip_prefix("fn ")?
                            .split(['(', '<'])
                            .next()?
                            .to_owned(),
                    )
                });
                found.extend(names);
            }
        }
    }

    /// What is wrong with a name, given all functions there are.
    fn problem(by: &By, functions: &BTreeSet<String>) -> Option<String> {
        match by {
            By::Test(name) if !functions.contains(*name) => Some(format!("no test {name}")),
            By::Chaos(kind) => {
                let found = match kind.strip_suffix('*') {
                    Some(beginning) => KINDS.iter().any(|one| one.starts_with(beginning)),
                    None => KINDS.contains(kind),
                };
                (!found).then(|| format!("no fault {kind}"))
            }
            By::Cast(name) => {
                let found = destinations(1).iter().any(|one| one.name == *name);
                (!found).then(|| format!("no destination {name}"))
            }
            By::Test(_) | By::Nothing(_) => None,
        }
    }

    #[test]
    fn every_row_names_what_there_is() {
        let mut found = BTreeSet::new();
        for folder in ["crates", "proof", "loadtest"] {
            functions(&root().join(folder), &mut found);
        }
        let mut problems = Vec::new();
        for row in rows() {
            if row.exercised.is_empty() {
                problems.push(format!("{}: exercised by nothing", row.fault));
            }
            let wrong = row.exercised.iter().filter_map(|by| problem(by, &found));
            problems.extend(wrong.map(|problem| format!("{}: {problem}", row.fault)));
        }
        assert!(problems.is_empty(), "{problems:#?}");
    }

    #[test]
    fn a_name_that_is_wrong_is_found() {
        let found = BTreeSet::from(["a_test".to_owned()]);
        assert!(problem(&By::Test("a_test"), &found).is_none());
        assert!(problem(&By::Test("another"), &found).is_some());
        assert!(problem(&By::Chaos("kill-worker"), &found).is_none());
        assert!(problem(&By::Chaos("redis-link-*"), &found).is_none());
        assert!(problem(&By::Chaos("kill-everybody"), &found).is_some());
        assert!(problem(&By::Cast("ill for a while"), &found).is_none());
        assert!(problem(&By::Cast("well for a while"), &found).is_some());
    }

    #[test]
    fn every_kind_of_fault_is_in_some_row() {
        let named = |kind: &str| {
            rows().flat_map(|row| row.exercised).any(|by| match by {
                By::Chaos(name) => match name.strip_suffix('*') {
                    Some(beginning) => kind.starts_with(beginning),
                    None => kind == *name,
                },
                By::Test(_) | By::Cast(_) | By::Nothing(_) => false,
            })
        };
        let unnamed: Vec<_> = KINDS.into_iter().filter(|kind| !named(kind)).collect();
        assert!(unnamed.is_empty(), "{unnamed:?}");
    }

    #[test]
    fn the_document_is_what_the_rows_say() {
        let document = read(&root().join("docs/failures.md")).unwrap();
        let written = with_table(&document).unwrap();
        assert!(
            written == document,
            "write it again: `cargo run -p loadtest -- failures --write`"
        );
    }
}
