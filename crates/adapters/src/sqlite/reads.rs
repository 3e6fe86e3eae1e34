//! Reads of one snapshot, beside the writer, and how long each may take.
//!
//! One thread answers all that one lane is asked, so a read that takes minutes would
//! hold up everybody's.

use std::sync::Arc;
use std::time::Duration;

use engine::ports::wanted;
use rusqlite::{Connection, Transaction};
use tokio::time::Instant;

use super::SqliteStore;
use super::fault::Fault;
use super::thread::Lane;

/// What a statement has on Postgres (`statement_timeout`), a read has here, which is a few.
const READ: Duration = Duration::from_secs(5);

/// One that is many of them, such as a round of the survey.
const COUNT: Duration = Duration::from_secs(20);

/// What counting all that waits has on Postgres.
const FULL_COUNT: Duration = Duration::from_secs(60);

/// The clock is looked at after so many instructions of SQLite's machine: every 100 µs
/// or so.
const LOOKS: i32 = 10_000;

impl SqliteStore {
    /// A read that may take its time.
    pub(super) async fn read<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.snapshot_on(&self.reader, READ, step).await
    }

    /// The same for what reads many rows.
    pub(super) async fn count<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.snapshot_on(&self.counter, COUNT, step).await
    }

    /// The same for what counts all that waits.
    pub(super) async fn count_all<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.snapshot_on(&self.counter, FULL_COUNT, step).await
    }

    async fn snapshot_on<T, F>(&self, lane: &Lane, bound: Duration, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        wanted::check()?;
        let lines = self.is_one.then(|| Arc::clone(&self.lines));
        let step = move |connection: &mut Connection| {
            let tx = connection.transaction()?;
            lines.map_or(Ok(()), |lines| lines.catch_up(&tx))?;
            let bounded = Bounded::by(&tx, bound)?;
            let answer = step(&tx)?;
            drop(bounded);
            // There is nothing to take back, and a rollback would be taken for one.
            tx.commit()?;
            Ok(answer)
        };
        lane.run(step).await
    }
}

/// What is read on a connection is interrupted after a while, until this is dropped.
struct Bounded<'a>(&'a Connection);

impl<'a> Bounded<'a> {
    fn by(connection: &'a Connection, bound: Duration) -> Result<Self, Fault> {
        let end = Instant::now() + bound;
        connection.progress_handler(LOOKS, Some(move || Instant::now() > end))?;
        Ok(Self(connection))
    }
}

impl Drop for Bounded<'_> {
    fn drop(&mut self) {
        // It refuses only connections that are not ours to close.
        let _ = self.0.progress_handler(0, None::<fn() -> bool>);
    }
}

#[cfg(test)]
mod tests {
    use engine::ports::StoreError;

    use super::super::system_clock;
    use super::*;

    /// One that has no end.
    fn endless(tx: &Transaction<'_>) -> Result<i64, Fault> {
        let sql = "with recursive n (n) as (select 1 union all select n + 1 from n)
            select count(*) from n";
        Ok(tx.query_row(sql, [], |row| row.get(0))?)
    }

    #[tokio::test]
    async fn a_read_that_takes_too_long_ends_and_the_next_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("p.db"), system_clock()).unwrap();
        let bound = Duration::from_millis(50);
        let refused = store.snapshot_on(&store.reader, bound, endless).await;
        let StoreError::Unavailable(why) = refused.unwrap_err().into() else {
            panic!("the file is sound, and so is the question");
        };
        assert!(why.contains("took too long"), "{why}");

        let two =
            |tx: &Transaction<'_>| Ok(tx.query_row("select 2", [], |row| row.get::<_, i64>(0))?);
        assert_eq!(
            store.snapshot_on(&store.reader, bound, two).await.unwrap(),
            2
        );
    }
}
