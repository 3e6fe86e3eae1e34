//! Mutants of files that Rust includes as text: Lua, and SQL.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};

use super::{Files, find};
use crate::mutant::{Change, Mutant};

/// Where migrations are applied, and how. They are included by a constant,
/// which cannot choose; their text is chosen when it is applied.
const APPLIED: (&str, &str) = (
    "crates/adapters/src/sqlite/migrate.rs",
    "execute_batch(migration)",
);

/// Writes a wrong version of an included file for each of its mutants, beside
/// it, and lets the switch choose where it is included.
pub(super) fn include_wrong_versions(
    files: &mut Files,
    file: &str,
    text: &str,
    mutants: &[&Mutant],
) -> Result<()> {
    let includers: Vec<(String, String)> = includes(files)
        .filter(|(_, included, _)| included == file)
        .map(|(includer, _, written)| (includer, written))
        .collect();
    let names: BTreeSet<_> = mutants.iter().map(|mutant| mutant.name).collect();
    ensure!(!includers.is_empty(), "{names:?}: nothing includes {file}");
    for mutant in mutants {
        let Change::Text { wrong, .. } = mutant.change else {
            bail!("{}: not a text", mutant.name);
        };
        let place = find(text, mutant)?;
        let mut version = text.to_owned();
        version.replace_range(place, wrong);
        files.insert(format!("{file}.{}", mutant.name), version);
    }
    for (includer, written) in includers {
        let wrong: Vec<_> = (mutants.iter())
            .map(|mutant| format!("({0:?}, include_str!(\"{written}.{0}\"))", mutant.name))
            .collect();
        let right = format!("include_str!(\"{written}\")");
        let call = format!("::domain::mutants::text({right}, &[{}])", wrong.join(", "));
        let code = files.get_mut(&includer).context("it includes")?;
        *code = if includer == APPLIED.0 {
            ensure!(
                code.matches(APPLIED.1).count() == 1,
                "{includer}: no {}",
                APPLIED.1
            );
            let chosen = format!("if *migration == {right} {{ {call} }} else {{ migration }}");
            code.replace(APPLIED.1, &format!("execute_batch({chosen})"))
        } else {
            code.replace(&right, &call)
        };
    }
    Ok(())
}

/// All that is included anywhere: by which file, what, and how that is written.
fn includes(files: &Files) -> impl Iterator<Item = (String, String, String)> + '_ {
    const CALL: &str = "include_str!(\"";
    let rust = files.iter().filter(|(path, _)| path.ends_with(".rs"));
    rust.flat_map(|(path, text)| {
        text.match_indices(CALL).filter_map(move |(at, _)| {
            let written = text[at + CALL.len()..].split('"').next()?;
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let included = joined(folder, written)?;
            Some((path.clone(), included, written.to_owned()))
        })
    })
}

/// A path relative to a folder, without its dots.
fn joined(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
