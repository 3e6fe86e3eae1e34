//! Checkpoints beside the writer.
//!
//! SQLite takes what is in its log over into the file every thousand pages, within the
//! commit that has filled the last of them: that commit, and all steps that wait for it,
//! would wait for two more syncs. So a thread with a connection of its own does it, and the
//! writer says only how long its log is.
//!
//! A log begins anew with the next commit once all of it has been taken over, which that
//! thread does not get to see while the writer is busy. So where the log has grown to
//! [`MOST_PAGES`] the writer waits for what little is left, and that is the bound of the
//! log, unless somebody reads an old snapshot for as long.

use std::cell::Cell;
use std::ffi::c_int;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use engine::ports::StoreError;
use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::fault::Fault;

/// What SQLite would wait for by itself.
const MANY_PAGES: c_int = 1_000;

/// 64 MiB.
pub(super) const MOST_PAGES: c_int = 16_384;

/// What is left of a log's file when it begins anew, in bytes: as much as it may fill.
const KEPT_BYTES: i64 = 64 << 20;

thread_local! {
    /// How long the log is after this thread's last commit.
    static LOG_PAGES: Cell<c_int> = const { Cell::new(0) };
}

/// Who waits for the checkpoint, if anybody does: dropped when it is done.
type Asked = Option<Sender<()>>;

/// The thread. Dropping it ends it, once what it does is done.
pub(super) struct Checkpoints {
    many: Option<SyncSender<Asked>>,
    /// How long the log was when the thread was told of it last.
    told: AtomicI32,
    handle: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Of the file that `writer`, which does none of its own from then on, writes to on
    /// whichever thread calls [`Self::look`].
    pub(super) fn spawn(path: &Path, writer: &Connection) -> Result<Self, StoreError> {
        let own = super::connect(path, rusqlite::OpenFlags::default())?;
        let limit = |connection: &Connection| {
            connection.pragma_update(None, "journal_size_limit", KEPT_BYTES)
        };
        limit(writer).and(limit(&own)).map_err(Fault::from)?;
        writer.wal_hook(Some(after_commit));
        let (many, told) = sync_channel(1);
        let thread = std::thread::Builder::new().name("sqlite-checkpoint".to_owned());
        let handle = thread.spawn(move || run(&own, &told)).map_err(|error| {
            StoreError::Unavailable(format!("cannot start the checkpoints' thread: {error}"))
        })?;
        Ok(Self {
            many: Some(many),
            told: AtomicI32::new(0),
            handle: Some(handle),
        })
    }

    /// To be called by the writer's thread after each commit, and again at will.
    pub(super) fn look(&self) {
        let (pages, Some(many)) = (LOG_PAGES.take(), &self.many) else {
            return;
        };
        // Shorter: it has begun anew.
        let told = self.told.load(Relaxed);
        let new = if pages < told { pages } else { pages - told };
        if pages >= MOST_PAGES {
            let (asked, done) = channel();
            let _ = many.send(Some(asked));
            let _ = done.recv();
            self.told.store(pages, Relaxed);
        } else if new >= MANY_PAGES {
            // Full: it has been told and has not begun yet.
            let _ = many.try_send(None);
            self.told.store(pages, Relaxed);
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.many = None;
        if let Some(thread) = self.handle.take() {
            let _ = thread.join();
        }
    }
}

/// Instead of SQLite's own hook, which does the checkpoint.
#[expect(clippy::unnecessary_wraps, reason = "the hook's signature")]
fn after_commit(_log: &Wal, pages: c_int) -> rusqlite::Result<()> {
    LOG_PAGES.set(pages);
    Ok(())
}

fn run(own: &Connection, told: &Receiver<Asked>) {
    while let Ok(asked) = told.recv() {
        let done = own.query_row("pragma wal_checkpoint(passive)", [], |row| {
            row.get::<_, i64>(0)
        });
        match done {
            Ok(0) => {}
            // Another connection of this file does one, which is nobody of ours.
            Ok(_) => tracing::debug!("another checkpoint is under way"),
            Err(error) if asked.is_some() => {
                tracing::warn!(%error, "no checkpoint: the log beside the database grows");
            }
            Err(error) => tracing::debug!(%error, "no checkpoint"),
        }
        drop(asked);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PAGE: u64 = 4_096;

    struct Written {
        folder: tempfile::TempDir,
        writer: Connection,
        checkpoints: Checkpoints,
    }

    impl Written {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("log.db");
            let writer = Connection::open(&path).unwrap();
            super::super::configure(&writer).unwrap();
            writer.pragma_update(None, "synchronous", "off").unwrap();
            writer.execute("create table rows (blob)", []).unwrap();
            let checkpoints = Checkpoints::spawn(&path, &writer).unwrap();
            Self {
                folder,
                writer,
                checkpoints,
            }
        }

        /// Answers how long the log is.
        fn write(&self, pages: u64) -> c_int {
            let sql = "insert into rows values (zeroblob(?1))";
            let bytes = i64::try_from(pages * PAGE).unwrap();
            self.writer.execute(sql, [bytes]).unwrap();
            let log = LOG_PAGES.get();
            self.checkpoints.look();
            log
        }

        fn bytes(&self, name: &str) -> u64 {
            self.folder.path().join(name).metadata().unwrap().len()
        }
    }

    #[tokio::test]
    async fn the_thread_takes_over_what_the_writer_has_written() {
        let written = Written::new();
        assert_eq!(written.write(900) / 100, 9, "it is not many yet");
        assert!(written.bytes("log.db") < 100 * PAGE);
        written.write(200);
        let taken_over = async {
            while written.bytes("log.db") < 1_100 * PAGE {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let patience = Duration::from_secs(120);
        tokio::time::timeout(patience, taken_over).await.unwrap();
    }

    #[test]
    fn the_log_is_bounded_however_busy_the_writer_is() {
        let written = Written::new();
        let most = u64::try_from(MOST_PAGES).unwrap();
        for _ in 0..100 {
            written.write(most / 20);
        }
        // The last transaction may lie above the bound; a frame has 24 bytes beside its page.
        let bound = (most + most / 10) * (PAGE + 24);
        let log = written.bytes("log.db-wal");
        assert!(log <= bound, "{log} bytes, more than {bound}");
    }

    #[test]
    fn a_log_that_is_read_for_long_begins_anew_afterwards() {
        let written = Written::new();
        let reader = Connection::open(written.folder.path().join("log.db")).unwrap();
        reader.execute("begin", []).unwrap();
        let count = "select count(*) from rows";
        let seen = || {
            reader
                .query_row(count, [], |row| row.get::<_, i64>(0))
                .unwrap()
        };
        assert_eq!(seen(), 0);
        let most = u64::try_from(MOST_PAGES).unwrap();
        for _ in 0..30 {
            written.write(most / 20);
        }
        assert_eq!(seen(), 0, "its snapshot is kept");
        assert!(written.bytes("log.db-wal") > most * PAGE);
        reader.execute("commit", []).unwrap();
        let anew = (0..30).any(|_| written.write(most / 20) < MOST_PAGES);
        assert!(anew, "the log goes on for ever");
    }
}
