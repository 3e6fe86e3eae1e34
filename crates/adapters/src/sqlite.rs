//! `Store` and `Catalog` on one SQLite file.
//!
//! There is one writer: a connection on a thread of its own, so each step sees all before
//! it in a `begin immediate` transaction, and the clock is read after the lock. Steps of the
//! path that wait at once share one. Nothing is ever skipped, because nobody else holds a
//! row. What the catalog reads comes from a second, read-only connection, so that an audit
//! of a long ledger never delays the path of an event.
//!
//! Statements name the index that makes them cheap (`indexed by`): a plan that
//! would read a whole ledger is an error and not a slow day. First attempts are in line in
//! memory instead (`lines`).
//!
//! An answer is durable: the file is in WAL mode and every commit is synced.
//! A second Paceline on the same file is refused by a lock beside it; a
//! `sqlite3` shell is welcome, and its changes of limits are as safe as ours
//! (the triggers in `migrations/sqlite`).

mod accepted;
mod admit;
mod all_destinations;
mod api_keys;
mod backlog;
mod backpressure;
mod batches;
mod buckets;
mod cancel;
mod checkpoint;
mod claim;
#[cfg(test)]
mod cost;
mod dead_letters;
mod destinations;
mod event_types;
mod fault;
mod fleet;
mod found_attempts;
mod found_events;
mod group;
mod handshakes;
mod harm;
mod health;
mod health_book;
mod ingest;
mod keys;
mod ledger;
mod limit_group;
mod limit_groups;
mod limit_requests;
mod lines;
mod managers;
mod migrate;
mod notices;
mod operations;
mod operations_book;
mod over;
mod overview;
mod place;
mod ports;
mod reads;
mod reap;
mod record;
mod replays;
mod response_times;
mod retain;
mod rows;
mod rules;
mod secret_store;
mod secrets;
mod sessions;
mod smart;
mod survey;
mod sweep;
mod tallies;
mod tenants;
mod thread;
mod traces;
mod usage;
mod watch;

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use domain::event::is_subscribed;
use domain::ids::WorkerId;
use domain::time::Timestamp;
use engine::ports::{MAX_HEAD_START, StoreError, wanted};
use rusqlite::config::DbConfig;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::time::Instant;

use checkpoint::Checkpoints;
use fault::Fault;
use group::Manner;
use lines::Lines;
use place::Place;
use thread::{Lane, Writes};

/// The store's clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How long a step waits for a shell that holds the write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// More than there are statements, so that each is prepared once.
const CACHED_STATEMENTS: usize = 128;

/// What the writer keeps of the file in memory, KiB: a batch's pages, and those that the
/// next one changes again. SQLite's own 2 MiB are too few for a thousand events.
const CACHE_KIB: i64 = 65_536;

/// The system's clock, for production.
#[must_use]
pub fn system_clock() -> Clock {
    Arc::new(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the edge: the embedded store's clock is the system's"
        )]
        let now = std::time::SystemTime::now();
        let since_epoch = now.duration_since(std::time::UNIX_EPOCH);
        // Before 1970 nothing can be right; zero is refused by every window.
        Timestamp::from_micros(0) + since_epoch.unwrap_or_default()
    })
}

/// The store in one file. Dropping it waits for what is queued.
pub struct SqliteStore {
    writer: Arc<Lane>,
    /// The same as the writer where the file is only in memory.
    reader: Arc<Lane>,
    /// For what takes long; likewise.
    counter: Arc<Lane>,
    /// Where what is written has to be found again; `None` where nothing is
    /// written, or only in memory.
    place: Option<Arc<Place>>,
    /// First attempts by destination, which are in memory.
    lines: Arc<Lines>,
    /// There is one connection, so what reads looks for what others have written.
    is_one: bool,
    clock: Clock,
    /// How far ahead of their slots permits may start; see
    /// [`engine::ports::Store::head_start`]. None in memory, where no claim waits for a disk.
    head_start: Duration,
}

