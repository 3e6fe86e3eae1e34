//! First attempts in line, in memory.
//!
//! Which first attempts wait at which destination, in their order, is the one thing that an
//! index of the file would scatter: an event for three hundred destinations would write a
//! page of each line, and a delivery of a backlog two. So it is kept in memory, made anew
//! when the file is opened, and told of each change by triggers of the writer's connection,
//! whichever statement it was. Less than 100 bytes for each that waits; a million are read in
//! 0.3 s when the file is opened.
//!
//! Statements ask for it by functions: `line(destination, after, most)` and the like. What
//! they are told is the writer's own state, that of its open transaction included. Readers
//! have snapshots that may be older, so whoever reads rows by it repeats what makes them
//! first attempts, and finds those that are there.
//!
//! A rollback is undone here too. Other connections do not write to `deliveries`; what one
//! did all the same, as a shell may, is read anew where the table is small. Where it is not
//! what is new in it is read, and whoever takes from a line looks first whether those in it
//! are still there ([`tidy`]): a shell that changes a limit must not stop deliveries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, Transaction};
use uuid::Uuid;

use super::fault::Fault;
use super::rows::{all, first, object};

/// Begins what may be taken back without the rest of the transaction, and takes it back.
/// One at a time.
pub(super) const SAVEPOINT: &str = "savepoint part; select line_savepoint()";
pub(super) const ROLLBACK: &str = "rollback to part; select line_rollback()";
pub(super) const RELEASE: &str = "release part";

/// A table with ids over so many numbers is read anew where another connection has written.
const FEW: i64 = 5_000;

/// Of the connection alone, so a shell needs no function of ours.
const TRIGGERS: &str = "
    create temp trigger line_inserted after insert on main.deliveries
    when new.permit is null and new.due_at is null
    begin
        select line_enters(new.destination_id, new.id);
    end;
    create temp trigger line_updated after update of permit, due_at on main.deliveries
    when (old.permit is null and old.due_at is null) <> (new.permit is null and new.due_at is null)
    begin
        select iif(old.permit is null and old.due_at is null,
            line_leaves(old.destination_id, old.id), line_enters(new.destination_id, new.id));
    end;
    create temp trigger line_deleted after delete on main.deliveries
    when old.permit is null and old.due_at is null
    begin
        select line_leaves(old.destination_id, old.id);
    end";

const LOAD: &str = "
    -- lines: first attempts that wait
    select destination_id, id from deliveries
    where permit is null and due_at is null and id > ?1 order by id";

const SPAN: &str = "
    -- lines: over how many numbers its ids are
    select coalesce(max(id) - min(id), 0) from deliveries";

const ARE_DOUBTED: &str = "
    -- lines: whether some may have gone without a word
    select lines_are_doubted()";

const GONE: &str = "
    -- lines: who is in line and waits no more
    select l.value from json_each(line(?1, ?2, ?3)) l
    where not exists (
        select 1 from deliveries a where a.id = l.value and a.permit is null and a.due_at is null
    )";

const LEAVE: &str = "
    -- lines: not in line any more
    select line_leaves(?1, ?2)";

const VERSION: &str = "
    -- lines: whether another connection has written
    pragma data_version";

/// Those of one file.
#[derive(Default)]
pub(super) struct Lines {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    lines: BTreeMap<Uuid, BTreeSet<i64>>,
    /// The largest that was ever in line.
    last: i64,
    /// What the open transaction has changed.
    changes: Vec<Change>,
    /// They are of one that is over.
    committed: bool,
    /// How many of them were there at the savepoint.
    savepoint: usize,
    /// `data_version` when they were read; `None` if they have to be read anew.
    version: Option<i64>,
    /// Another connection has written since, and not all was read anew.
    doubted: bool,
}

#[derive(Clone, Copy)]
struct Change {
    destination: Uuid,
    id: i64,
    entered: bool,
}

