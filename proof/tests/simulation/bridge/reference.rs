//! The store that another one is held against: the shipped one on SQLite, which takes
//! one call after the other, on a clock that is set for each.
//!
//! It is what the simulation runs, so what holds there holds of whatever answers as it
//! does. What only a store with many callers at once does is done to it from outside.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use domain::ids::{AttemptId, DestinationId, WorkerId};
use domain::time::Timestamp;
use engine::ports::{ReapRules, Reaped, Store as _, Wake};
use rusqlite::OptionalExtension as _;
use simulation::SimulatedStore;
use tempfile::TempDir;

use super::calls::{Answer, Call, ask};

/// What a reap does, in this order: on Postgres each is a transaction of its own, and
/// others may come between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReapStep {
    /// Permits past their deadline wait again.
    Expire,
    /// Starts that nobody came back for become unknown.
    GiveUp,
    /// The backlog of deleted destinations is cancelled.
    Cancel,
    /// What grew too old while it waited expires.
    TooOld,
}

impl ReapStep {
    /// All, in order.
    pub(crate) const ALL: [Self; 4] = [Self::Expire, Self::GiveUp, Self::Cancel, Self::TooOld];

    /// How many rows it has moved.
    pub(crate) fn moved(self, reaped: &Reaped) -> u32 {
        match self {
            Self::Expire => reaped.expired_permits,
            Self::GiveUp => reaped.unknown_starts,
            Self::Cancel => reaped.cancelled,
            Self::TooOld => reaped.expired,
        }
    }

    /// The attempts that it may move.
    const fn its(self) -> &'static str {
        match self {
            Self::Expire => "select id from attempts where state = 'admitted'",
            Self::GiveUp => "select id from attempts where state = 'started'",
            Self::Cancel => {
                "select id from attempts where state = 'waiting'
                    and destination_id in (select id from destinations where deleted_at is not null)"
            }
            Self::TooOld => {
                "select id from attempts where state = 'waiting' and expires_at is not null"
            }
        }
    }

    /// The attempts that the others move.
    fn not_its(self) -> String {
        let others = Self::ALL.into_iter().filter(|other| *other != self);
        others
            .map(Self::its)
            .collect::<Vec<_>>()
            .join(" union all ")
    }
}

/// The most rows of each kind that the bridge's reaps move.
const REAPED: u32 = 1_000;

/// The one store that all states of a case are tried in.
struct Bench {
    store: SimulatedStore,
    file: PathBuf,
    /// Whose rows are in it.
    shown: RefCell<Weak<Rows>>,
    _folder: TempDir,
}

/// The rows of one state.
#[derive(Default)]
struct Rows {
    /// Taken when another state is shown.
    image: RefCell<Option<Vec<u8>>>,
    /// All of them, once somebody has asked.
    dump: RefCell<Option<Vec<u8>>>,
}

/// A state of it.
pub(crate) struct Reference {
    bench: Rc<Bench>,
    rows: Rc<Rows>,
}

