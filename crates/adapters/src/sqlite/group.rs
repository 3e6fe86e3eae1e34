//! Steps that share a commit.
//!
//! What a commit costs is its sync of the disk and the pages that it writes, and a delivery
//! takes four steps, whose pages are often the same. So the writer takes those steps that
//! wait for it one after the other and commits them together. Each caller is answered after
//! that commit and not before, so an answer means what it does of a step alone: it is on the
//! disk.
//!
//! Steps are as serial as they are alone: each sees all before it, and the clock is read
//! under the write lock. Where one of them fails all is taken back, and each is run again on
//! its own: the others come out as if they had never shared. Savepoints would spare that,
//! and cost more than the shared commit saves: each keeps every page as it was before it.
//! Where the commit fails (a full disk, a failing one), all steps have failed: none has been
//! answered yet.

use std::time::Duration;

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::time::Instant;

use super::fault::Fault;

/// The most steps that share a commit.
const MOST_STEPS: usize = 64;

/// No step is added to a group that has run for so long: whoever came first waits for
/// the last.
const MOST_TIME: Duration = Duration::from_millis(4);

/// The same of a group in which one is wanted soon, after that one has run.
const MOST_TIME_SOON: Duration = Duration::from_millis(1);

/// A step, and whoever waits for it.
pub(super) trait Member: Send {
    /// Does it, once more if others have spoilt the first time; whether it may be committed.
    fn run(&mut self, tx: &Transaction<'_>) -> bool;

    /// What it is like to share with.
    fn manner(&self) -> Manner;

    /// Tells its caller, now that it is known whether what it did is on the disk.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What matters to those that share a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// It only reads: alone it waits for no lock, and among others it sees what they did.
    Reads,
    /// It writes.
    Writes,
    /// It writes, and somebody outside waits for its answer: it goes before others, and
    /// few come after it.
    WritesSoon,
    /// It writes, and what it answers is worth less the longer that takes: no step comes
    /// after it.
    WritesPromptly,
}

/// Whether the file is still where it was opened.
pub(super) type Check<'a> = &'a dyn Fn() -> Result<(), StoreError>;

/// Takes what waits for the writer, if that is a step that may share.
pub(super) type Next<'a> = &'a mut dyn FnMut() -> Option<Box<dyn Member>>;

/// Runs `first`, and what `next` has beside it, as one transaction.
pub(super) fn run(
    connection: &mut Connection,
    first: Box<dyn Member>,
    next: Next<'_>,
    check: Check<'_>,
) {
    let mut members = vec![first];
    match attempt(connection, &mut members, next, check) {
        Some(committed) => {
            for member in members {
                member.answer(committed.clone());
            }
        }
        None => {
            for member in members {
                run(connection, member, &mut || None, check);
            }
        }
    }
}

/// Whether it was committed; `None` if one of several has failed.
fn attempt(
    connection: &mut Connection,
    members: &mut Vec<Box<dyn Member>>,
    next: Next<'_>,
    check: Check<'_>,
) -> Option<Result<(), StoreError>> {
    let reads = members
        .iter()
        .all(|member| member.manner() == Manner::Reads);
    let behavior = match reads {
        true => TransactionBehavior::Deferred,
        false => TransactionBehavior::Immediate,
    };
    let begun = check().and_then(|()| {
        let tx = connection.transaction_with_behavior(behavior);
        tx.map_err(|problem| Fault::from(problem).into())
    });
    let tx = match begun {
        Ok(tx) => tx,
        Err(problem) => return Some(Err(problem)),
    };
    let (mut began, mut most_time) = (Instant::now(), MOST_TIME);
    let mut at = 0;
    while let Some(member) = members.get_mut(at) {
        // What only reads has nothing to take back, unless SQLite itself has given up.
        let is_good = member.run(&tx);
        if !is_good && (member.manner() != Manner::Reads || tx.is_autocommit()) {
            return (members.len() == 1).then_some(Ok(()));
        }
        at += 1;
        if member.manner() == Manner::WritesSoon {
            (began, most_time) = (Instant::now(), MOST_TIME_SOON);
        }
        let full = at >= MOST_STEPS || began.elapsed() >= most_time;
        let last = reads || full || member.manner() == Manner::WritesPromptly;
        if !last {
            members.extend(next());
        }
    }
    let committed = tx.commit().map_err(|problem| Fault::from(problem).into());
    Some(committed.and_then(|()| check()))
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

    /// The row of one that only reads.
    const READS: i64 = 77;

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
    struct Row {
        id: i64,
        parent: Option<i64>,
        fails: bool,
        is_done: bool,
        said: Said,
    }

    impl Member for Row {
        fn run(&mut self, tx: &Transaction<'_>) -> bool {
            if self.id != READS {
                let sql = "insert into rows (id, parent) values (?1, ?2)";
                tx.execute(sql, (self.id, self.parent)).unwrap();
            }
            self.is_done = !self.fails;
            self.is_done
        }

        fn manner(&self) -> Manner {
            match self.id {
                PROMPT => Manner::WritesPromptly,
                READS => Manner::Reads,
                _ => Manner::Writes,
            }
        }

        fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
            let done = committed.is_ok() && self.is_done;
            self.said.lock().unwrap().push((self.id, done));
        }
    }

