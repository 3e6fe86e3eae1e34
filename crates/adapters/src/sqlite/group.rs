//! Steps that share a commit.
//!
//! What a commit costs is its sync of the disk, and a delivery takes four steps. So the
//! writer takes what waits for it, one step after the other, each in a savepoint of its
//! own, and commits them together: the sync is paid once. Each caller is answered after
//! that commit and not before, so an answer means what it did before: it is on the disk.
//!
//! Steps are as serial as they were: each sees all before it, and the clock is read under
//! the write lock. A step that fails takes back its own savepoint and nothing else. Where
//! the commit fails, or SQLite gives up the whole transaction (a full disk, a failing
//! one), all steps of the group have failed: none of them has been answered yet.

use std::time::Duration;

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::time::Instant;

use super::fault::Fault;

/// The most steps that share a commit.
const MOST_STEPS: usize = 64;

/// No step is added to a group that has run for so long: whoever came first waits for
/// the last.
const MOST_TIME: Duration = Duration::from_millis(2);

/// One step, and how its caller is answered.
pub(super) struct Step {
    /// Whether it writes.
    pub(super) writes: bool,
    /// What it answers is worth less the longer that takes: it is the last of its group.
    pub(super) is_prompt: bool,
    pub(super) run: Box<Run>,
}

