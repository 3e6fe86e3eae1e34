//! Puts the mutants into the text of the workspace's files, each behind a
//! switch that a test throws by an environment variable.
//!
//! Many mutants may change one place, and then share it; places that overlap
//! otherwise are refused.

mod included;
mod literal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

use crate::mutant::{Change, Mutant};
use included::include_wrong_versions;
use literal::{literal_around, switched_literal};

/// Files by their paths from the root of the workspace.
pub(crate) type Files = BTreeMap<String, String>;

/// The module that answers whether a mutant is switched on; in the copy only.
const SWITCH: &str = include_str!("switch.rs.txt");
const SWITCH_IN: &str = "crates/domain/src/lib.rs";

/// Applies all of them.
pub(crate) fn apply(files: &mut Files, mutants: &[Mutant]) -> Result<()> {
    let mut by_file: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        by_file.entry(mutant.file).or_default().push(mutant);
    }
    for (file, mutants) in by_file {
        let text = files.get(file).with_context(|| missing(&mutants))?.clone();
        if file.ends_with(".rs") {
            let changed = in_rust(&text, &mutants).with_context(|| file.to_owned())?;
            files.insert(file.to_owned(), changed);
        } else {
            include_wrong_versions(files, file, &text, &mutants)?;
        }
    }
    let lib = files.get_mut(SWITCH_IN).context(SWITCH_IN)?;
    lib.push_str(SWITCH);
    Ok(())
}

fn missing(mutants: &[&Mutant]) -> String {
    format!("{}: there is no such file", mutants[0].name)
}

/// Where a mutant's text is.
fn find(text: &str, mutant: &Mutant) -> Result<Range<usize>> {
    let right = mutant.change.right();
    let mut found = text.match_indices(right);
    let (Some((at, _)), None) = (found.next(), found.next()) else {
        bail!(
            "{}: stale, its text is in {} {} times: change the mutant as the code was changed",
            mutant.name,
            mutant.file,
            text.matches(right).count()
        );
    };
    Ok(at..at + right.len())
}

/// One edit of a Rust file: what is there, and what takes its place.
struct Edit {
    place: Range<usize>,
    text: String,
}

fn in_rust(text: &str, mutants: &[&Mutant]) -> Result<String> {
    let mut places: BTreeMap<(usize, usize), Vec<&Mutant>> = BTreeMap::new();
    let mut literals: BTreeMap<(usize, usize), Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let found = find(text, mutant)?;
        match mutant.change {
            Change::Text { .. } => {
                let literal = literal_around(text, &found)
                    .with_context(|| format!("{}: not in a string", mutant.name))?;
                literals.entry(literal).or_default().push(mutant);
            }
            Change::Rust { .. } | Change::Rewrite { .. } => {
                places
                    .entry((found.start, found.end))
                    .or_default()
                    .push(mutant);
            }
        }
    }
    let mut edits = Vec::new();
    for ((start, end), mutants) in places {
        let place = start..end;
        let text = switched(&text[place.clone()], &mutants)?;
        edits.push(Edit { place, text });
    }
    for ((start, end), mutants) in literals {
        edits.extend(switched_literal(text, start..end, &mutants)?);
    }
    edited(text, edits)
}

fn edited(text: &str, mut edits: Vec<Edit>) -> Result<String> {
    edits.sort_by_key(|edit| edit.place.start);
    let mut changed = String::new();
    let mut from = 0;
    for edit in edits {
        ensure!(
            from <= edit.place.start,
            "two mutants overlap: {}",
            edit.text
        );
        changed.push_str(&text[from..edit.place.start]);
        changed.push_str(&edit.text);
        from = edit.place.end;
    }
    changed.push_str(&text[from..]);
    Ok(changed)
}

fn on(mutant: &Mutant) -> String {
    format!("::domain::mutants::on({:?})", mutant.name)
}

/// The code of one place, right and wrong.
fn switched(right: &str, mutants: &[&Mutant]) -> Result<String> {
    if let [only] = mutants
        && let Change::Rewrite { with, .. } = only.change
    {
        ensure!(with.contains("ON"), "{}: no ON in it", only.name);
        return Ok(with.replace("ON", &on(only)));
    }
    let mut code = String::new();
    for mutant in mutants {
        let Change::Rust { wrong, .. } = mutant.change else {
            bail!("{}: a rewritten place is nobody else's", mutant.name);
        };
        code.push_str(&format!("if {} {{ {wrong} }} else ", on(mutant)));
    }
    code.push_str(&format!("{{ {right} }}"));
    let statements = right.trim_end().ends_with([';', '}']);
    Ok(if statements {
        code
    } else {
        format!("::std::convert::identity({code})")
    })
}
