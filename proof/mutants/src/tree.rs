//! The workspace's files, and the copy of them that is built.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::apply::Files;

/// Cargo puts this into its target folders.
const CACHE: &str = "CACHEDIR.TAG";

/// What marks the copy's packages: with another version, what cargo builds of
/// them has other names, so that the copy can share the target folder, and
/// all third-party crates in it, without ever being taken for the original.
const MARK: &str = "+mutants";

/// Reads all files that are text. Leaves out what is hidden, and cargo's.
pub(crate) fn read(root: &Path) -> Result<Files> {
    let mut files = Files::new();
    read_folder(root, "", &mut files)?;
    Ok(files)
}

fn read_folder(folder: &Path, prefix: &str, files: &mut Files) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type()?;
        if kind.is_dir() && !entry.path().join(CACHE).exists() {
            read_folder(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            match fs::read_to_string(entry.path()) {
                Ok(text) => drop(files.insert(path, text)),
                Err(error) if error.kind() == ErrorKind::InvalidData => {}
                Err(error) => return Err(error).context(path),
            }
        }
    }
    Ok(())
}

/// Marks the packages of the workspace, in the manifest and in the lock file.
pub(crate) fn mark(files: &mut Files) -> Result<()> {
    let manifest = files.get_mut("Cargo.toml").context("Cargo.toml")?;
    let section = "[workspace.package]\nversion = \"";
    let at = manifest
        .find(section)
        .context("[workspace.package] begins with a version")?;
    let from = at + section.len();
    let end = from + manifest[from..].find('"').context("a version")?;
    let version = manifest[from..end].to_owned();
    manifest.insert_str(end, MARK);

    let lock = files.get_mut("Cargo.lock").context("Cargo.lock")?;
    let line = format!("\nversion = \"{version}\"\n");
    let marked = format!("\nversion = \"{version}{MARK}\"\n");
    let packages: Vec<String> = (lock.split("\n\n"))
        .map(|package| match package.contains("\nsource = ") {
            true => package.to_owned(),
            false => package.replacen(&line, &marked, 1),
        })
        .collect();
    let all = packages.join("\n\n");
    ensure!(*lock != all, "Cargo.lock: no package of version {version}");
    *lock = all;
    Ok(())
}

/// Makes the folder hold these files and no others. One that is the same
/// already is left alone, so that cargo sees only what has changed.
pub(crate) fn write(files: &Files, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let old: BTreeSet<String> = read(folder)?.into_keys().collect();
    for path in old.iter().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(folder.join(path)).with_context(|| path.clone())?;
    }
    for (path, text) in files {
        let path = folder.join(path);
        if fs::read_to_string(&path).is_ok_and(|old| old == *text) {
            continue;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
