//! The short form: mutants of the files that changed, and some of the others, which
//! are others with the next commit, so that all have their turn.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::mutant::Mutant;

/// How many of the others are tried.
const OTHERS: usize = 20;

/// Those of files that differ from `revision`, and [`OTHERS`] whose turn it is.
pub(crate) fn chosen<'a>(
    root: &Path,
    all: &'a [Mutant],
    revision: &str,
) -> Result<Vec<&'a Mutant>> {
    let changed = git(root, &["diff", "--name-only", revision])?;
    let turn = git(root, &["rev-list", "--count", "HEAD"])?;
    let turn = turn.trim().parse().context("git counts commits")?;
    let changed: Vec<&str> = changed.lines().collect();
    Ok(select(all, &changed, turn))
}

fn select<'a>(all: &'a [Mutant], changed: &[&str], turn: usize) -> Vec<&'a Mutant> {
    let (mut chosen, others): (Vec<_>, Vec<_>) =
        (all.iter()).partition(|mutant| changed.contains(&mutant.file));
    let turns = others.len().div_ceil(OTHERS).max(1);
    chosen.extend(others.into_iter().skip(turn % turns * OTHERS).take(OTHERS));
    chosen
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = (Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output())
    .context("run git")?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "git {}: {problem}",
        arguments.join(" ")
    );
    String::from_utf8(output.stdout).context("git answers text")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::list;

    #[test]
    fn every_mutant_has_its_turn() {
        let all = list::all().unwrap();
        let seen: BTreeSet<&str> = (0..all.len().div_ceil(OTHERS))
            .flat_map(|turn| select(&all, &[], turn))
            .map(|mutant| mutant.name)
            .collect();
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn those_of_changed_files_are_always_tried() {
        let all = list::all().unwrap();
        let file = all[0].file;
        let of_it = all.iter().filter(|mutant| mutant.file == file).count();
        for turn in 0..10 {
            let chosen = select(&all, &[file], turn);
            assert!(chosen.len() <= of_it + OTHERS);
            assert_eq!(
                chosen.iter().filter(|mutant| mutant.file == file).count(),
                of_it
            );
        }
    }
}