impl Lines {
    /// Of the file that `writer` writes to, whose schema is there.
    pub(super) fn follow(writer: &Connection) -> Result<Arc<Self>, Fault> {
        let lines = Arc::new(Self::default());
        lines.tell(writer)?;
        lines.listen(writer)?;
        writer.execute_batch(TRIGGERS)?;
        lines.catch_up(writer)?;
        Ok(lines)
    }

    /// Lets the statements of a connection ask.
    pub(super) fn tell(self: &Arc<Self>, connection: &Connection) -> Result<(), Fault> {
        self.answer(connection, "line_length", 1, |lines, asked| {
            Ok(lines.of(asked)?.map_or(0, BTreeSet::len) as i64)
        })?;
        self.answer(connection, "line_head", 1, |lines, asked| {
            Ok(lines.of(asked)?.and_then(BTreeSet::first).copied())
        })?;
        self.answer(connection, "line", 3, |lines, asked| {
            let (after, most) = (asked.get::<i64>(1)?, asked.get(2)?);
            let line = lines
                .of(asked)?
                .map(|line| line.range((Excluded(after), Unbounded)));
            Ok(listed(line.into_iter().flatten(), most))
        })?;
        self.answer(connection, "line_before", 3, |lines, asked| {
            let (before, most) = (asked.get::<i64>(1)?, asked.get(2)?);
            let line = lines.of(asked)?.map(|line| line.range(..before).rev());
            Ok(listed(line.into_iter().flatten(), most))
        })?;
        self.answer(connection, "next_line", 1, |lines, asked| {
            let after = match asked.get_raw(0).as_str()? {
                "" => Unbounded,
                _ => Excluded(destination(asked)?),
            };
            let next = lines.lines.range((after, Unbounded)).next();
            Ok(next.map(|(destination, _)| destination.to_string()))
        })?;
        // Only the writer's connection can take anybody out: see `tidy`.
        self.answer(connection, "lines_are_doubted", 0, |_, _| Ok(false))?;
        let lines = Arc::clone(self);
        let lengths = move |_: &Context<'_>| Ok(object(lines.lengths()));
        let flags = FunctionFlags::SQLITE_UTF8;
        Ok(connection.create_scalar_function("line_lengths", 0, flags, lengths)?)
    }

    fn lengths(&self) -> Vec<(Uuid, usize)> {
        let inner = self.inner();
        let lengths = inner.lines.iter().map(|(whose, line)| (*whose, line.len()));
        lengths.collect()
    }

    /// Takes what the triggers of the writer's connection tell, and its rollbacks.
    fn listen(self: &Arc<Self>, writer: &Connection) -> Result<(), Fault> {
        for (name, entered) in [("line_enters", true), ("line_leaves", false)] {
            self.answer(writer, name, 2, move |lines, told| {
                lines.note(Change {
                    destination: destination(told)?,
                    id: told.get(1)?,
                    entered,
                });
                Ok(None::<i64>)
            })?;
        }
        self.answer(writer, "lines_are_doubted", 0, |lines, _| Ok(lines.doubted))?;
        self.answer(writer, "line_savepoint", 0, |lines, _| {
            lines.savepoint = lines.begun().len();
            Ok(None::<i64>)
        })?;
        self.answer(writer, "line_rollback", 0, |lines, _| {
            let to = lines.savepoint;
            lines.take_back(to);
            Ok(None::<i64>)
        })?;
        let lines = Arc::clone(self);
        writer.commit_hook(Some(move || {
            lines.inner().committed = true;
            false
        }))?;
        let lines = Arc::clone(self);
        writer.rollback_hook(Some(move || lines.inner().rolled_back()))?;
        Ok(())
    }

