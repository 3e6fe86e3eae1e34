//! A connection on a thread of its own, or on its callers' threads.
//!
//! SQLite calls block, for the time of an `fsync` at least, so they stay off
//! the runtime's threads. Steps come in through a bounded channel and run one
//! after the other; each answers through a channel of its own. A caller that
//! goes away does not stop its step: as after any error, it may have been
//! committed.
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
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::fault::Fault;

/// Steps that wait for the thread. Callers above that wait for a place.
const QUEUE: usize = 1_024;

type Step = Box<dyn FnOnce(&mut Connection) + Send>;

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
    /// Starts the thread. `kept` is dropped after the connection is closed.
    pub(super) fn spawn(
        name: &str,
        mut connection: Connection,
        kept: impl Send + 'static,
    ) -> Result<Self, StoreError> {
        let (steps, mut queue) = mpsc::channel::<Step>(QUEUE);
        let run = move || {
            while let Some(step) = queue.blocking_recv() {
                step(&mut connection);
            }
            drop(connection);
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

    /// Runs one step.
    pub(super) async fn run<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, Fault> + Send + 'static,
    {
        match self {
            Self::Thread(thread) => thread.run(step).await,
            Self::Inline(connection) => {
                step(&mut connection.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}

impl Thread {
    async fn run<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, Fault> + Send + 'static,
    {
        let gone = || {
            Fault::from(StoreError::Unavailable(
                "the store's thread has ended".to_owned(),
            ))
        };
        let (answer, answered) = oneshot::channel();
        let step: Step = Box::new(move |connection| {
            // Its drop comes before the answer's: a caller of a step that
            // panics never hears that the thread has ended and acts on it.
            let ends = EndsWithIt;
            let done = step(connection);
            drop(ends);
            // Nobody may be waiting any more: then the answer is dropped.
            let _ = answer.send(done);
        });
        let steps = self.steps.as_ref().ok_or_else(gone)?;
        steps.send(step).await.map_err(|_closed| gone())?;
        answered.await.map_err(|_dropped| gone())?
    }
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
            let lane = Lane::spawn("sqlite-test", connection, ()).unwrap();
            let answer = lane.run(|_| -> Result<(), Fault> { panic!("a bug") }).await;
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
