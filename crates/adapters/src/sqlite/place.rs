//! Whether the files that are open are still those at their paths.
//!
//! A file that is deleted, moved or replaced stays open, and takes whatever is
//! written: all of it is gone once the process ends, and the next one makes an
//! empty file. So each write looks before it begins, that nothing is written there,
//! and after its commit, that nothing is answered that the path does not hold. A
//! look costs two calls of the system beside a sync of the disk. It is for good:
//! what was at the path in between may have been seen by others.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use engine::ports::StoreError;

/// The files of one open database.
pub(super) struct Place {
    /// The database, and the log beside it that has its newest commits.
    files: Vec<(PathBuf, Identity)>,
    /// What has become of them, once it was seen.
    lost: OnceLock<String>,
}

impl Place {
    /// Of a database that has just been opened and written to, so that its log is
    /// there.
    pub(super) fn of(path: &Path) -> Result<Self, StoreError> {
        let cannot = |problem: io::Error| {
            StoreError::Unavailable(format!("cannot look at {}: {problem}", path.display()))
        };
        // The log is beside the file itself, and not beside a link to it.
        let mut log = OsString::from(fs::canonicalize(path).map_err(cannot)?);
        log.push("-wal");
        let mut files = Vec::new();
        for path in [
            std::path::absolute(path).map_err(cannot)?,
            PathBuf::from(log),
        ] {
            let found = fs::metadata(&path).map_err(cannot)?;
            files.push((path, identity(&found)));
        }
        Ok(Self {
            files,
            lost: OnceLock::new(),
        })
    }

    /// An error from the moment on when one of them was seen to be gone. The first
    /// is told in the log.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if let Some(lost) = self.lost.get() {
            return Err(StoreError::Lost(lost.clone()));
        }
        let gone = |(path, identity): &(PathBuf, Identity)| {
            let what = what_became(fs::metadata(path), *identity)?;
            Some(format!("{} {what} while it was open", path.display()))
        };
        let Some(lost) = self.files.iter().find_map(gone) else {
            return Ok(());
        };
        if self.lost.set(lost.clone()).is_ok() {
            tracing::error!(
                "{lost}: nothing is accepted or sent any more. Put the file back where it was \
                 (or a backup of it) and start Paceline again; if there is none, a start makes \
                 a new and empty database"
            );
        }
        Err(StoreError::Lost(lost))
    }
}

/// `None` while it is the same file, or while nobody can say: a folder that cannot be
/// read for a moment is not a file that is gone.
fn what_became(found: io::Result<Metadata>, identity: Identity) -> Option<&'static str> {
    match found {
        Ok(found) if self::identity(&found) == identity => None,
        Ok(_) => Some("was replaced by another file"),
        Err(problem) => matches!(
            problem.kind(),
            ErrorKind::NotFound | ErrorKind::NotADirectory
        )
        .then_some("was deleted or moved away"),
    }
}

/// The device and the file's number there, which nobody else has while it is open.
#[cfg(unix)]
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(found: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (found.dev(), found.ino())
}

/// Elsewhere an open file cannot be deleted or replaced.
#[cfg(not(unix))]
type Identity = ();

#[cfg(not(unix))]
fn identity(_found: &Metadata) -> Identity {}