impl SqliteStore {
    /// Opens a file, or creates it, and brings its schema up to date.
    ///
    /// Refuses a file that another Paceline has open.
    pub fn open(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let lock = lock(path)?;
        let new = create_private(path)?;
        let mut writer = connect(path, OpenFlags::default())?;
        let lines = own(&mut writer)?;
        let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (reader, counter) = (connect(path, read_only)?, connect(path, read_only)?);
        lines.tell(&reader)?;
        lines.tell(&counter)?;
        let place = Arc::new(Place::of(path)?);
        let writes = Writes {
            place: Arc::clone(&place),
            checkpoints: Checkpoints::spawn(path, &writer)?,
        };
        let writer = Lane::spawn("sqlite-writer", writer, Some(writes), lock)?;
        let reader = Lane::spawn("sqlite-reader", reader, None, ())?;
        let counter = Lane::spawn("sqlite-counter", counter, None, ())?;
        if new {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            tracing::info!("made a new database at {}", path.display());
        }
        Ok(Self {
            place: Some(place),
            writer: Arc::new(writer),
            reader: Arc::new(reader),
            counter: Arc::new(counter),
            lines,
            is_one: false,
            clock,
            head_start: MAX_HEAD_START,
        })
    }

    /// Opens an existing file only to read it, beside the Paceline that has it
    /// open: for the audit. Whatever writes fails.
    pub fn open_to_read(path: &Path, clock: Clock) -> Result<Self, StoreError> {
        let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = connect(path, read_only)?;
        let lines = Arc::<Lines>::default();
        lines.tell(&connection)?;
        let lane = Lane::spawn("sqlite-audit", connection, None, ())?;
        Ok(Self::on(Arc::new(lane), lines, clock, Duration::ZERO))
    }

    /// A store that is gone when it is dropped, for tests and demos.
    pub fn in_memory(clock: Clock) -> Result<Self, StoreError> {
        let mut connection = connect(Path::new(":memory:"), OpenFlags::default())?;
        let lines = own(&mut connection)?;
        let lane = Lane::spawn("sqlite-memory", connection, None, ())?;
        Ok(Self::on(Arc::new(lane), lines, clock, Duration::ZERO))
    }

    /// A store on a connection that the caller keeps: each step runs on the
    /// caller's own thread, and nothing is awaited. For virtual time, whose
    /// clock would jump while a caller waits for a thread.
    ///
    /// Brings the schema up to date. What triggers write goes by the same clock.
    ///
    /// Permits may start by `head_start` before their slots, and their starts are dated
    /// ahead.
    pub fn inline(
        connection: Arc<Mutex<Connection>>,
        clock: Clock,
        head_start: Duration,
    ) -> Result<Self, StoreError> {
        let lines = {
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            prepare(&connection)?;
            tell_the_time(&connection, clock.clone())?;
            own(&mut connection)?
        };
        let lane = Arc::new(Lane::Inline(connection));
        Ok(Self::on(lane, lines, clock, head_start))
    }

    /// All of it on one connection.
    fn on(lane: Arc<Lane>, lines: Arc<Lines>, clock: Clock, head_start: Duration) -> Self {
        Self {
            writer: lane.clone(),
            reader: lane.clone(),
            counter: lane,
            place: None,
            lines,
            is_one: true,
            clock,
            head_start,
        }
    }

    /// One atomic step: under the write lock, at one instant.
    async fn write<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: FnOnce(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        let (clock, place) = (self.clock.clone(), self.place.clone());
        let lines = Arc::clone(&self.lines);
        let still_there = move || place.as_ref().map_or(Ok(()), |place| place.check());
        let step = move |connection: &mut Connection| {
            still_there()?;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            lines.catch_up(&tx)?;
            let answer = step(&tx, clock())?;
            tx.commit()?;
            still_there()?;
            Ok(answer)
        };
        self.writer.run(step).await
    }

