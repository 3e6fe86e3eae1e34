//! A connection on a thread of its own, or on its callers' threads.
//!
//! SQLite calls block, for the time of an `fsync` at least, so they stay off
//! the runtime's threads. Steps come in through a bounded channel and run one
//! after the other, some of them in one [`group`], which those that somebody outside
//! waits for join first; each answers through a channel of its own. A caller that goes
//! away does not stop its step: as after any error, it may have been committed.
//!
//! In virtual time the clock would jump while a caller waits for a thread. There
//! a step runs at once where it is asked for, under a lock: nothing is awaited.
//!
//! A step that panics ends the process. Without its thread the store answers nothing
//! any more, while everything else lives on, and nobody would start it again; what is
//! committed is in the file.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction};
use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpoints;
use super::fault::Fault;
use super::group::{self, Manner, Member};
use super::place::Place;

/// Steps that wait for the thread. Callers above that wait for a place.
const QUEUE: usize = 1_024;

enum Step {
    /// In transactions of its own.
    Alone(Box<dyn FnOnce(&mut Connection) + Send>),
    /// In one with others, if they wait at once.
    Together(Box<dyn Member>),
}

/// What a thread that writes to a file does beside its steps.
pub(super) struct Writes {
    /// Looks for the file before and after each commit.
    pub(super) place: Arc<Place>,
    /// Says how long its log is.
    pub(super) checkpoints: Checkpoints,
}

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
        writes: Option<Writes>,
        kept: impl Send + 'static,
    ) -> Result<Self, StoreError> {
        let (steps, mut queue) = mpsc::channel(QUEUE);
        let run = move || {
            run(&mut connection, &mut queue, writes.as_ref());
            drop(connection);
            drop(writes);
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

    /// Runs one that may share its transaction. It is run again where another of them
    /// fails, so it must not use up what it has.
    pub(super) async fn run_together<T, F>(&self, manner: Manner, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let member = Box::new(Asked {
            step,
            manner,
            done: None,
            answer,
        });
        match self {
            Self::Thread(thread) => thread.send(Step::Together(member)).await?,
            Self::Inline(connection) => {
                let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                group::run(&mut connection, member, &mut || None, &|| Ok(()));
            }
        }
        answered.await.map_err(|_dropped| gone())?
    }
}

/// The thread, until nobody asks any more.
fn run(connection: &mut Connection, queue: &mut mpsc::Receiver<Step>, writes: Option<&Writes>) {
    let check = || writes.map_or(Ok(()), |writes| writes.place.check());
    let mut line = Line::default();
    while let Some(step) = line.first(queue) {
        let ends = EndsWithIt;
        match step {
            Step::Alone(step) => step(connection),
            Step::Together(first) => {
                group::run(connection, first, &mut || line.next(queue), &check);
            }
        }
        if let Some(writes) = writes {
            writes.checkpoints.look();
        }
        drop(ends);
    }
}

/// How many are looked at for those that are wanted soon.
const AHEAD: usize = 64;

/// What has come through the channel and has not run, [`AHEAD`] at most.
#[derive(Default)]
struct Line {
    steps: VecDeque<Step>,
    /// Somebody waits longer because another was wanted soon.
    is_owed: bool,
}

impl Line {
    /// What begins: one that is wanted soon, or what has waited for longest, and that at
    /// least every other time; waits for one. `None` when nobody asks any more.
    fn first(&mut self, queue: &mut mpsc::Receiver<Step>) -> Option<Step> {
        self.look(queue);
        if self.steps.is_empty() {
            self.is_owed = false;
            return queue.blocking_recv();
        }
        let at = if self.is_owed { 0 } else { self.wanted() };
        self.is_owed = at > 0;
        self.steps.remove(at)
    }

    /// What joins a group next, if that may share.
    fn next(&mut self, queue: &mut mpsc::Receiver<Step>) -> Option<Box<dyn Member>> {
        self.look(queue);
        let at = self.wanted();
        match self.steps.remove(at)? {
            Step::Together(member) => Some(member),
            alone @ Step::Alone(_) => {
                self.steps.insert(at, alone);
                None
            }
        }
    }

    fn look(&mut self, queue: &mut mpsc::Receiver<Step>) {
        while self.steps.len() < AHEAD
            && let Ok(step) = queue.try_recv()
        {
            self.steps.push_back(step);
        }
    }

    /// Which goes next: one that is wanted soon, before all but a claim that has waited for
    /// longest, whose worker would not send any more; else the one that has waited for
    /// longest.
    fn wanted(&self) -> usize {
        let claims = (self.steps.front()).is_some_and(|step| step.is(Manner::WritesPromptly));
        let soon = (self.steps.iter()).position(|step| step.is(Manner::WritesSoon));
        soon.filter(|_| !claims).unwrap_or(0)
    }
}

impl Step {
    fn is(&self, manner: Manner) -> bool {
        matches!(self, Self::Together(member) if member.manner() == manner)
    }
}

/// A step of a group, and the way to its caller.
struct Asked<T, F> {
    step: F,
    manner: Manner,
    done: Option<Result<T, Fault>>,
    answer: oneshot::Sender<Result<T, Fault>>,
}

impl<T, F> Member for Asked<T, F>
where
    T: Send,
    F: Fn(&Transaction<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, tx: &Transaction<'_>) -> bool {
        // A caller of a step that panics never hears that the thread has ended.
        let ends = EndsWithIt;
        let done = self.done.insert((self.step)(tx)).is_ok();
        drop(ends);
        done
    }

    fn manner(&self) -> Manner {
        self.manner
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let done = match committed {
            Ok(()) => self.done.unwrap_or_else(|| Err(gone())),
            Err(problem) => Err(problem.into()),
        };
        // Nobody may be waiting any more: then the answer is dropped.
        let _ = self.answer.send(done);
    }
}

