//! Inputs as files.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// One file of a corpus.
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// All files of the folder, in the order of their names, so that runs repeat.
pub(crate) fn read(folder: &Path) -> Result<Vec<File>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(OsString::from).unwrap_or_default();
        files.push(File {
            name: name.to_string_lossy().into_owned(),
            bytes: fs::read(&path).with_context(|| format!("read {}", path.display()))?,
        });
    }
    ensure!(!files.is_empty(), "{} is empty", folder.display());
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Writes the input where it is found after the run.
pub(crate) fn save(target: &str, input: &[u8]) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(file_name(&format!("{target}-"), input));
    fs::write(&path, input).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// With `FUZZ_KEEP=FOLDER`, writes the inputs that showed something new to
/// `FOLDER/TARGET`: from there the best go into the corpus.
pub(crate) fn keep(target: &str, inputs: &[Vec<u8>]) -> Result<()> {
    let Some(folder) = std::env::var_os("FUZZ_KEEP") else {
        return Ok(());
    };
    let folder = Path::new(&folder).join(target);
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    for input in inputs {
        fs::write(folder.join(file_name("", input)), input)?;
    }
    Ok(())
}

fn file_name(prefix: &str, input: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    format!("{prefix}{:016x}", hasher.finish())
}
