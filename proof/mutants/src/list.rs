//! The mutants: what `list.toml` says.

use std::sync::LazyLock;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::mutant::{Change, Killer, Mutant};

const LIST: &str = "proof/mutants/list.toml";

/// The list as it is written.
static WRITTEN: LazyLock<Result<List, toml::de::Error>> =
    LazyLock::new(|| toml::from_str(include_str!("../list.toml")));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    mutant: Vec<Row>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    what: String,
    file: String,
    /// The test program, a colon, and the test's path in it.
    killer: String,
    change: How,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum How {
    Rust { right: String, wrong: String },
    Rewrite { right: String, with: String },
    Text { right: String, wrong: String },
}

/// All of them, in the order of the page.
pub(crate) fn all() -> Result<Vec<Mutant>> {
    let list = WRITTEN.as_ref().map_err(|error| anyhow!("{LIST}: {error}"));
    list?.mutant.iter().map(Row::mutant).collect()
}

impl Row {
    fn mutant(&'static self) -> Result<Mutant> {
        let named = (self.killer.split_once(": "))
            .with_context(|| format!("{LIST}: killer of {}: no `program: test`", self.name));
        let (target, test) = named?;
        Ok(Mutant {
            name: &self.name,
            wrong: &self.what,
            file: &self.file,
            change: self.change.change(),
            killer: Killer { target, test },
        })
    }
}

impl How {
    fn change(&'static self) -> Change {
        match self {
            Self::Rust { right, wrong } => Change::Rust { right, wrong },
            Self::Rewrite { right, with } => Change::Rewrite { right, with },
            Self::Text { right, wrong } => Change::Text { right, wrong },
        }
    }
}