fn gone() -> Fault {
    StoreError::Unavailable("the store's thread has ended".to_owned()).into()
}

impl Thread {
    async fn run<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let step = Box::new(move |connection: &mut Connection| {
            // Its drop comes before the answer's: a caller of a step that
            // panics never hears that the thread has ended and acts on it.
            let ends = EndsWithIt;
            let done = step(connection);
            drop(ends);
            // Nobody may be waiting any more: then the answer is dropped.
            let _ = answer.send(done);
        });
        self.send(Step::Alone(step)).await?;
        answered.await.map_err(|_dropped| gone())?
    }

    async fn send(&self, step: Step) -> Result<(), Fault> {
        let steps = self.steps.as_ref().ok_or_else(gone)?;
        steps.send(step).await.map_err(|_closed| gone())
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

    /// A step of this manner that says its number.
    fn numbered(
        lane: &mpsc::Sender<Step>,
        number: u32,
        manner: Manner,
    ) -> oneshot::Receiver<Result<u32, Fault>> {
        let (answer, answered) = oneshot::channel();
        let step = move |_: &Transaction<'_>| Ok(number);
        let member = Box::new(Asked {
            step,
            manner,
            done: None,
            answer,
        });
        lane.try_send(Step::Together(member)).ok().unwrap();
        answered
    }

    #[test]
    fn what_is_wanted_soon_goes_before_all_but_a_claim() {
        let (lane, mut queue) = mpsc::channel(QUEUE);
        let mut waiting = Vec::new();
        for (number, manner) in [
            (1, Manner::Writes),
            (2, Manner::Writes),
            (3, Manner::WritesSoon),
            (4, Manner::WritesPromptly),
            (5, Manner::Writes),
        ] {
            waiting.push(numbered(&lane, number, manner));
        }
        let mut line = Line::default();
        let mut order = Vec::new();
        // One that runs, and whoever joins it.
        let Some(Step::Together(first)) = line.first(&mut queue) else {
            panic!("it may share");
        };
        let mut member = Some(first);
        while let Some(mut one) = member.take() {
            let mut connection = Connection::open_in_memory().unwrap();
            assert!(one.run(&connection.transaction().unwrap()));
            one.answer(Ok(()));
            for answered in &mut waiting {
                order.extend(answered.try_recv().ok().map(Result::unwrap));
            }
            member = line.next(&mut queue);
        }
        assert_eq!(order, [3, 1, 2, 4, 5]);
        for (number, manner) in [(6, Manner::WritesPromptly), (7, Manner::WritesSoon)] {
            waiting.push(numbered(&lane, number, manner));
        }
        assert!(
            line.next(&mut queue)
                .is_some_and(|one| one.manner() == Manner::WritesPromptly)
        );
    }

    /// What is wanted soon may never end: those before it have every other turn.
    #[test]
    fn what_is_wanted_soon_begins_every_other_time() {
        let (lane, mut queue) = mpsc::channel(QUEUE);
        let mut line = Line::default();
        for number in 1..=2 {
            drop(numbered(&lane, number, Manner::Writes));
        }
        for number in 3..=6 {
            drop(numbered(&lane, number, Manner::WritesSoon));
        }
        let begins_soon: Vec<bool> = (0..6)
            .map_while(|_| line.first(&mut queue))
            .map(|step| step.is(Manner::WritesSoon))
            .collect();
        assert_eq!(begins_soon, [true, false, true, false, true, true]);
    }

    /// Set for the process that panics.
    const PANICS: &str = "PACELINE_TEST_PANICKING_STEP";

    #[tokio::test]
    async fn a_step_that_panics_ends_the_process() {
        if let Some(how) = std::env::var_os(PANICS) {
            let connection = Connection::open_in_memory().unwrap();
            let lane = Lane::spawn("sqlite-test", connection, None, ()).unwrap();
            let answer = match how.to_str() {
                Some("together") => {
                    let step = |_: &Transaction<'_>| -> Result<(), Fault> { panic!("a bug") };
                    lane.run_together(Manner::Writes, step).await
                }
                _ => lane.run(|_| -> Result<(), Fault> { panic!("a bug") }).await,
            };
            panic!("still here, with {answer:?}");
        }
        let name = "sqlite::thread::tests::a_step_that_panics_ends_the_process";
        for how in ["alone", "together"] {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--nocapture"])
                .env(PANICS, how)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&child.stderr);
            assert!(said.contains("a bug"), "{said}");
            assert!(!said.contains("still here"), "{said}");
            // Not the code of a test that fails: a signal.
            assert_eq!(child.status.code(), None);
        }
    }
}
