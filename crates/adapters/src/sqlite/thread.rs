//! A connection on a thread of its own, or on its callers' threads.
//!
//! SQLite calls block, for the time of an `fsync` at least, so they stay off
//! the runtime's threads. Steps come in through a bounded channel and run one
//! after the other, those that wait at once in one [`group`]; each answers through a
//! channel of its own. A caller that goes away does not stop its step: as after any
//! error, it may have been committed.
//!
//! In virtual time the clock would jump while a caller waits for a thread. There
//! a step runs at once where it is asked for, under a lock: nothing is awaited.
//!
//! A step that panics ends the process. Without its thread the store answers nothing
//! any more, while everything else lives on, and nobody would start it again; what is
//! committed is in the file.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::fault::Fault;
use super::group::{self, Answer, Check, Step, in_savepoint};

/// Steps that wait for the thread. Callers above that wait for a place.
const QUEUE: usize = 1_024;

/// The way to the connection.
pub(super) enum Lane {
    Thread(Thread),
    Inline(Arc<Mutex<Connection>>),
}

/// Dropping it ends the thread once what is queued has run, and waits for that.
pub(super) struct Thread {
    steps: Option<mpsc::Sender<Step>>,
    handle: Option<JoinHandle<()>>,
}

impl Lane {
    /// Starts the thread. `check` is asked before and after each commit, `after` is called
    /// when its steps are answered. `kept` is dropped last, when the connection is closed.
    pub(super) fn spawn(
        name: &str,
        mut connection: Connection,
        check: Box<Check>,
        after: impl Fn() + Send + 'static,
        kept: impl Send + 'static,
    ) -> Result<Self, StoreError> {
        let (steps, mut queue) = mpsc::channel::<Step>(QUEUE);
        let run = move || {
            while let Some(first) = queue.blocking_recv() {
                let ends = EndsWithIt;
                group::run(&mut connection, first, || queue.try_recv().ok(), &*check);
                after();
                drop(ends);
            }
            drop(connection);
            drop(after);
            drop(kept);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        let handle = thread.map_err(|error| {
            StoreError::Unavailable(format!("cannot start the thread {name}: {error}"))
        })?;
        Ok(Self::Thread(Thread {
            steps: Some(steps),
            handle: Some(handle),
        }))
    }

    /// Runs one step that writes, under the write lock.
    pub(super) async fn write<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.run((true, false), |tx| in_savepoint(tx, step)).await
    }

    /// The same for one whose answer is worth less the longer it takes.
    pub(super) async fn write_promptly<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.run((true, true), |tx| in_savepoint(tx, step)).await
    }

    /// Runs one that only reads, of one snapshot: that of the group that it is in.
    pub(super) async fn read<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.run((false, false), step).await
    }

    async fn run<T, F>(&self, (writes, is_prompt): (bool, bool), step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let run = move |tx: Option<&Transaction<'_>>| -> Answer {
            // Its drop comes before the answer's: a caller of a step that
            // panics never hears that the thread has ended and acts on it.
            let ends = EndsWithIt;
            let done = tx.map(step);
            drop(ends);
            Box::new(move |committed: Result<(), StoreError>| {
                let done = match (committed, done) {
                    (Ok(()), done) => done.unwrap_or_else(|| Err(gone())),
                    // What went wrong with it may be why nothing was committed.
                    (Err(_), Some(Err(own))) => Err(own),
                    (Err(problem), _) => Err(problem.into()),
                };
                // Nobody may be waiting any more: then the answer is dropped.
                let _ = answer.send(done);
            })
        };
        let run = Box::new(run);
        let step = Step {
            writes,
            is_prompt,
            run,
        };
        match self {
            Self::Thread(thread) => {
                let steps = thread.steps.as_ref().ok_or_else(gone)?;
                steps.send(step).await.map_err(|_closed| gone())?;
            }
            Self::Inline(connection) => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                group::run(&mut connection, step, || None, &|| Ok(()));
            }
        }
        answered.await.map_err(|_dropped| gone())?
    }
}

fn gone() -> Fault {
    StoreError::Unavailable("the store's thread has ended".to_owned()).into()
}

/// Dropped by a panic, it ends the process.
#[must_use]
struct EndsWithIt;

impl Drop for EndsWithIt {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic has said why.
            tracing::error!("the store's thread has panicked: the process ends, start it again");
            std::process::abort();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.handle.take() {
            // Whoever opens the file next finds everything in it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the process that panics.
    const PANICS: &str = "PACELINE_TEST_PANICKING_STEP";

    #[tokio::test]
    async fn a_step_that_panics_ends_the_process() {
        if std::env::var_os(PANICS).is_some() {
            let connection = Connection::open_in_memory().unwrap();
            let check = Box::new(|| Ok(()));
            let lane = Lane::spawn("sqlite-test", connection, check, || {}, ()).unwrap();
            let answer = lane
                .write(|_| -> Result<(), Fault> { panic!("a bug") })
                .await;
            panic!("still here, with {answer:?}");
        }
        let name = "sqlite::thread::tests::a_step_that_panics_ends_the_process";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert!(said.contains("a bug"), "{said}");
        assert!(!said.contains("still here"), "{said}");
        // Not the code of a test that fails: a signal.
        assert_eq!(child.status.code(), None);
    }
}