    /// A function of SQL.
    fn answer<T: rusqlite::ToSql + Send + 'static>(
        self: &Arc<Self>,
        connection: &Connection,
        name: &str,
        arguments: i32,
        answer: impl Fn(&mut Inner, &Context<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<(), Fault> {
        let lines = Arc::clone(self);
        let answer = move |asked: &Context<'_>| answer(&mut lines.inner(), asked);
        let flags = FunctionFlags::SQLITE_UTF8;
        Ok(connection.create_scalar_function(name, arguments, flags, answer)?)
    }

    /// In a transaction: reads what another connection has written since the last one.
    pub(super) fn catch_up(&self, connection: &Connection) -> Result<(), Fault> {
        let version: i64 = (connection.prepare_cached(VERSION)?).query_row([], |row| row.get(0))?;
        let mut inner = self.inner();
        // The transaction before is over: whatever is taken back from here on is this one's.
        inner.begun();
        if inner.version == Some(version) {
            return Ok(());
        }
        let span: i64 = (connection.prepare_cached(SPAN)?).query_row([], |row| row.get(0))?;
        inner.doubted = inner.version.is_some() && span > FEW;
        let after = match inner.doubted {
            true => inner.last,
            false => {
                inner.lines.clear();
                0
            }
        };
        let mut load = connection.prepare_cached(LOAD)?;
        let mut rows = load.query([after])?;
        while let Some(row) = rows.next()? {
            let id = row.get(1)?;
            let destination: String = row.get(0)?;
            let destination = uuid(&destination)?;
            inner.enter(destination, id);
        }
        inner.version = Some(version);
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn of(&self, asked: &Context<'_>) -> rusqlite::Result<Option<&BTreeSet<i64>>> {
        Ok(self.lines.get(&destination(asked)?))
    }

    /// The changes of the open transaction so far.
    fn begun(&mut self) -> &mut Vec<Change> {
        if std::mem::take(&mut self.committed) {
            self.changes.clear();
        }
        &mut self.changes
    }

    fn note(&mut self, change: Change) {
        self.begun().push(change);
        self.make(change);
    }

    fn make(
        &mut self,
        Change {
            destination,
            id,
            entered,
        }: Change,
    ) {
        match entered {
            true => self.enter(destination, id),
            false => self.leave(destination, id),
        }
    }

    fn enter(&mut self, destination: Uuid, id: i64) {
        let line = self.lines.entry(destination).or_default();
        line.insert(id);
        self.last = self.last.max(id);
    }

    fn leave(&mut self, destination: Uuid, id: i64) {
        let Some(line) = self.lines.get_mut(&destination) else {
            return;
        };
        line.remove(&id);
        if line.is_empty() {
            self.lines.remove(&destination);
        }
    }

    /// After `committed` the commit has failed, or somebody else's transaction has, who did
    /// not [catch up](Lines::catch_up) at its beginning: then nobody knows.
    fn rolled_back(&mut self) {
        match self.committed && !self.changes.is_empty() {
            true => self.version = None,
            false => self.take_back(0),
        }
    }

    /// Undoes the changes of the open transaction, but for the first so many.
    fn take_back(&mut self, but: usize) {
        let undone = self.begun().split_off(but);
        for change in undone.into_iter().rev() {
            self.make(Change {
                entered: !change.entered,
                ..change
            });
        }
    }
}

/// Where another connection has written: takes those out of a destination's line who are
/// among the first so many after one of them, and wait no more.
pub(super) fn tidy(
    tx: &Transaction<'_>,
    destination: &str,
    (after, most): (i64, u32),
) -> Result<(), Fault> {
    if first(tx, ARE_DOUBTED, [], |row| Ok(row.get(0)?))? != Some(true) {
        return Ok(());
    }
    loop {
        let gone: Vec<i64> = all(tx, GONE, (destination, after, most), |row| Ok(row.get(0)?))?;
        if gone.is_empty() {
            return Ok(());
        }
        for id in gone {
            first(tx, LEAVE, (destination, id), |_| Ok(()))?;
        }
    }
}

fn destination(asked: &Context<'_>) -> rusqlite::Result<Uuid> {
    uuid(asked.get_raw(0).as_str()?)
}

fn uuid(text: &str) -> rusqlite::Result<Uuid> {
    (text.parse())
        .map_err(|problem: uuid::Error| rusqlite::Error::UserFunctionError(problem.into()))
}

/// The first so many of these, as a JSON array.
fn listed<'a>(ids: impl Iterator<Item = &'a i64>, most: i64) -> String {
    let most = usize::try_from(most).unwrap_or(0);
    let mut json = String::from("[");
    for id in ids.take(most) {
        let comma = if json.len() > 1 { "," } else { "" };
        let _ = write!(json, "{comma}{id}");
    }
    json + "]"
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{connect, migrate};
    use super::*;

    const ONE: &str = "00000000-0000-0000-0000-000000000001";
    const TWO: &str = "00000000-0000-0000-0000-000000000002";

    fn new() -> (Connection, Arc<Lines>) {
        let mut connection =
            connect(Path::new(":memory:"), rusqlite::OpenFlags::default()).unwrap();
        migrate::migrate(&mut connection).unwrap();
        let lines = Lines::follow(&connection).unwrap();
        (connection, lines)
    }

    fn wait(connection: &Connection, destination: &str, id: i64) {
        let sql = "insert into deliveries (id, event_id, destination_id, tenant_id, created_at)
            values (?1, 'e', ?2, 't', 0)";
        connection.execute(sql, (id, destination)).unwrap();
    }

    fn asked(connection: &Connection, sql: &str) -> String {
        let sql = format!("select coalesce({sql}, 'nobody')");
        let read = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        match connection.query_row(&sql, [], read).unwrap() {
            rusqlite::types::Value::Text(text) => text,
            rusqlite::types::Value::Integer(number) => number.to_string(),
            other => panic!("{other:?}"),
        }
    }

    fn all_of_one(connection: &Connection) -> String {
        asked(connection, &format!("line('{ONE}', 0, 100)"))
    }

    #[test]
    fn statements_ask_for_the_line_of_a_destination() {
        let (connection, _lines) = new();
        for (destination, id) in [(TWO, 5), (ONE, 3), (ONE, 1), (TWO, 2), (ONE, 7)] {
            wait(&connection, destination, id);
        }
        let ask = |sql: &str| asked(&connection, &sql.replace("one", &format!("'{ONE}'")));
        assert_eq!(ask("line(one, 0, 100)"), "[1,3,7]");
        assert_eq!(ask("line(one, 1, 1)"), "[3]");
        assert_eq!(ask("line_before(one, 7, 100)"), "[3,1]");
        assert_eq!(ask("line_head(one)"), "1");
        assert_eq!(ask("line_length(one)"), "3");
        assert_eq!(ask("next_line('')"), ONE);
        assert_eq!(ask("next_line(one)"), TWO);
        assert_eq!(ask(&format!("next_line('{TWO}')")), "nobody");
        assert_eq!(
            ask("line_lengths()"),
            format!("{{\"{ONE}\":3,\"{TWO}\":2}}")
        );
    }

    #[test]
    fn who_has_a_permit_is_due_later_or_goes_leaves_the_line() {
        let (connection, _lines) = new();
        (1..=5).for_each(|id| wait(&connection, ONE, id));
        let run = |sql: &str| connection.execute_batch(sql).unwrap();
        run(
            "update deliveries set state = 'admitted', permit = 1, epoch = 1, not_before = 0,
            deadline = 1 where id = 1",
        );
        run("update deliveries set due_at = 9 where id = 2");
        run("delete from deliveries where id = 3");
        run("update deliveries set expires_at = 9 where id = 4");
        assert_eq!(all_of_one(&connection), "[4,5]");
        run(
            "update deliveries set state = 'waiting', permit = null, epoch = null,
            not_before = null, deadline = null where id = 1",
        );
        assert_eq!(all_of_one(&connection), "[1,4,5]");
    }

    #[test]
    fn a_rollback_takes_back_what_it_has_changed_and_no_more() {
        let (mut connection, _lines) = new();
        wait(&connection, ONE, 1);
        let tx = connection.transaction().unwrap();
        wait(&tx, ONE, 2);
        tx.execute("delete from deliveries where id = 1", [])
            .unwrap();
        assert_eq!(all_of_one(&tx), "[2]", "its own state");
        drop(tx);
        assert_eq!(all_of_one(&connection), "[1]");
        let tx = connection.transaction().unwrap();
        wait(&tx, ONE, 3);
        tx.commit().unwrap();
        let tx = connection.transaction().unwrap();
        wait(&tx, ONE, 4);
        drop(tx);
        assert_eq!(all_of_one(&connection), "[1,3]");
    }

    /// A request that is refused must not cost a look at all that waits.
    #[test]
    fn a_rollback_of_nothing_after_a_commit_reads_nothing_anew() {
        let (mut connection, lines) = new();
        wait(&connection, ONE, 1);
        let tx = connection.transaction().unwrap();
        lines.catch_up(&tx).unwrap();
        drop(tx);
        assert!(lines.inner().version.is_some());
        assert_eq!(all_of_one(&connection), "[1]");
    }

    #[test]
    fn a_part_is_taken_back_alone() {
        let (mut connection, _lines) = new();
        let tx = connection.transaction().unwrap();
        wait(&tx, ONE, 1);
        tx.execute_batch(SAVEPOINT).unwrap();
        wait(&tx, ONE, 2);
        tx.execute_batch(ROLLBACK).unwrap();
        tx.execute_batch(RELEASE).unwrap();
        tx.execute_batch(SAVEPOINT).unwrap();
        wait(&tx, ONE, 3);
        tx.execute_batch(RELEASE).unwrap();
        tx.commit().unwrap();
        assert_eq!(all_of_one(&connection), "[1,3]");
    }

    /// Nobody knows what a commit that fails has left, nor whether a rollback after one
    /// was of it.
    #[test]
    fn after_a_commit_that_fails_they_are_read_anew() {
        let (connection, lines) = new();
        connection
            .execute_batch(
                "create table parents (id integer primary key);
                create table children (parent integer references parents (id)
                    deferrable initially deferred);
                pragma foreign_keys = on;
                begin;
                insert into children values (1);",
            )
            .unwrap();
        wait(&connection, ONE, 1);
        assert!(connection.execute_batch("commit").is_err());
        connection.execute_batch("rollback").unwrap();
        lines.catch_up(&connection).unwrap();
        assert_eq!(all_of_one(&connection), "[]");
    }

    #[test]
    fn what_another_connection_wrote_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.db");
        let open = || connect(&path, rusqlite::OpenFlags::default()).unwrap();
        let mut writer = open();
        super::super::configure(&writer).unwrap();
        migrate::migrate(&mut writer).unwrap();
        let lines = Lines::follow(&writer).unwrap();
        wait(&writer, ONE, 1);
        let shell = open();
        wait(&shell, ONE, 2);
        shell
            .execute("delete from deliveries where id = 1", [])
            .unwrap();
        assert_eq!(all_of_one(&writer), "[1]");
        lines.catch_up(&writer).unwrap();
        assert_eq!(all_of_one(&writer), "[2]");
        // Of many what is new is read, and who has gone is found by whoever looks.
        let tx = writer.transaction().unwrap();
        wait(&tx, ONE, FEW * 2);
        tx.commit().unwrap();
        shell
            .execute("delete from deliveries where id = 2", [])
            .unwrap();
        wait(&shell, ONE, 1);
        wait(&shell, ONE, FEW * 3);
        let tx = writer.transaction().unwrap();
        lines.catch_up(&tx).unwrap();
        assert_eq!(all_of_one(&tx), "[2,10000,15000]");
        tidy(&tx, ONE, (0, 1)).unwrap();
        assert_eq!(all_of_one(&tx), "[10000,15000]");
        tx.commit().unwrap();
        // A file that is opened has them at once.
        let other = open();
        Lines::follow(&other).unwrap();
        assert_eq!(all_of_one(&other), "[1,10000,15000]");
    }
}