/// In the transaction, if one could be begun.
type Run = dyn FnOnce(Option<&Transaction<'_>>) -> Answer + Send;

/// Told whether what was done is on the disk.
pub(super) type Answer = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Whether the file is still where it was opened.
pub(super) type Check = dyn Fn() -> Result<(), StoreError> + Send + Sync;

/// Runs `first`, and what `next` has beside it, as one transaction. No step comes after
/// one whose answer is waited for with a clock running: see [`Step::is_prompt`].
pub(super) fn run(
    connection: &mut Connection,
    first: Step,
    mut next: impl FnMut() -> Option<Step>,
    check: &Check,
) {
    let mut answers = Vec::new();
    let committed = attempt(connection, first, &mut next, check, &mut answers);
    for answer in answers {
        answer(committed.clone());
    }
}

fn attempt(
    connection: &mut Connection,
    first: Step,
    next: &mut impl FnMut() -> Option<Step>,
    check: &Check,
    answers: &mut Vec<Answer>,
) -> Result<(), StoreError> {
    // What only reads need not wait for a shell that writes.
    let writes = first.writes;
    let behavior = match writes {
        true => TransactionBehavior::Immediate,
        false => TransactionBehavior::Deferred,
    };
    let there = if writes { check() } else { Ok(()) };
    let begun = there.and_then(|()| {
        let tx = connection.transaction_with_behavior(behavior);
        tx.map_err(|error| Fault::from(error).into())
    });
    let tx = match begun {
        Ok(tx) => tx,
        Err(problem) => {
            answers.push((first.run)(None));
            return Err(problem);
        }
    };
    let began = Instant::now();
    let mut step = first;
    loop {
        let last = step.is_prompt;
        answers.push((step.run)(Some(&tx)));
        if tx.is_autocommit() {
            let problem = "SQLite has given up the transaction";
            return Err(StoreError::Unavailable(problem.to_owned()));
        }
        let full = answers.len() >= MOST_STEPS || began.elapsed() >= MOST_TIME;
        // One that writes would have to wait for the lock with another's snapshot.
        if !writes || full || last {
            break;
        }
        match next() {
            Some(another) => step = another,
            None => break,
        }
    }
    tx.commit().map_err(Fault::from)?;
    match writes {
        true => check(),
        false => Ok(()),
    }
}

/// Runs a step so that a failing one takes back what it did.
pub(super) fn in_savepoint<T>(
    tx: &Transaction<'_>,
    step: impl FnOnce(&Transaction<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    execute(tx, "savepoint step")?;
    let done = step(tx);
    if tx.is_autocommit() {
        return done;
    }
    let back = match done {
        Ok(_) => Ok(()),
        Err(_) => execute(tx, "rollback to step"),
    };
    if let Err(problem) = back.and_then(|()| execute(tx, "release step")) {
        // Half a step must not be committed: the group goes back as a whole.
        let _ = execute(tx, "rollback");
        return done.and(Err(problem));
    }
    done
}

fn execute(tx: &Transaction<'_>, sql: &str) -> Result<(), Fault> {
    tx.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A table whose rows must have a parent by the commit.
    const SCHEMA: &str = "
        create table parents (id integer primary key);
        create table rows (
            id integer primary key,
            parent integer references parents (id) deferrable initially deferred
        )";

    /// The row of a step that is prompt.
    const PROMPT: i64 = 99;

    type Said = Arc<Mutex<Vec<(i64, bool)>>>;

    fn open(path: &Path) -> Connection {
        let connection = Connection::open(path).unwrap();
        connection
            .pragma_update(None, "journal_mode", "wal")
            .unwrap();
        connection
            .pragma_update(None, "foreign_keys", true)
            .unwrap();
        connection
    }

    fn new_file() -> (tempfile::TempDir, Connection, Connection) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("group.db");
        let writer = open(&path);
        writer.execute_batch(SCHEMA).unwrap();
        let reader = open(&path);
        (folder, writer, reader)
    }

    fn count(connection: &Connection) -> i64 {
        let sql = "select count(*) from rows";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Inserts a row, and fails then if it is to; says how it was answered.
    fn step(id: i64, parent: Option<i64>, fails: bool, said: &Said) -> Step {
        let said = said.clone();
        Step {
            writes: true,
            is_prompt: id == PROMPT,
            run: Box::new(move |tx| {
                let done = tx.map(|tx| {
                    in_savepoint(tx, |tx| {
                        let sql = "insert into rows (id, parent) values (?1, ?2)";
                        tx.execute(sql, (id, parent))?;
                        match fails {
                            true => Err(StoreError::Refused("it said so".to_owned()).into()),
                            false => Ok(()),
                        }
                    })
                });
                Box::new(move |committed| {
                    let done = committed.is_ok() && done.is_some_and(|done| done.is_ok());
                    said.lock().unwrap().push((id, done));
                })
            }),
        }
    }

    #[test]
    fn steps_that_wait_share_a_commit_and_are_answered_after_it() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(3, None, false, &said), step(2, None, false, &said)];
        let seen = Arc::new(Mutex::new(Vec::new()));
        let next = || {
            let answered = said.lock().unwrap().len();
            seen.lock().unwrap().push((count(&reader), answered));
            waiting.pop()
        };
        let first = step(1, None, false, &said);
        run(&mut writer, first, next, &|| Ok(()));
        assert_eq!(*seen.lock().unwrap(), [(0, 0); 3], "nothing before the end");
        assert_eq!(*said.lock().unwrap(), [(1, true), (2, true), (3, true)]);
        assert_eq!(count(&reader), 3);
    }

    #[test]
    fn a_step_that_fails_takes_back_what_it_did_and_nothing_else() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(3, None, false, &said), step(2, None, true, &said)];
        let first = step(1, None, false, &said);
        run(&mut writer, first, || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, true), (2, false), (3, true)]);
        assert_eq!(count(&reader), 2);
    }

    #[test]
    fn where_the_commit_fails_all_its_steps_have_failed() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(2, Some(7), false, &said)];
        let first = step(1, None, false, &said);
        run(&mut writer, first, || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, false), (2, false)]);
        assert_eq!(count(&reader), 0);
        // And the next one begins anew.
        run(
            &mut writer,
            step(3, None, false, &said),
            || None,
            &|| Ok(()),
        );
        assert_eq!(count(&reader), 1);
    }

    #[test]
    fn what_is_prompt_waits_for_nobody_behind_it() {
        let (_folder, mut writer, _reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![
            step(3, None, false, &said),
            step(PROMPT, None, false, &said),
        ];
        let first = step(1, None, false, &said);
        run(&mut writer, first, || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, true), (PROMPT, true)]);
        assert_eq!(waiting.len(), 1, "it is the next group's");
    }

    #[test]
    fn where_the_file_is_gone_nothing_is_run() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let gone = || Err(StoreError::Lost("it was moved".to_owned()));
        run(&mut writer, step(1, None, false, &said), || None, &gone);
        assert_eq!(*said.lock().unwrap(), [(1, false)]);
        assert_eq!(count(&reader), 0);
    }

    #[test]
    fn a_group_is_bounded() {
        let (_folder, mut writer, _reader) = new_file();
        let said = Said::default();
        let mut ids = 2..;
        let next = || ids.next().map(|id| step(id, None, false, &said));
        run(&mut writer, step(1, None, false, &said), next, &|| Ok(()));
        let steps = said.lock().unwrap().len();
        assert!((2..=MOST_STEPS).contains(&steps), "{steps}");
    }
}