    fn step(id: i64, parent: Option<i64>, fails: bool, said: &Said) -> Box<dyn Member> {
        Box::new(Row {
            id,
            parent,
            fails,
            is_done: false,
            said: said.clone(),
        })
    }

    #[test]
    fn steps_that_wait_share_a_commit_and_are_answered_after_it() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(3, None, false, &said), step(2, None, false, &said)];
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut next = || {
            let answered = said.lock().unwrap().len();
            seen.lock().unwrap().push((count(&reader), answered));
            waiting.pop()
        };
        let first = step(1, None, false, &said);
        run(&mut writer, first, &mut next, &|| Ok(()));
        assert_eq!(*seen.lock().unwrap(), [(0, 0); 3], "nothing before the end");
        assert_eq!(*said.lock().unwrap(), [(1, true), (2, true), (3, true)]);
        assert_eq!(count(&reader), 3);
    }

    #[test]
    fn where_a_step_fails_each_is_run_again_on_its_own() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(3, None, true, &said), step(2, None, false, &said)];
        let first = step(1, None, false, &said);
        run(&mut writer, first, &mut || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, true), (2, true), (3, false)]);
        assert_eq!(count(&reader), 2);
    }

    /// Nothing that is not there, asked for again and again, costs the others their commit.
    #[test]
    fn a_read_that_fails_takes_nothing_back() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(2, None, false, &said), step(READS, None, true, &said)];
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut next = || {
            seen.lock().unwrap().push(count(&reader));
            waiting.pop()
        };
        run(&mut writer, step(1, None, false, &said), &mut next, &|| {
            Ok(())
        });
        assert_eq!(
            *said.lock().unwrap(),
            [(1, true), (READS, false), (2, true)]
        );
        assert_eq!(*seen.lock().unwrap(), [0; 3], "one commit");
        assert_eq!(count(&reader), 2);
    }

    #[test]
    fn where_the_commit_fails_all_its_steps_have_failed() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let mut waiting = vec![step(2, Some(7), false, &said)];
        let first = step(1, None, false, &said);
        run(&mut writer, first, &mut || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, false), (2, false)]);
        assert_eq!(count(&reader), 0);
        // And the next one begins anew.
        run(
            &mut writer,
            step(3, None, false, &said),
            &mut || None,
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
        run(&mut writer, first, &mut || waiting.pop(), &|| Ok(()));
        assert_eq!(*said.lock().unwrap(), [(1, true), (PROMPT, true)]);
        assert_eq!(waiting.len(), 1, "it is the next group's");
    }

    #[test]
    fn where_the_file_is_gone_nothing_is_run() {
        let (_folder, mut writer, reader) = new_file();
        let said = Said::default();
        let gone = || Err(StoreError::Lost("it was moved".to_owned()));
        run(
            &mut writer,
            step(1, None, false, &said),
            &mut || None,
            &gone,
        );
        assert_eq!(*said.lock().unwrap(), [(1, false)]);
        assert_eq!(count(&reader), 0);
    }

    #[test]
    fn a_group_is_bounded() {
        let (_folder, mut writer, _reader) = new_file();
        let said = Said::default();
        let mut ids = 2..200;
        let mut next = || ids.next().map(|id| step(id, None, false, &said));
        run(&mut writer, step(1, None, false, &said), &mut next, &|| {
            Ok(())
        });
        let steps = said.lock().unwrap().len();
        assert!((2..=MOST_STEPS).contains(&steps), "{steps}");
    }
}
