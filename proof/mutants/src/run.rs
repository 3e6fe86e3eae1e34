//! All trials: each killer once without a mutant, and once for each of its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::mutant::{Killer, Mutant};
use crate::trial::{self, Answer};
use crate::{apply, programs, tree};

/// Trials at once: some take turns in real time, and wait more than they work.
const AT_ONCE: usize = 2;

/// One trial.
struct Trial<'a> {
    killer: Killer,
    mutant: Option<&'a Mutant>,
}

/// Builds the copy with all mutants, and tries the chosen ones; those that
/// were killed. An error if a killer does not pass by itself.
pub(crate) fn run<'a>(
    root: &Path,
    all: &[Mutant],
    chosen: &[&'a Mutant],
) -> Result<Vec<&'a Mutant>> {
    check_servers()?;
    let target_folder = programs::target_folder(root)?;
    let tree = target_folder.join("mutants/tree");
    let mut files = tree::read(root)?;
    apply::apply(&mut files, all)?;
    tree::mark(&mut files)?;
    tree::write(&files, &tree)?;
    println!("building the copy in {}", tree.display());
    let targets: BTreeSet<&str> = chosen.iter().map(|mutant| mutant.killer.target).collect();
    let began = trial::now();
    let programs = programs::build(&tree, &target_folder, &targets)?;
    println!("built in {:.0?}", began.elapsed());

    let killers: BTreeSet<Killer> = chosen.iter().map(|mutant| mutant.killer).collect();
    let alone = killers.iter().map(|killer| Trial {
        killer: *killer,
        mutant: None,
    });
    let mutated = chosen.iter().map(|mutant| Trial {
        killer: mutant.killer,
        mutant: Some(mutant),
    });
    let trials: Vec<Trial<'_>> = alone.chain(mutated).collect();
    println!("{} killers, {} mutants", killers.len(), chosen.len());
    let began = trial::now();
    let answers = in_parallel(&trials, |trial| {
        let program = &programs[trial.killer.target];
        let name = trial.mutant.map(|mutant| mutant.name);
        let answer = trial::run(program, trial.killer, name)?;
        report(trial, &answer);
        Ok(answer)
    })?;

    println!("tried in {:.0?}", began.elapsed());
    let mut broken = 0;
    let mut killed = Vec::new();
    for (trial, answer) in trials.iter().zip(answers) {
        match (trial.mutant, answer) {
            (None, Answer::Passed) => {}
            (None, _) | (Some(_), Answer::Missing) => broken += 1,
            (Some(mutant), Answer::Failed(_)) => {
                killed.extend(chosen.iter().find(|one| one.name == mutant.name).copied());
            }
            (Some(_), Answer::Passed | Answer::Neither(_)) => {}
        }
    }
    ensure!(broken == 0, "{broken} killers do not pass without a mutant");
    Ok(killed)
}

/// Tests that find no server fail, which would look like a kill.
fn check_servers() -> Result<()> {
    for server in ["DATABASE", "REDIS", "AMQP"] {
        let variable = format!("PACELINE_TEST_{server}_URL");
        if std::env::var_os(&variable).is_none() {
            bail!("{variable} is not set: run scripts/with-servers cargo run -p mutants");
        }
    }
    Ok(())
}

fn report(trial: &Trial<'_>, answer: &Answer) {
    let name = trial.mutant.map_or("unmutated", |mutant| mutant.name);
    let test = trial.killer.test;
    match (trial.mutant, answer) {
        (None, Answer::Passed) => println!("ok        {test}"),
        (Some(_), Answer::Failed(why)) => println!("killed    {name}: {why}"),
        (Some(_), Answer::Passed) => println!("SURVIVED  {name}: {test} passes"),
        (_, answer) => println!("BROKEN    {name}: {test}: {answer:?}"),
    }
}

/// Does all of them, [`AT_ONCE`] at a time; the answers in their order.
fn in_parallel<T: Sync, A: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<A> + Sync,
) -> Result<Vec<A>> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else {
                        return;
                    };
                    let answer = work(item);
                    if let Ok(mut answers) = answers.lock() {
                        answers.push((index, answer));
                    }
                }
            });
        }
    });
    let mut answers = answers.into_inner().ok().context("a trial panicked")?;
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}
