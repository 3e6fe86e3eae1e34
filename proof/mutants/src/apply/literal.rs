//! Mutants of string literals: SQL, above all.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

use super::Edit;
use crate::mutant::{Change, Mutant};

/// The string literal that holds this place. SQL has no double quotes here.
pub(super) fn literal_around(text: &str, place: &Range<usize>) -> Option<(usize, usize)> {
    let start = text[..place.start].rfind('"')?;
    let end = place.end + text[place.end..].find('"')? + 1;
    Some((start, end))
}

/// A literal that is an argument is switched in its place; one that is a
/// constant is switched wherever the constant is used.
pub(super) fn switched_literal(
    text: &str,
    place: Range<usize>,
    mutants: &[&Mutant],
) -> Result<Vec<Edit>> {
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
