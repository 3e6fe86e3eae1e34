//! Mutants of files that Rust includes as text: Lua, and migrations.
//!
//! Each mutant's wrong version of the whole file is put beside it, and the
//! switch chooses between them.

use anyhow::{Context, Result, bail, ensure};

use super::{Files, find};
use crate::mutant::{Change, Mutant};

/// Migrations are included by constants, which cannot choose, or by a macro.
/// Their text is chosen where they are applied.
struct Applied {
    /// The folder of the migrations.
    folder: &'static str,
    /// The file that applies them.
    by: &'static str,
    /// How.
    call: &'static str,
    /// The same with `CHOSEN` in the place of `RIGHT`, and a place for the next
    /// file's choice.
    instead: &'static str,
    /// What the choice for a further file puts there, with a place again.
    further: &'static str,
}

/// Where the choice for a further file of the same folder goes.
const FURTHER: &str = "/* further */";

const APPLIED: [Applied; 2] = [
    Applied {
        folder: "migrations/sqlite/",
        by: "crates/adapters/src/sqlite/migrate.rs",
        call: "tx.execute_batch(migration)",
        instead: "tx.execute_batch(if *migration == RIGHT { CHOSEN } /* further */ else { migration })",
        further: "else if *migration == RIGHT { CHOSEN } /* further */",
    },
    Applied {
        folder: "migrations/postgres/",
        by: "crates/adapters/src/postgres/migrate.rs",
        call: "MIGRATOR.run(",
        instead: "{
            let mut migrations: Vec<_> = MIGRATOR.iter().cloned().collect();
            for migration in &mut migrations {
                if migration.sql.as_str() == RIGHT {
                    migration.sql = sqlx::SqlSafeStr::into_sql_str(CHOSEN);
                } /* further */
            }
            Migrator::with_migrations(migrations)
        }.run(",
        further: "else if migration.sql.as_str() == RIGHT {
                    migration.sql = sqlx::SqlSafeStr::into_sql_str(CHOSEN);
                } /* further */",
    },
];

/// Puts the mutants of one file into the copy.
pub(super) fn include_wrong_versions(
    files: &mut Files,
    file: &str,
    text: &str,
    mutants: &[&Mutant],
) -> Result<()> {
    for mutant in mutants {
        let Change::Text { wrong, .. } = mutant.change else {
            bail!("{}: not a text", mutant.name);
        };
        let place = find(text, mutant)?;
        let mut version = text.to_owned();
        version.replace_range(place, wrong);
        files.insert(format!("{file}.{}", mutant.name), version);
    }
    if let Some(applied) = APPLIED.iter().find(|one| file.starts_with(one.folder)) {
        let up = "../".repeat(applied.by.matches('/').count());
        let (right, chosen) = choice(&format!("{up}{file}"), mutants);
        let code = files.get_mut(applied.by).context(applied.by)?;
        let (place, instead) = match code.contains(FURTHER) {
            true => (FURTHER, applied.further),
            false => (applied.call, applied.instead),
        };
        let places = code.matches(place).count();
        ensure!(places == 1, "{}: {place} {places} times", applied.by);
        let instead = instead.replace("RIGHT", &right);
        *code = code.replace(place, &instead.replace("CHOSEN", &chosen));
        return Ok(());
    }
    let includers: Vec<(String, String)> = includes(files)
        .filter(|(_, included, _)| included == file)
        .map(|(includer, _, written)| (includer, written))
        .collect();
    ensure!(!includers.is_empty(), "nothing includes {file}");
    for (includer, written) in includers {
        let (right, chosen) = choice(&written, mutants);
        let code = files.get_mut(&includer).context("it includes")?;
        *code = code.replace(&right, &chosen);
    }
    Ok(())
}

/// The expression that includes a file, and the one that chooses a version.
fn choice(path: &str, mutants: &[&Mutant]) -> (String, String) {
    let wrong: Vec<_> = (mutants.iter())
        .map(|mutant| format!("({0:?}, include_str!(\"{path}.{0}\"))", mutant.name))
        .collect();
    let right = format!("include_str!(\"{path}\")");
    let chosen = format!("::domain::mutants::text({right}, &[{}])", wrong.join(", "));
    (right, chosen)
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