impl Reference {
    pub(crate) fn new(now: Timestamp, head_start: Duration) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.unwrap();
        let file = folder.path().join("reference.db");
        let rows = Rc::new(Rows::default());
        let bench = Bench {
            store: SimulatedStore::in_file(&file, now, head_start).unwrap(),
            file,
            shown: RefCell::new(Rc::downgrade(&rows)),
            _folder: folder,
        };
        Self {
            bench: Rc::new(bench),
            rows,
        }
    }

    /// The store with these rows, until another state is asked for.
    pub(crate) fn store(&self) -> &SimulatedStore {
        let Bench {
            store, file, shown, ..
        } = &*self.bench;
        let before = shown.replace(Rc::downgrade(&self.rows));
        if !Weak::ptr_eq(&before, &Rc::downgrade(&self.rows)) {
            // Nobody asks for what nobody has any more.
            if let Some(before) = before.upgrade() {
                before.image.replace(Some(store.image(file).unwrap()));
            }
            let image = self.rows.image.borrow();
            let image = image.as_ref().expect("it was taken when another came");
            store.restore(file, image).unwrap();
        }
        store
    }

    /// The same store, whose rows change now.
    fn changed(&self) -> &SimulatedStore {
        self.rows.dump.replace(None);
        self.store()
    }

    /// Another state with the same rows.
    pub(crate) fn fork(&self) -> Self {
        let image = self.store().image(&self.bench.file).unwrap();
        let rows = Rows {
            image: RefCell::new(Some(image)),
            dump: self.rows.dump.clone(),
        };
        Self {
            bench: self.bench.clone(),
            rows: Rc::new(rows),
        }
    }

    /// Whether no call can tell them apart, at the same time.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.dumped();
        other.dumped();
        *self.rows.dump.borrow() == *other.rows.dump.borrow()
    }

    fn dumped(&self) {
        let mut dump = self.rows.dump.borrow_mut();
        dump.get_or_insert_with(|| self.store().dump());
    }

    /// Makes a call at the time that the clock shows.
    pub(crate) async fn ask(&self, call: &Call) -> Answer {
        let changed = match call {
            Call::Change(id, _) | Call::Delete(id) => Some(*id),
            _ => None,
        };
        let held_until = changed.map(|id| self.held_until(id));
        let answer = ask(self.changed(), call).await;
        if let Some((id, until)) = changed.zip(held_until) {
            self.set_held_until(id, until);
            // Whom it keeps waiting is in the answers.
            self.store().end_changes();
        }
        answer
    }

    /// Makes one step of a reap, at the time that the clock shows, and leaves these
    /// rows, which others hold. How many it moved, and whom to wake.
    pub(crate) async fn reap(
        &self,
        step: ReapStep,
        rules: &ReapRules,
        held: impl IntoIterator<Item = AttemptId>,
    ) -> (u32, Vec<Wake>) {
        let store = self.changed();
        let others: Vec<AttemptId> = {
            let connection = store.connection();
            let mut others = connection.prepare_cached(&step.not_its()).unwrap();
            let others = others.query_map([], |row| Ok(AttemptId(row.get(0)?)));
            others.unwrap().map(Result::unwrap).collect()
        };
        let hidden = store.hide(others);
        store.hold_rows(held);
        let reaped = store.reap(rules, REAPED).await.unwrap();
        store.hold_rows([]);
        store.show_again(&hidden);
        (step.moved(&reaped), reaped.wakes)
    }

    /// Whether this worker has retired, and from now on has not, or has again.
    pub(crate) fn set_retired(&self, worker: WorkerId, retired: bool) -> bool {
        let sql = "update workers set retired = ?2 where id = ?1 and retired <> ?2";
        let key = (worker.to_string(), retired);
        self.changed().connection().execute(sql, key).unwrap() > 0
    }

    /// From when on each destination's next look may help.
    pub(crate) fn looks(&self) -> Vec<Timestamp> {
        let sql = "select next_look_at from pacing where next_look_at is not null";
        let connection = self.store().connection();
        let mut looks = connection.prepare_cached(sql).unwrap();
        let looks = looks.query_map([], |row| Ok(Timestamp::from_micros(row.get(0)?)));
        looks.unwrap().map(Result::unwrap).collect()
    }

    /// SQLite's triggers hold a destination to the end of the millisecond: Postgres has
    /// microseconds, and need not.
    fn held_until(&self, destination: DestinationId) -> Option<i64> {
        let sql = "select held_until from pacing where destination_id = ?1";
        let connection = self.store().connection();
        let held = connection.query_row(sql, [destination.to_string()], |row| row.get(0));
        held.optional().unwrap().flatten()
    }

    fn set_held_until(&self, destination: DestinationId, until: Option<i64>) {
        let sql = "update pacing set held_until = ?2 where destination_id = ?1";
        let key = (destination.to_string(), until);
        self.changed().connection().execute(sql, key).unwrap();
    }
}