    /// A step that deliveries take: those that wait at once share a commit. It is run
    /// again where another of them fails.
    async fn write_together<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        self.in_turn(Manner::Writes, step).await
    }

    /// The same for what somebody outside waits for.
    async fn write_soon<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        self.in_turn(Manner::WritesSoon, step).await
    }

    /// The same for a claim: its worker sends only if it has the answer soon.
    async fn write_promptly<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        self.in_turn(Manner::WritesPromptly, step).await
    }

    /// A quick read on the path: of what is done, at one instant.
    async fn look<T, F>(&self, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        wanted::check()?;
        self.in_turn(Manner::Reads, step).await
    }

    /// Who claims, and when: to be asked under the write lock.
    fn claimer(&self, worker: WorkerId) -> impl Fn() -> claim::Claimer + Send + use<> {
        let (asked_at, clock, head_start) = (Instant::now(), self.clock.clone(), self.head_start);
        move || {
            // Before the clock is read, or a start would be dated too early.
            let waited_for = asked_at.elapsed();
            claim::Claimer {
                now: clock(),
                waited_for,
                head_start,
                worker,
            }
        }
    }

    async fn in_turn<T, F>(&self, manner: Manner, step: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Fn(&Transaction<'_>, Timestamp) -> Result<T, Fault> + Send + 'static,
    {
        let (clock, lines) = (self.clock.clone(), Arc::clone(&self.lines));
        let step = move |tx: &Transaction<'_>| {
            lines.catch_up(tx)?;
            step(tx, clock())
        };
        self.writer.run_together(manner, step).await
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags).map_err(Fault::from)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(Fault::from)?;
    prepare(&connection)?;
    Ok(connection)
}

/// Each statement is prepared once, and never again for the values that are bound:
/// SQLite would plan anew for each `limit ?`, which was a third of what a step costs.
/// Statements name their indexes, so nothing depends on a value.
fn prepare(connection: &Connection) -> Result<(), Fault> {
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    know_subscriptions(connection)
}

/// `subscribes(event_types, event_type)`, which the schema of Postgres has as well.
fn know_subscriptions(connection: &Connection) -> Result<(), Fault> {
    let subscribes = |context: &Context<'_>| {
        let types = context.get_raw(0).as_str()?;
        let types: Vec<String> = serde_json::from_str(types)
            .map_err(|problem| rusqlite::Error::UserFunctionError(problem.into()))?;
        let event_type = context.get_raw(1).as_str_or_null()?.unwrap_or_default();
        Ok(types.iter().any(|one| is_subscribed(one, event_type)))
    };
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    Ok(connection.create_scalar_function("subscribes", 2, flags, subscribes)?)
}

/// What the view `store_clock` and the schema's defaults go by. They ask for
/// `julianday('now')`, which a plain shell has too; here it is the store's clock.
fn tell_the_time(connection: &Connection, clock: Clock) -> Result<(), Fault> {
    /// Midnight of 1970-01-01 as a Julian day.
    const UNIX_EPOCH: f64 = 2_440_587.5;
    const MILLIS_PER_DAY: f64 = 86_400_000.0;
    let julian_day = move |_: &Context<'_>| {
        // Whole milliseconds, as SQLite's own clock has; far below 2^52.
        let millis = (clock().as_micros() / 1_000) as f64;
        Ok(UNIX_EPOCH + millis / MILLIS_PER_DAY)
    };
    let flags = FunctionFlags::SQLITE_UTF8;
    Ok(connection.create_scalar_function("julianday", 1, flags, julian_day)?)
}

/// Makes a connection the one that writes, and brings the schema up to date.
fn own(connection: &mut Connection) -> Result<Arc<Lines>, Fault> {
    configure(connection)?;
    migrate::migrate(connection)?;
    // Else SQLite puts what a statement would take back, where that is more than 16 pages,
    // into a file of its own, which not every process may write. Not before a migration,
    // which may sort a whole table; and not after the lines, whose triggers it would drop.
    connection.pragma_update(None, "temp_store", "memory")?;
    Lines::follow(connection)
}

fn configure(connection: &Connection) -> Result<(), Fault> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(())
}

/// Whether there was none. A new file is for its owner only: it holds payloads. The
/// files that SQLite puts beside it take its mode.
fn create_private(path: &Path) -> Result<bool, StoreError> {
    let new = !path.exists();
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map_err(|problem| {
        StoreError::Unavailable(format!("cannot open {}: {problem}", path.display()))
    })?;
    Ok(new)
}

/// The lock that says that a Paceline has the file open. Beside it, because
/// SQLite's own locks are for statements, and a shell must get in.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let name = PathBuf::from(name);
    let cannot = |problem: std::io::Error| {
        StoreError::Unavailable(format!("cannot lock {}: {problem}", name.display()))
    };
    let mut options = File::options();
    options.create(true).truncate(false).write(true);
    let file = options.open(&name).map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::Error(error)) => Err(cannot(error)),
        Err(TryLockError::WouldBlock) => Err(StoreError::Unavailable(format!(
            "{} is open in another paceline process",
            path.display()
        ))),
    }
}
