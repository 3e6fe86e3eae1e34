//! The short form: mutants of the files that changed, and some of the others, which
//! are others with the next commit, so that all have their turn. It is bounded: where a
//! great deal has changed, all of it is for `scripts/prove`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::mutant::Mutant;

/// How many are tried of those that changed, and of the others.
const CHANGED: usize = 40;
const OTHERS: usize = 10;

/// Those of files that differ from `revision`, and of the others; of more than
/// [`CHANGED`] and [`OTHERS`] those whose turn it is.
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
    let (changed, others): (Vec<_>, Vec<_>) =
        (all.iter()).partition(|mutant| changed.contains(&mutant.file));
    let mut chosen = in_turn(changed, turn, CHANGED);
    chosen.extend(in_turn(others, turn, OTHERS));
    chosen
}

fn in_turn(mutants: Vec<&Mutant>, turn: usize, most: usize) -> Vec<&Mutant> {
    let turns = mutants.len().div_ceil(most).max(1);
    (mutants.into_iter())
        .skip(turn % turns * most)
        .take(most)
        .collect()
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
    fn where_all_has_changed_every_mutant_has_its_turn_too() {
        let all = list::all().unwrap();
        let files: Vec<&str> = all.iter().map(|mutant| mutant.file).collect();
        let mut seen = BTreeSet::new();
        for turn in 0..all.len().div_ceil(CHANGED) {
            let chosen = select(&all, &files, turn);
            assert!(chosen.len() <= CHANGED);
            seen.extend(chosen.iter().map(|mutant| mutant.name));
        }
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
