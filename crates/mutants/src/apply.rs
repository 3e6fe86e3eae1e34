//! Puts the mutants into the text of the workspace's files, each behind a
//! switch that a test throws by an environment variable.
//!
//! Many mutants may change one place, and then share it; places that overlap
//! otherwise are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

use crate::mutant::{Change, Mutant};

/// Files by their paths from the root of the workspace.
pub(crate) type Files = BTreeMap<String, String>;

/// The module that answers whether a mutant is switched on; in the copy only.
const SWITCH: &str = include_str!("switch.rs.txt");
const SWITCH_IN: &str = "crates/domain/src/lib.rs";

/// Where migrations are applied, and how. They are included by a constant,
/// which cannot choose; their text is chosen when it is applied.
const APPLIED: (&str, &str) = (
    "crates/adapters/src/sqlite/migrate.rs",
    "execute_batch(migration)",
);

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

/// The string literal that holds this place. SQL has no double quotes here.
fn literal_around(text: &str, place: &Range<usize>) -> Option<(usize, usize)> {
    let start = text[..place.start].rfind('"')?;
    let end = place.end + text[place.end..].find('"')? + 1;
    Some((start, end))
}

/// A literal that is an argument is switched in its place; one that is a
/// constant is switched wherever the constant is used.
fn switched_literal(text: &str, place: Range<usize>, mutants: &[&Mutant]) -> Result<Vec<Edit>> {
    let right = &text[place.clone()];
    let mut wrong = Vec::new();
    for mutant in mutants {
        let Change::Text {
            right: old,
            wrong: new,
        } = mutant.change
        else {
            bail!("{}: not a text", mutant.name);
        };
        wrong.push(format!(
            "({:?}, {})",
            mutant.name,
            right.replacen(old, new, 1)
        ));
    }
    let wrong = wrong.join(", ");
    let call = |right: &str| format!("::domain::mutants::text({right}, &[{wrong}])");
    let line = text[..place.start].rfind('\n').map_or(0, |at| at + 1);
    let before = text[line..place.start].trim();
    let Some(declared) = before.strip_suffix(": &str =") else {
        ensure!(
            !before.contains("const") && !before.contains("static"),
            "{}: cannot be switched where it is: {before}",
            mutants[0].name
        );
        let text = call(right);
        return Ok(vec![Edit { place, text }]);
    };
    let name = declared.rsplit(' ').next().unwrap_or_default();
    let uses = words(text, name).filter(|at| !(line..place.start).contains(at));
    let edits: Vec<_> = uses
        .map(|at| Edit {
            place: at..at + name.len(),
            text: call(name),
        })
        .collect();
    ensure!(
        !edits.is_empty(),
        "{}: {name} is not used in its file",
        mutants[0].name
    );
    Ok(edits)
}

/// Where a whole word is.
fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            !text[..*at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
        })
}

/// Writes a wrong version of an included file for each of its mutants, beside
/// it, and lets the switch choose where it is included.
fn include_wrong_versions(
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
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
